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
import { Deferred, Effect, PubSub, type Scope, Semaphore, Stream } from "effect"
import type { LinesRequest } from "../../api/Daemon.ts"
import type { Page } from "../../domain/Pagination.ts"
import { type IoError, io, ioSync, lstat, openFile, orMissing } from "../disk/fsio.ts"
import {
  CONSOLE_MOST,
  consoleFiles,
  cutOf,
  endRelayCut,
  leftOut,
  type RelayCut,
  readRelayCut
} from "./consoleFiles.ts"
import { makeLineIndex, pageBounds } from "./LineIndex.ts"
import { decodeLine, LINE_CAP, lineEnd, stripAnsi } from "./lines.ts"

/** Bytes that a cut keeps, in `console.log.1`. */
const KEPT = 4 * 1024 * 1024
/** Unread bytes past which a follower skips what it can never catch up with. */
const BACKLOG = 2 * 1024 * 1024
const CHUNK = 256 * 1024
/** Lines that wait for a subscriber; a slow one loses the oldest. */
const WAITING_LINES = 1024

/** Gets lines as they come; they are only decoded while somebody wants them. */
export interface LineListener {
  readonly wanted: () => boolean
  readonly onLines: (lines: ReadonlyArray<string>) => Effect.Effect<void>
}

/**
 * The console of one server. What it prints is appended to `console.log` without this service, so the file is the
 * truth; here it is followed, cut and read. Nobody cuts it while this service is away: the relay of a plain process
 * then begins a new file, and what was the file is the older one (see consoleRelay.ts).
 */
export interface ConsoleLog {
  /** Before a run: ends a line that an earlier run left open. Answers where the run's output will begin. */
  readonly begin: Effect.Effect<number, IoError>
  /**
   * Reads on with `step` and `finish` from where the output of a run began, as `begin` said it. `END`: from the end.
   * Where the file has been cut since, from the beginning of what is left of it; answers whether that was done unseen.
   */
  seek(offset: number): Effect.Effect<boolean, IoError>
  /** Hands out some of what is new; answers whether there is more. */
  step(listener: LineListener): Effect.Effect<boolean, IoError>
  /** Hands out all that is left, the line without an end included. */
  finish(listener: LineListener): Effect.Effect<void, IoError>
  /** Page 1 is the newest (decisions, `GET .../logs`), without ANSI sequences. */
  page(request: LinesRequest): Effect.Effect<Page<string>, IoError>
  /** Lines from now on. */
  readonly subscribe: Effect.Effect<Stream.Stream<string>, never, Scope.Scope>
  /** Ends all subscriptions. */
  readonly end: Effect.Effect<void>
}

/** The end of a console, whatever its size; see {@link ConsoleLog}. */
export const END = Number.MAX_SAFE_INTEGER

/** A place in one of the files. */
interface Place {
  /** Undefined: of the file that is there. */
  readonly inode: number | undefined
  readonly offset: number
}

