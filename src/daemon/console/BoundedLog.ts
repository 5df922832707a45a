import { closeSync, openSync, rmSync, writeSync } from "node:fs"
import { Effect } from "effect"
import { type IoError, ioSync, toIoError } from "../disk/fsio.ts"
import { type HiddenPath, hidePaths } from "./hidePaths.ts"

/** Bytes kept of the beginning and of the end of the log. */
const HEAD = 512 * 1024
const TAIL = 512 * 1024

/** A log file that keeps the beginning and the end of its text: 1 MiB on disk, of which 512 KiB are in memory. */
export interface BoundedLog {
  /** Appends bytes; never fails: `problem` has the error of the disk. */
  readonly write: (bytes: Uint8Array) => void
  readonly line: (text: string) => Effect.Effect<void>
  /** The first error of the disk; undefined: none. */
  readonly problem: () => IoError | undefined
}

/**
 * Makes a new log, in the place of another. The end of the scope appends the tail.
 *
 * @param hidden the paths that the log does not show
 */
export const openBoundedLog = Effect.fnUntraced(function* (
  path: string,
  hidden: ReadonlyArray<HiddenPath> = []
) {
  const output = hidePaths(hidden)
  let head = 0
  let tail: Array<Uint8Array> = []
  let tailBytes = 0
  let omittedBytes = 0
  let problem: IoError | undefined

  const writeTo = (fd: number, bytes: Uint8Array) => {
    try {
      writeSync(fd, bytes)
    } catch (cause) {
      problem ??= toIoError("write the install log", cause)
    }
  }

  const fd = yield* Effect.acquireRelease(
    ioSync(`open ${path}`, () => {
      rmSync(path, { force: true })
      return openSync(path, "a", 0o600)
    }),
    (file) =>
      Effect.sync(() => {
        append(output.rest())
        if (omittedBytes > 0) writeTo(file, Buffer.from(`\n[${omittedBytes} bytes left out]\n`))
        for (const piece of tail) writeTo(file, piece)
        closeSync(file)
      })
  )

  const append = (bytes: Uint8Array) => {
    const room = Math.min(HEAD - head, bytes.length)
    if (room > 0) writeTo(fd, bytes.subarray(0, room))
    head += room
    if (room === bytes.length) return
    // The copy releases the buffer of which the piece may be a view.
    tail.push(Uint8Array.prototype.slice.call(bytes, room))
    tailBytes += bytes.length - room
    while (tailBytes > TAIL + (tail[0]?.length ?? 0)) {
      const dropped = tail.shift()?.length ?? 0
      tailBytes -= dropped
      omittedBytes += dropped
    }
    // Bounds the number of pieces as well as their bytes.
    if (tail.length > 1024) tail = [Buffer.concat(tail)]
  }

  const write = (bytes: Uint8Array) => append(output.filter(bytes))
  const log: BoundedLog = {
    write,
    line: (text) => Effect.sync(() => write(Buffer.from(`${text}\n`))),
    problem: () => problem
  }
  return log
})
