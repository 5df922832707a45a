/**
 * The times of a console's stored output, in the file `console.times`: marks, at most about one a second. The positions
 * of marks count all output since the server exists, so that a rotation does not change them (see consoleFiles.ts).
 */
import { appendFileSync, readFileSync, type Stats, statSync } from "node:fs"
import { Clock, Effect } from "effect"
import { type IoError, io, lstat, openFile, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { consoleFiles, fileId, parseCutRecord, readOrigins } from "./consoleFiles.ts"
import { LINE_CAP } from "./lines.ts"

/** The output before `position`, from the mark before on, was written at `at`, ms since the epoch; undefined: unknown. */
interface Mark {
  readonly position: number
  readonly at: number | undefined
}

/** The time between two marks that are written, in ms. */
const INTERVAL = 1000
/** The most by which a time may be late, in ms. Output of a longer time that was not observed has no time. */
const PRECISION = 5000
/** Bytes of the file beyond which the older half of its marks is dropped. */
const TIMES_MAX = 1024 * 1024
/** Bytes at the end of the file that have its newest marks. */
const TAIL = 256

/** The line break comes first: a mark whose end is missing after a crash does not damage the next one. */
const encode = (marks: ReadonlyArray<Mark>): string =>
  marks.map(({ at, position }) => `\n${position} ${at ?? "-"}`).join("")

const pattern = /^(\d{1,15}) (\d{13}|-)$/

/** Returns the marks by position; of marks with equal positions, the one that was written first comes first. */
const parse = (text: string): ReadonlyArray<Mark> =>
  text
    .split("\n")
    .flatMap((line): ReadonlyArray<Mark> => {
      const [, position, at] = pattern.exec(line) ?? []
      return position === undefined
        ? []
        : [{ position: Number(position), at: at === "-" ? undefined : Number(at) }]
    })
    .sort((a, b) => a.position - b.position)

/** Returns the offset of the last line of a file, which is not searched before `from`. */
const lastLine = Effect.fnUntraced(function* (path: string, from: number, size: number) {
  const begin = Math.max(from, size - LINE_CAP)
  const file = yield* openFile(path, "r")
  const data = Buffer.alloc(Math.max(0, size - begin))
  const { bytesRead } = yield* io(`read ${path}`, () => file.read(data, 0, data.length, begin))
  return begin + data.subarray(0, Math.max(0, bytesRead - 1)).lastIndexOf(10) + 1
}, Effect.scoped)

/** Observes a console, and knows the times of its output. A failure costs times, never output. */
export const makeConsoleTimes = (folder: string) => {
  const { current, times: path } = consoleFiles(folder)
  /** The position at which `console.log` begins. */
  let origin: { readonly file: string | undefined; readonly position: number } | undefined
  /** The end of the output at the last observation; undefined: there was none by this process. */
  let seen: { readonly position: number; readonly at: number } | undefined
  let unwritten: Mark | undefined
  let writtenAt = 0

  const withoutTimes = (error: IoError) =>
    Effect.suspend(() => {
      seen = undefined
      return Effect.logDebug(`the times of the console are not stored: ${error.message}`)
    })

  const marks = readText(path).pipe(
    orMissing(""),
    Effect.map((text) => [...parse(text), ...(unwritten === undefined ? [] : [unwritten])])
  )

  const rewrite = Effect.fnUntraced(function* (change: (all: ReadonlyArray<Mark>) => ReadonlyArray<Mark>) {
    const changed = change(yield* marks)
    unwritten = undefined
    yield* writeAtomic(path, encode(changed))
  })

  const newerHalf = (all: ReadonlyArray<Mark>): ReadonlyArray<Mark> => {
    const [first, ...rest] = all.slice(Math.floor(all.length / 2))
    return first === undefined ? [] : [{ position: first.position, at: undefined }, ...rest]
  }

  const append = Effect.fnUntraced(function* (added: ReadonlyArray<Mark>) {
    unwritten = undefined
    writtenAt = added.at(-1)?.at ?? 0
    const file = yield* openFile(path, "a", 0o600)
    yield* io(`write ${path}`, () => file.appendFile(encode(added)))
    const { size } = yield* io(`stat ${path}`, () => file.stat())
    if (size > TIMES_MAX) yield* rewrite(newerHalf)
  }, Effect.scoped)

  const newest = Effect.gen(function* () {
    const file = yield* openFile(path, "r")
    const { size } = yield* io(`stat ${path}`, () => file.stat())
    const tail = Buffer.alloc(Math.min(size, TAIL))
    yield* io(`read ${path}`, () => file.read(tail, 0, tail.length, size - tail.length))
    const { at = 0, position = 0 } = parse(tail.toString("latin1")).at(-1) ?? {}
    return { position, at }
  }).pipe(Effect.scoped, orMissing({ position: 0, at: 0 }))

  // The clock may have been set.
  const isDue = (at: number) => Math.abs(at - writtenAt) >= INTERVAL

  const flush = Effect.suspend(() => (unwritten === undefined ? Effect.void : append([unwritten])))

  const observe = Effect.fnUntraced(function* (stats: Stats | undefined) {
    const now = yield* Clock.currentTimeMillis
    if (origin === undefined || origin.file !== fileId(stats)) {
      origin = { file: fileId(stats), position: (yield* readOrigins(folder)).current }
    }
    const begin = origin.position
    const position = begin + (stats?.size ?? 0)
    const before = seen ?? (yield* newest)
    seen = { position, at: now }
    if (position === before.position) return yield* isDue(now) ? flush : Effect.void
    if (position < before.position) {
      const left = (mark: Mark) => mark.position <= position
      return yield* rewrite((all) => [...all.filter(left), { position, at: undefined }])
    }
    const earlier = unwritten === undefined ? [] : [unwritten]
    const mark = { position, at: Math.floor(stats?.mtimeMs ?? now) }
    if (mark.at - before.at > PRECISION) {
      const last = stats === undefined ? 0 : yield* lastLine(current, before.position - begin, stats.size)
      return yield* append([...earlier, { position: begin + last, at: undefined }, mark])
    }
    if (isDue(mark.at)) return yield* append([...earlier, mark])
    unwritten = mark
  })

  return {
    /** Marks the output that was added since the last observation. @param stats of `console.log` */
    observe: (stats: Stats | undefined) => Effect.catch(observe(stats), withoutTimes),
    /** Writes the newest mark, which otherwise waits for the next observation. */
    flush: Effect.catch(flush, withoutTimes),
    /** Adapts the marks to a rotation by this service. @param shift the change of all positions, in bytes */
    rotated: (shift: number) =>
      Effect.gen(function* () {
        const begins = yield* readOrigins(folder)
        const at = yield* Clock.currentTimeMillis
        origin = undefined
        seen = { position: begins.current, at }
        yield* rewrite((all) => [
          ...all
            .map((mark) => ({ ...mark, position: mark.position + shift }))
            .filter(({ position }) => position > begins.older),
          { position: begins.current, at }
        ])
      }).pipe(Effect.catch(withoutTimes)),
    /** Returns the times of the output at these positions, which ascend, as RFC 3339; null: unknown. */
    of: Effect.fnUntraced(function* (positions: ReadonlyArray<number>) {
      // The newest mark may still move: written, it gives a line the same time at each read.
      yield* lstat(current).pipe(Effect.flatMap(observe), Effect.andThen(flush), Effect.catch(withoutTimes))
      const all = yield* marks
      let next = 0
      return positions.map((position) => {
        while ((all[next]?.position ?? Number.POSITIVE_INFINITY) <= position) next++
        const at = all[next]?.at
        return at === undefined ? null : new Date(at).toISOString()
      })
    })
  }
}

const orElse = <A>(read: () => A, fallback: A): A => {
  try {
    return read()
  } catch {
    return fallback // missing
  }
}

/**
 * Marks output that was written long before it came into `console.log`: that of a container while this service was
 * down. Synchronous, so that the output is not observed without its marks.
 *
 * @param size   of `console.log`, which ends with the pieces
 * @param pieces their bytes, and times in ms since the epoch; 0: that of the piece before
 */
export const markLate = (
  folder: string,
  size: number,
  pieces: ReadonlyArray<{ readonly bytes: number; readonly at: number }>
): void => {
  if (pieces.every(({ at }) => at === 0 || at > Date.now() - PRECISION)) return
  const files = consoleFiles(folder)
  const lost = parseCutRecord(orElse(() => readFileSync(files.cut, "utf8"), ""))?.lostBytes ?? 0
  const begin = lost + orElse(() => statSync(files.older).size, 0)
  let position = begin + size - pieces.reduce((sum, { bytes }) => sum + bytes, 0)
  let now = 0
  // One mark for each second.
  const marks = new Map<number, Mark>()
  for (const { at, bytes } of pieces) {
    now = Math.max(now, at)
    position += bytes
    marks.set(Math.floor(now / INTERVAL), { position, at: now === 0 ? undefined : now })
  }
  appendFileSync(files.times, encode([...marks.values()]), { mode: 0o600 })
}
