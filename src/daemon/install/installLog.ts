/** The logs of installations: that of a software, bounded and without host paths, and that of each server. */
import * as fs from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { type IoError, io, ioSync, orMissing, orWarn, toIoError } from "../disk/fsio.ts"

export type HiddenPath = readonly [path: string, shown: string]

const bytesOf = (text: string) => Buffer.from(text).toString("latin1")

/** Replaces paths in a stream; the first match counts. `filter` holds back the beginning of a path until `rest`. */
export const hidePaths = (hidden: ReadonlyArray<HiddenPath>) => {
  const paths = hidden.map(([path, shown]) => [bytesOf(path), shown] as const)
  const longest = Math.max(0, ...paths.map(([path]) => path.length))
  let held = ""
  const replaced = (text: string) =>
    Buffer.from(
      paths.reduce((left, [path, shown]) => left.replaceAll(path, shown), text),
      "latin1"
    )

  return {
    filter: (bytes: Uint8Array): Uint8Array => {
      const text = held + Buffer.from(bytes).toString("latin1")
      let length = Math.min(longest, text.length)
      while (length > 0 && !paths.some(([path]) => path.startsWith(text.slice(-length)))) length--
      held = length === 0 ? "" : text.slice(-length)
      return replaced(text.slice(0, text.length - length))
    },
    rest: (): Uint8Array => {
      const text = held
      held = ""
      return replaced(text)
    }
  }
}

/** Bytes kept of the beginning and of the end of the log. */
const HEAD = 512 * 1024
const TAIL = 512 * 1024

/**
 * Replaces a log file by one that keeps the beginning and the end of its text, without `hidden` paths: 1 MiB on disk, of
 * which 512 KiB are in memory until the end of the scope.
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
      fs.writeSync(fd, bytes)
    } catch (cause) {
      problem ??= toIoError("write the install log", cause)
    }
  }

  const fd = yield* Effect.acquireRelease(
    ioSync(`open ${path}`, () => {
      fs.rmSync(path, { force: true })
      return fs.openSync(path, "a", 0o600)
    }),
    (file) =>
      Effect.sync(() => {
        append(output.rest())
        if (omittedBytes > 0) writeTo(file, Buffer.from(`\n[${omittedBytes} bytes left out]\n`))
        for (const piece of tail) writeTo(file, piece)
        fs.closeSync(file)
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
  return {
    /** Appends bytes; never fails: `problem` has the error of the disk. */
    write,
    line: (text: string) => Effect.sync(() => write(Buffer.from(`${text}\n`))),
    problem: () => problem
  }
})

export type BoundedLog = Effect.Success<ReturnType<typeof openBoundedLog>>

export const installLogPath = (folder: string): string => join(folder, "install.log")

/** Links the log of the software's installation, which {@link appendInstallLog} copies before it writes. */
export const takeInstallLog = (
  shared: string,
  folder: string,
  { isCached = false, isComplete }: { readonly isCached?: boolean; readonly isComplete: boolean }
) =>
  ioSync("take the install log", () => {
    const own = installLogPath(folder)
    if (fs.existsSync(own)) fs.unlinkSync(own)
    const stats = fs.statSync(shared, { throwIfNoEntry: false })
    if (stats === undefined) return
    if (isCached && stats.size > 0) {
      const line = `[installed from the cache of ${stats.mtime.toISOString()}: the script did not run again]\n`
      return fs.writeFileSync(own, line, { mode: 0o600 })
    }
    // The installation may go on for other servers, whose log it is then.
    if (!isComplete) return fs.copyFileSync(shared, own)
    try {
      fs.linkSync(shared, own)
    } catch {
      fs.copyFileSync(shared, own) // on another disk, or too many names
    }
  }).pipe(orWarn)

export const appendInstallLog = (folder: string, text: string) =>
  ioSync("write the install log", () => {
    const own = installLogPath(folder)
    if ((fs.lstatSync(own, { throwIfNoEntry: false })?.nlink ?? 1) > 1) {
      fs.copyFileSync(own, `${own}.own`)
      fs.renameSync(`${own}.own`, own)
    }
    fs.appendFileSync(own, text, { mode: 0o600 })
  }).pipe(orWarn)

/** Adds warnings about a server to its install log and to the daemon's log, each once per installation. */
export const warnInInstallLog = Effect.fnUntraced(function* (
  folder: string,
  warnings: ReadonlyArray<string>
) {
  if (warnings.length === 0) return
  const known = yield* io("read the install log", () => readFile(installLogPath(folder), "utf8")).pipe(
    orMissing(""),
    Effect.catch((error) => Effect.as(Effect.logWarning(error.message), ""))
  )
  const fresh = [...new Set(warnings)].filter((warning) => !known.includes(`[WARN ${warning}]\n`))
  for (const warning of fresh) yield* Effect.logWarning(warning)
  yield* appendInstallLog(folder, fresh.map((warning) => `[WARN ${warning}]\n`).join(""))
})
