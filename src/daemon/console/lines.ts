/** How consoles and logs are cut into lines. Pure. */

/** A line longer than this is cut into pieces of it, in bytes. */
export const LINE_CAP = 8 * 1024

const NEWLINE = 10
const RETURN = 13

export interface LineEnd {
  /** Where the text ends, without its line break. */
  readonly textEnd: number
  /** Where the next line begins. */
  readonly next: number
}

/**
 * The end of the line that begins at `from`: at a line break, or at {@link LINE_CAP} (never inside a UTF-8
 * sequence); undefined while the line may still grow. The answer is the same however the bytes came in.
 */
export const lineEnd = (data: Uint8Array, from: number): LineEnd | undefined => {
  const at = data.indexOf(NEWLINE, from)
  if (at >= 0 && at - from <= LINE_CAP) {
    const textEnd = at > from && data[at - 1] === RETURN ? at - 1 : at
    return { textEnd, next: at + 1 }
  }
  if (data.length - from <= LINE_CAP) return undefined
  let cut = from + LINE_CAP
  for (let back = 0; back < 3 && ((data[cut] ?? 0) & 0xc0) === 0x80; back++) cut--
  return { textEnd: cut, next: cut }
}

const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true })

/** Text of a line; bytes that are not UTF-8 become U+FFFD. */
export const decodeLine = (data: Uint8Array): string => decoder.decode(data)

// CSI, OSC (ended by BEL or ST), other escapes, and what remains of C0 but the tab.
const escapes =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]|[\u0000-\u0008\u000b-\u001f\u007f]/g

/** A line without ANSI sequences and other control characters. */
export const stripAnsi = (line: string): string => line.replace(escapes, "")
