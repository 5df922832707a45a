import { Data, type Result, type Schema } from "effect"

/** A patch that cannot be applied: the file cannot be read as its format, or has no way to hold the value. */
export class PatchProblem extends Data.TaggedError("PatchProblem")<{ readonly reason: string }> {}

/** What is to be set, as in `ConfigPatch.find`. A later key wins over an earlier one. */
export type Find = Readonly<Record<string, Schema.Json>>

/**
 * Sets the values of `find` in the text of a file; `undefined` is a file that does not exist. A text that already
 * has all values comes back as it is, character by character.
 */
export type Patcher = (
  text: string | undefined,
  find: Find
) => Result.Result<string | undefined, PatchProblem>