/** Opens the console of the server whose folder this is. */
export const openConsoleLog = Effect.fnUntraced(function* (folder: string) {
  const { current: path, cut: cutRecord, older } = consoleFiles(folder)
  const lock = yield* Semaphore.make(1)
  const hub = yield* PubSub.sliding<string>(WAITING_LINES)
  const indexes = { older: makeLineIndex(older), current: makeLineIndex(path) }
  const ended = yield* Deferred.make<void>()
  let subscribers = 0
  /** Where reading goes on. */
  let at: Place = { inode: undefined, offset: 0 }
  /** Nothing was read since the last `seek`. */
  let fresh = true
  let pending: Buffer = Buffer.alloc(0)
  /** Bytes that are missing within the older file, where a line says so. */
  let gapInOlder = 0

  const hand = Effect.fnUntraced(function* (lines: ReadonlyArray<string>, listener: LineListener) {
    if (lines.length === 0) return
    if (subscribers > 0) yield* PubSub.publishAll(hub, lines)
    yield* listener.onLines(lines)
  })

  const feed = (chunk: Buffer, listener: LineListener) => {
    const data = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
    const wanted = subscribers > 0 || listener.wanted()
    const lines: Array<string> = []
    // Unwanted lines are not even looked for, but for where the last one begins.
    let from = wanted ? 0 : Math.max(data.lastIndexOf(10) + 1, 0)
    if (!wanted && data.length - from > LINE_CAP) from = data.length
    for (let end = lineEnd(data, from); end !== undefined; end = lineEnd(data, from)) {
      lines.push(decodeLine(data.subarray(from, end.textEnd)))
      from = end.next
    }
    pending = Buffer.from(data.subarray(from))
    return hand(lines, listener)
  }

  const skipTo = (offset: number) => {
    at = { ...at, offset }
    pending = Buffer.alloc(0)
  }

  /** The file in which reading goes on. The relay may have begun a new one: first the rest of the one before. */
  const whereNow = Effect.gen(function* () {
    const current = yield* lstat(path)
    if (at.inode !== undefined && current?.ino !== at.inode) {
      const before = yield* lstat(older)
      if (before?.ino === at.inode && before.size > at.offset) {
        return { file: older, size: before.size, is_older: true }
      }
      if (before?.ino !== at.inode) pending = Buffer.alloc(0)
      at = { inode: current?.ino, offset: 0 }
    }
    at = { ...at, inode: current?.ino }
    return { file: path, size: current?.size ?? 0, is_older: false }
  })

  const readChunk = Effect.fnUntraced(function* (from: string, listener: LineListener) {
    const file = yield* openFile(from, "r")
    const chunk = Buffer.allocUnsafe(CHUNK)
    const { bytesRead } = yield* io(`read ${from}`, () => file.read(chunk, 0, CHUNK, at.offset))
    at = { ...at, offset: at.offset + bytesRead }
    fresh = false
    if (bytesRead > 0) yield* feed(chunk.subarray(0, bytesRead), listener)
    return bytesRead === CHUNK
  }, Effect.scoped)

  /**
   * Copies the end aside and empties the file; answers what has not been handed out yet. Nothing may come between
   * the last look and the cut, so it does not wait; what a flood adds meanwhile is only followed so far. How much has
   * gone by then, with this cut and all before it, stays in `console.cut`.
   */
  const cut = (relayed: RelayCut | undefined) =>
    ioSync(`cut ${path}`, () => {
      const file = openSync(path, "r+")
      const aside = openSync(`${older}.tmp`, "w", 0o600)
      try {
        const chunk = Buffer.allocUnsafe(CHUNK)
        let copied = 0
        let lineEnded = true
        const copy = (from: number, to: number, wholeLines: boolean) => {
          let skip = wholeLines
          for (let place = from; place < to; ) {
            const count = readSync(file, chunk, 0, Math.min(CHUNK, to - place), place)
            if (count === 0) return
            const begin = skip ? chunk.subarray(0, count).indexOf(10) + 1 : 0
            copied += writeSync(aside, chunk, begin, count - begin)
            lineEnded = chunk[count - 1] === 10
            place += count
            skip = false
          }
        }
        const end = fstatSync(file).size
        copy(Math.max(0, end - KEPT), end, true)
        const before = (statSync(older, { throwIfNoEntry: false })?.size ?? 0) + gapInOlder
        const gone = (relayed?.left_out ?? 0) + before + end - copied
        const last = fstatSync(file).size
        const more = Math.max(end, last - CHUNK)
        const note = more > end ? `${lineEnded ? "" : "\n"}${leftOut(more - end)}\n` : ""
        writeSync(aside, note)
        gapInOlder = more - end - note.length
        copy(more, last, false)
        const unread = Math.max(0, Math.min(last - at.offset, CHUNK))
        const rest = Buffer.allocUnsafe(unread)
        const got = readSync(file, rest, 0, unread, last - unread)
        renameSync(`${older}.tmp`, older)
        writeFileSync(`${cutRecord}.new`, cutOf(gone), { mode: 0o600 })
        renameSync(`${cutRecord}.new`, cutRecord)
        ftruncateSync(file, 0)
        return rest.subarray(0, got)
      } finally {
        closeSync(aside)
        closeSync(file)
      }
    })

  const rotate = Effect.fnUntraced(function* (listener: LineListener) {
    const rest = yield* cut(yield* readRelayCut(folder))
    at = { ...at, offset: 0 }
    yield* feed(rest, listener)
    yield* indexes.older.reset
    yield* indexes.current.reset
  })

  const step = Effect.fnUntraced(function* (listener: LineListener) {
    const { file, is_older, size } = yield* whereNow
    if (size < at.offset) skipTo(0) // cut by hand
    // What a run begins with is never skipped: its online signal may be there.
    if (!fresh && (is_older || size > CONSOLE_MOST) && size - at.offset > BACKLOG) {
      const skipped = size - at.offset - CHUNK
      skipTo(size - CHUNK)
      yield* hand([`[${skipped} bytes of output were skipped here]`], listener)
    }
    if (is_older) {
      yield* readChunk(file, listener)
      return true
    }
    if (size > CONSOLE_MOST && size - at.offset <= CHUNK) {
      yield* rotate(listener)
      return false
    }
    return size === at.offset ? false : yield* readChunk(file, listener)
  })

  const finish = Effect.fnUntraced(function* (listener: LineListener) {
    while (yield* step(listener)) yield* Effect.yieldNow
    if (pending.length === 0) return
    const line = decodeLine(pending)
    pending = Buffer.alloc(0)
    yield* hand([line], listener)
  })

  const begin = Effect.gen(function* () {
    yield* endRelayCut(folder)
    const file = yield* openFile(path, "a+", 0o600)
    const end = yield* io(`read ${path}`, () => file.stat())
    if (end.size === 0) return 0
    const last = Buffer.alloc(1)
    yield* io(`read ${path}`, () => file.read(last, 0, 1, end.size - 1))
    if (last[0] === 10) return end.size
    yield* io(`write ${path}`, () => file.appendFile("\n"))
    return end.size + 1
  }).pipe(Effect.scoped)

  /** What stands before the first line that is left. */
  const gap = Effect.map(readRelayCut(folder), (cut) =>
    cut === undefined || cut.left_out === 0 ? [] : [leftOut(cut.left_out)]
  )

  const page = Effect.fnUntraced(function* (request: LinesRequest) {
    const first = yield* gap
    const before = first.length + (yield* indexes.older.total)
    const total = before + (yield* indexes.current.total)
    const { from, to } = pageBounds(total, request, true)
    const inOlder = (place: number) => Math.max(0, Math.min(place, before) - first.length)
    const old = from < before ? yield* indexes.older.read(inOlder(from), inOlder(to)) : []
    const fresh = to > before ? yield* indexes.current.read(Math.max(0, from - before), to - before) : []
    return { items: [...first.slice(from, to), ...old, ...fresh].map(stripAnsi), total }
  })

  const seek = Effect.fnUntraced(function* (offset: number) {
    const known = offset === END ? undefined : yield* readRelayCut(folder)
    const begins = known?.begins ?? "earlier"
    const stats = yield* lstat(begins === "earlier" ? path : older)
    const size = stats?.size ?? 0
    const wanted = begins === "gone" ? 0 : begins === "earlier" ? offset : begins
    fresh = true
    pending = Buffer.alloc(0)
    at = { inode: stats?.ino, offset: offset === END ? size : wanted > size ? 0 : wanted }
    return begins === "gone"
  })

  const subscribe = Effect.gen(function* () {
    yield* Effect.acquireRelease(
      Effect.sync(() => subscribers++),
      () => Effect.sync(() => subscribers--)
    )
    return Stream.fromSubscription(yield* PubSub.subscribe(hub)).pipe(
      Stream.interruptWhen(Deferred.await(ended))
    )
  })

  const log: ConsoleLog = {
    begin: lock.withPermit(begin),
    seek: (offset) => lock.withPermit(seek(offset)),
    step: (listener) => lock.withPermit(step(listener).pipe(orMissing(false))),
    finish: (listener) => lock.withPermit(finish(listener).pipe(orMissing(undefined))),
    page: (request) => lock.withPermit(page(request)),
    subscribe,
    end: Effect.asVoid(Deferred.succeed(ended, undefined))
  }
  return log
})
