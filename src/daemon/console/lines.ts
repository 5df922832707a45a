/** The division of consoles and logs into lines. Pure. */

/** The longest line, in bytes; a longer line is split. */
export const LINE_CAP = 8 * 1024

const NEWLINE = 10
const RETURN = 13

export interface LineEnd {
  /** The end of the text, without the line break. */
  readonly textEnd: number
  /** The start of the next line. */
  readonly next: number
}

/**
 * Returns the end of the line that begins at `from`: at a line break, or at {@link LINE_CAP} outside a UTF-8 sequence;
 * undefined while the line may still grow. The result does not depend on how the bytes were chunked.
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

/** Returns the text of a line; bytes that are not UTF-8 become U+FFFD. */
export const decodeLine = (data: Uint8Array): string => decoder.decode(data)
