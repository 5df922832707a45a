import {
  appendFileSync,
  closeSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  type Stats,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { type IoError, ioSync, lstat, orMissing, readText, removeTree } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"

/** Bytes that a rotation keeps in `console.log.1`. */
const KEPT_BYTES = 4 * 1024 * 1024

interface Before {
  readonly relayed: CutRecord | undefined
  /** Bytes that are missing within the older file, and whose number a line of it states. */
  readonly gapInOlder: number
  readonly offset: number
}

interface Rotated {
  readonly unread: Buffer
  /** Bytes after the unread ones that are not returned. */
  readonly lost: number
  readonly gapInOlder: number
}

/** Moves a console's end to its older file and returns the unread bytes. Synchronous: little is added meanwhile. */
export const rotateConsole = (folder: string, { gapInOlder, offset, relayed }: Before) => {
  const { current, cut, older } = consoleFiles(folder)
  return ioSync(`rotate ${current}`, (): Rotated => {
    const file = openSync(current, "r+")
    const aside = openSync(`${older}.tmp`, "w", 0o600)
    try {
      const chunk = Buffer.allocUnsafe(CHUNK)
      let copied = 0
      let lineEnded = true
      const copy = (from: number, to: number, wholeLines: boolean) => {
        let skip = wholeLines
        for (let at = from; at < to; ) {
          const count = readSync(file, chunk, 0, Math.min(CHUNK, to - at), at)
          if (count === 0) return
          const begin = skip ? chunk.subarray(0, count).indexOf(10) + 1 : 0
          copied += writeSync(aside, chunk, begin, count - begin)
          lineEnded = chunk[count - 1] === 10
          at += count
          skip = false
        }
      }
      const end = fstatSync(file).size
      copy(Math.max(0, end - KEPT_BYTES), end, true)
      const before = (statSync(older, { throwIfNoEntry: false })?.size ?? 0) + gapInOlder
      const gone = (relayed?.lostBytes ?? 0) + before + end - copied
      const last = fstatSync(file).size
      const more = Math.max(end, last - CHUNK)
      const note = more > end ? `${lineEnded ? "" : "\n"}${omissionLine(more - end)}\n` : ""
      writeSync(aside, note)
      copy(more, last, false)
      const unread = Math.max(0, Math.min(last - offset, KEPT_BYTES))
      const rest = Buffer.allocUnsafe(unread)
      // The beginning counts: it may have the online signal.
      const got = readSync(file, rest, 0, unread, offset)
      renameSync(`${older}.tmp`, older)
      writeFileSync(`${cut}.new`, encodeCut(gone), { mode: 0o600 })
      renameSync(`${cut}.new`, cut)
      ftruncateSync(file, 0)
      const lost = Math.max(0, last - offset - got)
      return { unread: rest.subarray(0, got), lost, gapInOlder: more - end - note.length }
    } finally {
      closeSync(aside)
      closeSync(file)
    }
  })
}

/** Bytes of `console.log` beyond which this service rotates it. */
export const CONSOLE_MAX = 8 * 1024 * 1024

/** Bytes of one read. */
export const CHUNK = 256 * 1024

/** Bytes of `console.log` at which the relay rotates it while this service is down, within {@link CONSOLE_BOUND}. */
export const RELAY_MAX = 12 * 1024 * 1024

/** The largest size of `console.log`, and of `console.log.1`, in bytes, whether or not this service runs. */
export const CONSOLE_BOUND = 16 * 1024 * 1024

export const consoleFiles = (folder: string) => ({
  current: join(folder, "console.log"),
  older: join(folder, "console.log.1"),
  /** The {@link CutRecord}, written by the relay and by this service at each rotation. */
  cut: join(folder, "console.cut"),
  times: join(folder, "console.times")
})

export interface CutRecord {
  /** Where the run's output begins in the older file; `gone` if lost, `earlier` if the older file has none of it. */
  readonly begins: number | "gone" | "earlier"
  /** Bytes that were lost before the older file. */
  readonly lostBytes: number
}

const recordPattern = /^(\d{1,15}|gone|earlier) (\d{1,15})\n$/

const parseCutRecord = (text: string): CutRecord | undefined => {
  const [, begins, lostBytes] = recordPattern.exec(text) ?? []
  if (begins === undefined) return undefined
  return {
    begins: begins === "gone" || begins === "earlier" ? begins : Number(begins),
    lostBytes: Number(lostBytes)
  }
}

/** Returns the record, if output is lost. */
export const readCutRecord = (folder: string) =>
  readText(consoleFiles(folder).cut).pipe(Effect.map(parseCutRecord), orMissing(undefined))

/** Returns the positions at which the two files begin in all output. A rotation changes no position. */
export const readOrigins = Effect.fnUntraced(function* (folder: string) {
  const lost = (yield* readCutRecord(folder))?.lostBytes ?? 0
  return { older: lost, current: lost + ((yield* lstat(consoleFiles(folder).older))?.size ?? 0) }
})

const encodeCut = (lostBytes: number): string => `earlier ${lostBytes}\n`

/** Resets the record for a run that is about to begin, which has lost no output. */
export const resetCutRecord = Effect.fnUntraced(function* (folder: string) {
  const { cut } = consoleFiles(folder)
  const known = yield* readCutRecord(folder)
  if (known === undefined || known.lostBytes === 0) return yield* removeTree(cut)
  yield* writeAtomic(cut, encodeCut(known.lostBytes))
})

/** Returns the identity of a file. The inode is not enough: a new file may get the inode of a removed file. */
export const fileId = (stats: Stats | undefined): string | undefined =>
  stats === undefined ? undefined : `${stats.ino} ${stats.birthtimeMs}`

const endsOpen = (file: number): boolean => {
  const last = Buffer.alloc(1)
  const { size } = fstatSync(file)
  return size > 0 && readSync(file, last, 0, 1, size - 1) === 1 && last[0] !== 10
}

/** Bytes for a console; `isApart`: they begin a line. */
export interface Piece {
  readonly bytes: Uint8Array
  readonly isApart: boolean
}

/** Appends to a console, and returns its size. */
export const appendPieces = (path: string, pieces: ReadonlyArray<Piece>): number => {
  const file = openSync(path, "a+", 0o600)
  try {
    for (const { bytes, isApart } of pieces) {
      if (isApart && endsOpen(file)) writeSync(file, "\n")
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
    }
    return fstatSync(file).size
  } finally {
    closeSync(file)
  }
}

/** Appends a line of this service to a console, after a line that the server left open. */
export const appendConsoleLine = (folder: string, text: string) => {
  const pieces = [{ bytes: Buffer.from(`[${text}]\n`), isApart: true }]
  return ioSync("write console.log", () => void appendPieces(consoleFiles(folder).current, pieces))
}

export const omissionLine = (bytes: number): string => `[${bytes} bytes of output were left out here]`

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
