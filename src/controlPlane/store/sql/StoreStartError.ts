import { Data } from "effect"

/**
 * Why the store could not be opened; `message` is for the operator.
 *
 * - `CannotOpen`   the file or its folder is missing, or cannot be read or written
 * - `NotADatabase` the file is something else, or damaged
 * - `Locked`       another process holds the write lock of the database
 * - `InUse`        another `muster serve` runs on the same data
 * - `NewerSchema`  the database was written by a newer version
 * - `Unsupported`  the database was written by a version before 0.2.0, or by another program
 * - `Failed`       any other failure: see `cause`
 */
export class StoreStartError extends Data.TaggedError("StoreStartError")<{
  readonly reason:
    | "CannotOpen"
    | "NotADatabase"
    | "Locked"
    | "InUse"
    | "NewerSchema"
    | "Unsupported"
    | "Failed"
  readonly message: string
  readonly cause?: unknown
}> {}
