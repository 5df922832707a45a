/** The engine's stream of log entries (Engine API, "Stream format"), and positions in it. Pure. */

export interface LogEntry {
  /** Its time, in ms since the epoch; 0: unknown. */
  readonly at: number
  readonly payload: Buffer
}

const HEADER = 8

/** Output of a container. `stream`: 1 is stdout, 2 is stderr, 0 is a terminal. */
export interface Frame {
  readonly stream: number
  readonly payload: Buffer
}

export const frameReader = () => {
  let pending: Buffer = Buffer.alloc(0)
  return (chunk: Buffer): ReadonlyArray<Frame> => {
    const data = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
    const frames: Array<Frame> = []
    let at = 0
    while (data.length - at >= HEADER) {
      const end = at + HEADER + data.readUInt32BE(at + 4)
      if (end > data.length) break
      frames.push({ stream: data[at] ?? 0, payload: data.subarray(at + HEADER, end) })
      at = end
    }
    pending = Buffer.from(data.subarray(at))
    return frames
  }
}

/** The length of a timestamp in UTC with the blank after it: `2026-01-02T03:04:05.123456789Z `. */
const TIMESTAMP = 31
/** The longest part of a line in an entry; the engine splits longer lines. */
const LINE_PART = 16_384

/** Splits the frameless log of a terminal into lines or parts. `end` returns an unterminated last one. */
export const terminalReader = () => {
  let pending: Buffer = Buffer.alloc(0)
  const read = (chunk: Buffer): ReadonlyArray<Frame> => {
    const data = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
    const entries: Array<Frame> = []
    let at = 0
    while (true) {
      const part = at + TIMESTAMP + LINE_PART
      const newline = data.subarray(at, part).indexOf(10)
      if (newline < 0 && data.length < part) break
      const end = newline < 0 ? part : at + newline + 1
      entries.push({ stream: 0, payload: data.subarray(at, end) })
      at = end
    }
    pending = Buffer.from(data.subarray(at))
    return entries
  }
  const end = (): ReadonlyArray<Frame> => (pending.length === 0 ? [] : [{ stream: 0, payload: pending }])
  return { read, end }
}

/** Returns output of a terminal with `\n` as its line break. */
export const withoutReturns = (text: Buffer): Buffer =>
  text.includes("\r\n") ? Buffer.from(text.toString("latin1").replaceAll(/\r+\n/g, "\n"), "latin1") : text

/** The longest timestamp of an entry: `2026-01-02T03:04:05.123456789+00:00`. */
const MAX_TIMESTAMP = 40

/** Parses an entry with a timestamp. Text without one continues the previous entry. */
export const logEntry = (frame: Buffer): LogEntry => {
  const blank = frame.subarray(0, MAX_TIMESTAMP).indexOf(32)
  const time = blank < 0 ? Number.NaN : Date.parse(frame.subarray(0, blank).toString("latin1"))
  if (Number.isNaN(time)) return { at: 0, payload: frame }
  return { at: time, payload: frame.subarray(blank + 1) }
}

/** A position in the log, after `count` of the entries since `since`, all of which are in the file up to `size`. */
export interface LogPosition {
  readonly since: number
  readonly count: number
  readonly size: number
}

/** Tracks the position in log order, within a second of time order: stdout and stderr are parallel. */
export const logCursor = (from: LogPosition) => {
  let newest = from.since
  let toSkip = from.count
  let counts = new Map<number, number>()
  const isCounted = (second: number) => second >= newest - 1
  return {
    /** Returns the payload of an entry, unless it was read before. */
    take: (entry: LogEntry): Buffer | undefined => {
      const second = entry.at === 0 ? newest : Math.floor(entry.at / 1000)
      if (second > newest) {
        newest = second
        counts = new Map([...counts].filter(([known]) => isCounted(known)))
      }
      if (isCounted(second)) counts.set(second, (counts.get(second) ?? 0) + 1)
      if (toSkip === 0) return entry.payload
      toSkip--
      return undefined
    },
    position: (size: number): LogPosition => ({
      since: Math.max(0, newest - 1),
      count: [...counts.values()].reduce((sum, count) => sum + count, 0),
      size
    })
  }
}

/** The open line of a container, which the log lacks until it ends and the attached output has at once. Pure. */
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

/** Returns the length of the shorter one if both begin equally. */
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
    /** The bytes in the console that the log does not have. */
    ahead: (): number => [...streams.values()].reduce((sum, { ahead }) => sum + ahead.length, repeated.length)
  }
}
