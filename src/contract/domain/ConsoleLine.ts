import { Schema } from "effect"

/** A line for the console of a server. */
export const ConsoleLine = Schema.String.check(
  Schema.isMaxLength(4096),
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  Schema.isPattern(/^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$/u, {
    expected: "a line without control characters"
  })
)
