/** The engine's stream of log entries (Engine API, "Stream format"), and where in it reading stopped. Pure. */

export interface LogEntry {
  /** Second of its time, since the epoch. */
  readonly second: number
  readonly payload: Buffer
}

const HEADER = 8

/** Cuts what comes in into the payloads of its frames. */
export const frameReader = () => {
  let pending: Buffer = Buffer.alloc(0)
  return (chunk: Buffer): ReadonlyArray<Buffer> => {
    const data = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
    const frames: Array<Buffer> = []
    let at = 0
    while (data.length - at >= HEADER) {
      const end = at + HEADER + data.readUInt32BE(at + 4)
      if (end > data.length) break
      frames.push(data.subarray(at + HEADER, end))
      at = end
    }
    pending = Buffer.from(data.subarray(at))
    return frames
  }
}

/** Longest time in front of an entry: `2026-01-02T03:04:05.123456789+00:00`. */
const LONGEST_TIME = 40

/** An entry of a stream with times. Text without one belongs to the entry before: second 0. */
export const logEntry = (frame: Buffer): LogEntry => {
  const blank = frame.subarray(0, LONGEST_TIME).indexOf(32)
  const time = blank < 0 ? Number.NaN : Date.parse(frame.subarray(0, blank).toString("latin1"))
  if (Number.isNaN(time)) return { second: 0, payload: frame }
  return { second: Math.floor(time / 1000), payload: frame.subarray(blank + 1) }
}

/**
 * Where reading stopped: after `count` of the entries that are not older than `since`, with everything of them in
 * the file up to `size`. Asking for entries since `since` and leaving so many out goes on exactly there.
 */
export interface LogPlace {
  readonly since: number
  readonly count: number
  readonly size: number
}

/**
 * Goes through the entries that follow a place, and says where it is. Entries come in the order of the log, which
 * is not quite that of their times: output and errors are written side by side. A second is more than enough.
 */
export const logCursor = (from: LogPlace) => {
  let newest = from.since
  let toSkip = from.count
  let counts = new Map<number, number>()
  const isKept = (second: number) => second >= newest - 1
  return {
    /** The payload where the entry is new. */
    take: (entry: LogEntry): Buffer | undefined => {
      const second = entry.second === 0 ? newest : entry.second
      if (second > newest) {
        newest = second
        counts = new Map([...counts].filter(([known]) => isKept(known)))
      }
      if (isKept(second)) counts.set(second, (counts.get(second) ?? 0) + 1)
      if (toSkip === 0) return entry.payload
      toSkip--
      return undefined
    },
    place: (size: number): LogPlace => ({
      since: Math.max(0, newest - 1),
      count: [...counts.values()].reduce((sum, count) => sum + count, 0),
      size
    })
  }
}
