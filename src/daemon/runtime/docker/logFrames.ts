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

/**
 * Splits the log of a container with a terminal, which has no frames, into its entries: lines, or parts of long lines.
 * `end` returns an unterminated last entry.
 */
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

/**
 * A position in the log: after `count` of the entries since `since`, all of which are in the file up to `size`. Reading
 * continues with the entries since `since`, without the first `count`.
 */
export interface LogPosition {
  readonly since: number
  readonly count: number
  readonly size: number
}

/**
 * Tracks the position while entries are read. Entries come in log order, which may differ slightly from time order,
 * because stdout and stderr are written in parallel. A tolerance of one second is enough.
 */
export const logCursor = (from: LogPosition) => {
  let newest = from.since
  let toSkip = from.count
  let counts = new Map<number, number>()
  const isCounted = (second: number) => second >= newest - 1
  return {
    /** Returns the payload of a new entry; undefined: the entry was read before. */
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
