import { closeSync, ftruncateSync, openSync, writeSync } from "node:fs"
import { Effect } from "effect"
import { type IoError, ioSync, toIoError } from "../disk/fsio.ts"

/** Bytes kept of the beginning and of the end. */
const HEAD = 512 * 1024
const TAIL = 512 * 1024

/** A log file that keeps the beginning and the end of what is written to it; 1 MiB on disk, half of it in memory. */
export interface BoundedLog {
  /** Takes bytes as they come; never fails: a disk that refuses is told by `problem`. */
  readonly write: (bytes: Uint8Array) => void
  readonly line: (text: string) => Effect.Effect<void>
  /** What the disk said, where it refused. */
  readonly problem: () => IoError | undefined
}

/** Opens a log anew; the end of the scope adds the end of what was written. */
export const openBoundedLog = Effect.fnUntraced(function* (path: string) {
  let head = 0
  let tail: Array<Uint8Array> = []
  let tailBytes = 0
  let left = 0
  let problem: IoError | undefined

  const put = (fd: number, bytes: Uint8Array) => {
    try {
      writeSync(fd, bytes)
    } catch (cause) {
      problem ??= toIoError("write the install log", cause)
    }
  }

  const fd = yield* Effect.acquireRelease(
    ioSync(`open ${path}`, () => {
      const opened = openSync(path, "a", 0o600)
      ftruncateSync(opened, 0)
      return opened
    }),
    (file) =>
      Effect.sync(() => {
        if (left > 0) put(file, Buffer.from(`\n[${left} bytes left out]\n`))
        for (const piece of tail) put(file, piece)
        closeSync(file)
      })
  )

  const write = (bytes: Uint8Array) => {
    const room = Math.min(HEAD - head, bytes.length)
    if (room > 0) put(fd, bytes.subarray(0, room))
    head += room
    if (room === bytes.length) return
    // Copied: the piece may be a view of a much larger buffer.
    tail.push(Uint8Array.prototype.slice.call(bytes, room))
    tailBytes += bytes.length - room
    while (tailBytes > TAIL + (tail[0]?.length ?? 0)) {
      const gone = tail.shift()?.length ?? 0
      tailBytes -= gone
      left += gone
    }
    // Many small pieces become one, so that their number stays small too.
    if (tail.length > 1024) tail = [Buffer.concat(tail)]
  }

  const log: BoundedLog = {
    write,
    line: (text) => Effect.sync(() => write(Buffer.from(`${text}\n`))),
    problem: () => problem
  }
  return log
})
