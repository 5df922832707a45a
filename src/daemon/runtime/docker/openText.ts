/**
 * The open line of a container: text without a line end, which the log of the engine has only once the line ends. The
 * attached output has it at once. Pure.
 */
/** Bytes of an open line that are followed; the log has longer lines in parts, at every 16 KiB. */
const FOLLOWED = 64 * 1024

interface Open {
  /** The attached output since the last line end, and how much of it is in the console. */
  line: Buffer
  shown: number
  /** Bytes that are in the console, but not yet in the log. */
  ahead: Buffer
  /** The line ends that were attached minus those in the log: not 0 while one of the two connections is behind. */
  behind: number
}

const none: Buffer = Buffer.alloc(0)

const countLines = (bytes: Uint8Array): number => {
  let count = 0
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) count++
  return count
}

const endLine = (open: Open): void => {
  open.line = none
  open.shown = 0
}

/** Returns the length of the shorter one if both begin equally; undefined: they differ. */
const commonLength = (bytes: Buffer, known: Buffer) => {
  const count = Math.min(bytes.length, known.length)
  return bytes.subarray(0, count).equals(known.subarray(0, count)) ? count : undefined
}

/**
 * @param unlogged the bytes at the end of the console that the log may repeat
 * @param isFirst whether the first connection is made before the start of the container, so that it has all its lines
 */
export const makeOpenText = (unlogged: Buffer, isFirst: boolean) => {
  let isCounted = isFirst
  let connections = 0
  /** By stream: stdout, stderr. */
  const streams = new Map<number, Open>()
  let repeated = unlogged
  const of = (stream: number) => {
    const open = streams.get(stream) ?? { line: none, shown: 0, ahead: none, behind: 0 }
    streams.set(stream, open)
    return open
  }

  return {
    reset: (): void => {
      isCounted &&= connections++ === 0
      for (const open of streams.values()) endLine(open)
    },
    attached: (stream: number, bytes: Uint8Array): void => {
      const open = of(stream)
      const begin = bytes.lastIndexOf(10) + 1
      if (begin > 0) {
        endLine(open)
        open.behind += countLines(bytes)
      }
      if (open.line.length <= FOLLOWED) open.line = Buffer.concat([open.line, bytes.subarray(begin)])
    },
    isOpen: (): boolean => [...streams.values()].some(({ line }) => line.length > 0),
    /** Returns the text of open lines that the console does not have, and regards it as written. */
    take: (): ReadonlyArray<Buffer> =>
      [...streams.values()].flatMap((open) => {
        if (open.line.length > FOLLOWED || (isCounted && open.behind !== 0)) return []
        let end = open.line.length
        // The log has them as a part of the line break.
        while (end > open.shown && open.line[end - 1] === 13) end--
        const text = open.line.subarray(open.shown, end)
        open.ahead = Buffer.concat([open.ahead, text])
        open.shown = end
        return text.length === 0 ? [] : [text]
      }),
    /** Returns what the console does not have of an entry of the log; `isApart`: it does not continue the open line. */
    logged: (stream: number, payload: Buffer): { readonly bytes: Buffer; readonly isApart: boolean } => {
      const open = of(stream)
      open.behind -= countLines(payload)
      if (!payload.includes(10) && open.line.subarray(0, payload.length).equals(payload)) {
        // A part of a long line.
        open.line = open.line.subarray(payload.length)
        open.shown = Math.max(0, open.shown - payload.length)
      }
      const before = commonLength(payload, repeated)
      repeated = before === undefined ? none : repeated.subarray(before)
      const rest = payload.subarray(before ?? 0)
      const known = commonLength(rest, open.ahead)
      open.ahead = known === undefined ? none : open.ahead.subarray(known)
      return { bytes: rest.subarray(known ?? 0), isApart: before === undefined || known === undefined }
    },
    /** The number of bytes in the console that the log does not have. */
    ahead: (): number => [...streams.values()].reduce((sum, { ahead }) => sum + ahead.length, repeated.length)
  }
}
