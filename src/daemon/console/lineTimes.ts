/** The times of output (`console.times`), one mark a second at most. Positions survive rotations. */
import { appendFileSync, type Stats, statSync } from "node:fs"
import { Clock, Effect } from "effect"
import { type IoError, ioSync, lstat, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { consoleFiles, fileId, readOrigins } from "./consoleFiles.ts"

/** The output before `position`, from the mark before on, was written at `at` (ms since the epoch, 0 if unknown). */
interface Mark {
  readonly position: number
  readonly at: number
}

/** The time between two marks that are written, in ms. */
const INTERVAL = 1000
/** The longest time without an observation after which new output has a time, in ms. */
const PRECISION = 5000
/** Bytes of the file beyond which the older half of its marks is dropped. */
const TIMES_MAX = 1024 * 1024

/** The line break comes first: a mark whose end is missing after a crash does not damage the next one. */
const encode = (marks: ReadonlyArray<Mark>): string =>
  marks.map(({ at, position }) => `\n${position} ${at}`).join("")

const parse = (text: string): ReadonlyArray<Mark> =>
  [...text.matchAll(/^(\d{1,15}) (\d{13}|0)$/gm)].map(([, position, at]) => ({
    position: Number(position),
    at: Number(at)
  }))

const newerHalf = (all: ReadonlyArray<Mark>): ReadonlyArray<Mark> =>
  all.slice(Math.floor(all.length / 2)).map((mark, index) => (index === 0 ? { ...mark, at: 0 } : mark))

/** Observes a console, and knows the times of its lines. A failure costs times, never output. */
export const makeLineTimes = (folder: string) => {
  const { current, times: path } = consoleFiles(folder)
  let origin: { readonly file: string | undefined; readonly position: number } | undefined
  let seen: Mark | undefined
  let unwritten: Mark | undefined
  let writtenAt = 0

  const orWithout = Effect.catch((error: IoError) => {
    seen = undefined
    return Effect.logDebug(`the times of the console are not stored: ${error.message}`)
  })

  const marks = Effect.map(readText(path).pipe(orMissing("")), parse)

  const rewrite = (all: ReadonlyArray<Mark>) => {
    unwritten = undefined
    return writeAtomic(path, encode(all))
  }

  const append = Effect.fnUntraced(function* (mark: Mark) {
    const added = unwritten === undefined ? [mark] : [unwritten, mark]
    unwritten = undefined
    writtenAt = mark.at
    const size = yield* ioSync(`write ${path}`, () => {
      appendFileSync(path, encode(added), { mode: 0o600 })
      return statSync(path).size
    })
    if (size > TIMES_MAX) yield* rewrite(newerHalf(yield* marks))
  })

  const flush = Effect.suspend(() => {
    const mark = unwritten
    unwritten = undefined
    return mark === undefined ? Effect.void : append(mark)
  })

  // The clock may have been set.
  const isDue = (at: number) => Math.abs(at - writtenAt) >= INTERVAL

  const observe = Effect.fnUntraced(function* (stats: Stats | undefined) {
    const now = yield* Clock.currentTimeMillis
    if (origin === undefined || origin.file !== fileId(stats)) {
      origin = { file: fileId(stats), position: (yield* readOrigins(folder)).current }
    }
    const position = origin.position + (stats?.size ?? 0)
    const before = seen ?? (yield* marks).at(-1) ?? { position: 0, at: 0 }
    seen = { position, at: now }
    if (position === before.position) return yield* isDue(now) ? flush : Effect.void
    // Another program has emptied the console.
    if (position < before.position) return yield* rewrite([{ position, at: 0 }])
    const at = Math.floor(stats?.mtimeMs ?? now)
    if (at - before.at > PRECISION) return yield* append({ position, at: 0 })
    if (isDue(at)) return yield* append({ position, at })
    unwritten = { position, at }
  })

  return {
    /** Marks the output that was added since the last observation. @param stats of `console.log` */
    observe: (stats: Stats | undefined) => orWithout(observe(stats)),
    /** Writes the newest mark, which otherwise waits for the next observation. */
    flush: orWithout(flush),
    /** Drops the marks of output that a rotation has removed, or all if earlier output `isIncomplete`. */
    rotated: (isIncomplete: boolean) =>
      Effect.gen(function* () {
        const begins = yield* readOrigins(folder)
        yield* flush
        const kept = isIncomplete ? [] : (yield* marks).filter(({ position }) => position > begins.older)
        origin = undefined
        seen = { position: begins.current, at: yield* Clock.currentTimeMillis }
        yield* rewrite([...kept, { ...seen, at: isIncomplete ? 0 : seen.at }])
      }).pipe(orWithout),
    /** Returns the times of the output at these ascending positions, as RFC 3339, or null if unknown. */
    of: Effect.fnUntraced(function* (positions: ReadonlyArray<number>) {
      // The newest mark may still move: written, it gives a line the same time at each read.
      yield* lstat(current).pipe(Effect.flatMap(observe), Effect.andThen(flush), orWithout)
      const all = yield* marks
      let next = 0
      return positions.map((position) => {
        while ((all[next]?.position ?? Number.POSITIVE_INFINITY) <= position) next++
        const at = all[next]?.at ?? 0
        return at === 0 ? null : new Date(at).toISOString()
      })
    })
  }
}
