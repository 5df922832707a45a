import { Data, type Result, type Schema } from "effect"

/** A patch that cannot be applied: the file is not in its format, or the format cannot hold the value. */
export class PatchProblem extends Data.TaggedError("PatchProblem")<{ readonly reason: string }> {}

/** The values to set, as in `ConfigPatch.find`. A later key wins over an earlier one. */
export type Find = Readonly<Record<string, Schema.Json>>

/** A key of `find` that matches nothing in the file, and why. */
export interface Unmatched {
  readonly key: string
  readonly reason: string
}

/** The text of a patched file, and the keys that have no effect on it; `undefined` is a file that does not exist. */
export interface PatchedText {
  readonly text: string | undefined
  readonly unmatched: ReadonlyArray<Unmatched>
}

/**
 * Sets the values of `find` in the text of a file; `undefined` is a file that does not exist. A text that already
 * has all values is returned character by character.
 */
export type Patcher = (text: string | undefined, find: Find) => Result.Result<PatchedText, PatchProblem>
