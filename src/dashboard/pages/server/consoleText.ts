/** Lines of a server as the terminal may get them. */

/** Colours and weights of text: the only sequences that a line may contain. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is read
const STYLES = /^\u001b\[[0-9;:]*m/

/** An escape sequence of any kind: control strings, control sequences, and those of two or three characters. */
const SEQUENCE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is removed
  /\u001b(?:[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)/g

/** Control characters except the tab, and characters that turn the direction of a text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed
const CONTROL = /[\u0000-\u0008\u000a-\u001a\u001c-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

/** Returns a line with its colours only: a server moves no cursor, clears no screen and sets no title. */
export const cleanLine = (line: string): string => {
  const clean = line
    .replace(SEQUENCE, (sequence) => (STYLES.test(sequence) ? sequence : ""))
    .replace(CONTROL, "")
  return clean.includes("\u001b") ? `${clean}\u001b[0m` : clean
}

/** Returns how many lines the beginning of `later` repeats of the end of `earlier`. */
export const overlap = (earlier: ReadonlyArray<string>, later: ReadonlyArray<string>): number => {
  for (let size = Math.min(earlier.length, later.length); size > 0; size--) {
    const from = earlier.length - size
    if (later.slice(0, size).every((line, index) => line === earlier[from + index])) return size
  }
  return 0
}
