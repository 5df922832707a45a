import { Schema } from "effect"

export const ConsoleLine = Schema.String.check(
  Schema.isMaxLength(4096),
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  Schema.isPattern(/^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$/u, {
    expected: "a line without control characters"
  })
)

/** Returns the pattern of an online signal; flags such as `(?i)` at its beginning apply to all of it. @throws SyntaxError */
export const signalPattern = (text: string): RegExp => {
  const [inline = "", flags = ""] = /^\(\?([ims]+)\)/.exec(text) ?? []
  return new RegExp(text.slice(inline.length), [...new Set(flags)].join(""))
}

// CSI, OSC (ended by BEL or ST), other escapes, and the other C0 characters except the tab.
const escapes =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]|[\u0000-\u0008\u000b-\u001f\u007f]/g

/** Removes ANSI sequences and other control characters from a line. */
export const stripAnsi = (line: string): string => line.replace(escapes, "")
