import {
  closeSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { ioSync } from "../disk/fsio.ts"
import { CHUNK, type CutRecord, consoleFiles, encodeCut, omissionLine } from "./consoleFiles.ts"

/** Bytes that a rotation keeps in `console.log.1`. */
const KEPT_BYTES = 4 * 1024 * 1024

interface Before {
  /** The record of the relay. */
  readonly relayed: CutRecord | undefined
  /** Bytes that are missing within the older file, and whose number a line of it states. */
  readonly gapInOlder: number
  /** The offset in the current file that is read next. */
  readonly offset: number
}

interface Rotated {
  readonly unread: Buffer
  /** Bytes after the unread ones that are not returned. */
  readonly lost: number
  readonly gapInOlder: number
}

/**
 * Copies the end of a console to its older file and empties it; returns the unread bytes. Runs synchronously, so that
 * little is appended between the copy and the truncation; of the output that a busy server adds meanwhile, one chunk is
 * kept. `console.cut` records the number of all lost bytes.
 */
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
