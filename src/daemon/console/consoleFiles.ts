import {
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
import { Effect } from "effect"
import { ioSync, lstat, orMissing, readText, removeTree } from "../disk/fsio.ts"
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
