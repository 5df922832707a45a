/**
 * The consoles of servers: files, lines, times and the online signal. Imports `disk` only. Read first: this file,
 * `consoleFiles.ts` (the files and their bounds), `lines.ts`.
 */
import { Deferred, Effect, Queue, Semaphore, Stream } from "effect"
import { stripAnsi } from "../../contract/domain/ConsoleLine.ts"
import type { ConsolePage } from "../../contract/domain/Pagination.ts"
import type { LinesRequest } from "../../contract/nodeApi/Daemon.ts"
import { pause } from "../../shared/work/slices.ts"
import { type IoError, io, lstat, openFile, orMissing } from "../disk/fsio.ts"

import {
  CHUNK,
  CONSOLE_MAX,
  consoleFiles,
  fileId,
  makeLineTimes,
  omissionLine,
  readCutRecord,
  readOrigins,
  resetCutRecord,
  rotateConsole
} from "./consoleFiles.ts"
import {
  type Line,
  lineOf,
  lineReader,
  makeLineIndex,
  pageBounds,
  piecesOf,
  type StoredLine
} from "./lines.ts"

/** Unread bytes beyond which the follower skips output. */
const BACKLOG = 2 * 1024 * 1024
/** Lines that wait for a subscriber; a slow subscriber loses the oldest. */
const QUEUED_LINES = 1024

/** Receives new lines. Lines are decoded only while a listener or subscriber wants them. */
export interface LineListener {
  readonly wanted: () => boolean
  readonly onLines: (lines: ReadonlyArray<Line>) => Effect.Effect<void>
  /** Called when output was lost or skipped, because it was written faster than it is read. */
  readonly onLost?: Effect.Effect<void>
}

/** Discards lines; subscribers of the console still get them. */
export const noListener: LineListener = { wanted: () => false, onLines: () => Effect.void }

/** The end of a console, whatever its size; see `seek`. */
export const END = Number.MAX_SAFE_INTEGER

interface Position {
  /** Unset for the current file. */
  readonly file: string | undefined
  readonly offset: number
}

const makeSubscribers = () => {
  const queues = new Set<Queue.Queue<Line>>()
  const ended = Deferred.makeUnsafe<void>()
  return {
    isEmpty: () => queues.size === 0,
    publish: (lines: ReadonlyArray<Line>) => {
      const newest = lines.slice(-QUEUED_LINES)
      return Effect.forEach(queues, (queue) => Queue.offerAll(queue, newest), { discard: true })
    },
    subscribe: Effect.acquireRelease(
      Effect.tap(Queue.sliding<Line>(QUEUED_LINES), (queue) => Effect.sync(() => queues.add(queue))),
      (queue) => Effect.sync(() => queues.delete(queue))
    ).pipe(Effect.map((queue) => Stream.interruptWhen(Stream.fromQueue(queue), Deferred.await(ended)))),
    end: Effect.asVoid(Deferred.succeed(ended, undefined))
  }
}

/** Divides output into lines for a listener and the subscribers. */
const makeFeed = ({ isEmpty, publish }: ReturnType<typeof makeSubscribers>) => {
  let reader = lineReader()
  let shown: string | undefined

  /** @param isWithin whether the next output begins within a line */
  const forget = (isWithin = false) => {
    reader = lineReader(0, isWithin)
    shown = undefined
  }
  const deliver = (lines: ReadonlyArray<Line>, listener: LineListener) =>
    lines.length === 0 ? Effect.void : Effect.andThen(publish(lines), listener.onLines(lines))
  const openLine = () => {
    const line = lineOf(reader.open())
    return line.text === "" || line.text === shown ? undefined : line
  }

  return {
    forget,
    openLine,
    read: Effect.fnUntraced(function* (chunk: Buffer, listener: LineListener) {
      for (const piece of piecesOf(chunk)) {
        const isWanted = !isEmpty() || listener.wanted()
        const lastEnd = isWanted ? -1 : piece.lastIndexOf(10)
        if (lastEnd >= 0) forget()
        const lines: Array<Line> = []
        reader.read(piece.subarray(lastEnd + 1), (part) => {
          const line = isWanted ? lineOf(part) : undefined
          if (line !== undefined && (line.isCut || line.text !== shown)) lines.push(line)
          shown = undefined
        })
        yield* deliver(lines, listener)
        yield* pause
      }
    }),
    readOpen: (listener: LineListener) =>
      Effect.suspend(() => {
        const line = openLine()
        if (line === undefined) return Effect.void
        shown = line.text
        return deliver([{ ...line, isOpen: true }], listener)
      }),
    /** @param isWithin whether the next output may begin within a line */
    skip: (bytes: number, listener: LineListener, isWithin = true) =>
      Effect.suspend(() => {
        forget(isWithin)
        const text = `[${bytes} bytes of output were skipped here]`
        return Effect.andThen(
          deliver([{ text, continues: false, isCut: false }], listener),
          listener.onLost ?? Effect.void
        )
      })
  }
}

const makePages = (folder: string, times: ReturnType<typeof makeLineTimes>) => {
  const { current, older } = consoleFiles(folder)
  const indexes = { older: makeLineIndex(older), current: makeLineIndex(current) }

  const gap = Effect.map(readCutRecord(folder), (cut) =>
    cut === undefined || cut.lostBytes === 0 ? [] : [omissionLine(cut.lostBytes)]
  )
  const page = Effect.fnUntraced(function* (request: LinesRequest) {
    const first = yield* gap
    const before = first.length + (yield* indexes.older.total)
    const total = before + (yield* indexes.current.total)
    const { from, to } = pageBounds(total, request, true)
    const inOlder = (at: number) => Math.max(0, Math.min(at, before) - first.length)
    const notice = first.slice(from, to)
    const old = from < before ? yield* indexes.older.read(inOlder(from), inOlder(to)) : []
    const fresh = to > before ? yield* indexes.current.read(Math.max(0, from - before), to - before) : []
    const items = [...notice, ...[...old, ...fresh].map(({ text }) => text)].map(stripAnsi)
    if (request.times !== true) return { items, total }
    const origins = yield* readOrigins(folder)
    const positions = (lines: ReadonlyArray<StoredLine>, origin: number) => lines.map(({ at }) => origin + at)
    const known = yield* times.of([...positions(old, origins.older), ...positions(fresh, origins.current)])
    return { items, total, times: [...notice.map(() => null), ...known] }
  })

  return { page, reset: Effect.andThen(indexes.older.reset, indexes.current.reset) }
}

/**
 * Opens the console of one server. The server appends its output to `console.log` without this service; this service
 * follows, rotates and reads the file. While this service is down, the relay of a plain process rotates the file (see
 * consoleRelay.ts).
 */
export const makeConsoleLog = (folder: string) => {
  const { current: path, older } = consoleFiles(folder)
  const lock = Semaphore.makeUnsafe(1)
  const times = makeLineTimes(folder)
  const pages = makePages(folder, times)
  const subscribers = makeSubscribers()
  const feed = makeFeed(subscribers)
  let position: Position = { file: undefined, offset: 0 }
  let fresh = true
  /** Bytes that are missing within the older file, and whose number a line of it states. */
  let gapInOlder = 0

  const skipTo = (offset: number) => {
    position = { ...position, offset }
    feed.forget()
  }

  /** Returns the file to read next. After a rotation by the relay, that is the rest of the older file first. */
  const currentFile = Effect.fnUntraced(function* (listener: LineListener) {
    const current = yield* lstat(path)
    yield* times.observe(current)
    if (position.file !== undefined && fileId(current) !== position.file) {
      const before = yield* lstat(older)
      if (fileId(before) === position.file && (before?.size ?? 0) > position.offset) {
        return { file: older, size: before?.size ?? 0, isOlder: true }
      }
      if (fileId(before) !== position.file) {
        // Rotated twice since the last read, the second time perhaps within a line.
        feed.forget(true)
        yield* listener.onLost ?? Effect.void
      }
      position = { file: fileId(current), offset: 0 }
    }
    position = { ...position, file: fileId(current) }
    return { file: path, size: current?.size ?? 0, isOlder: false }
  })

  const isWithinLine = Effect.fnUntraced(function* (from: string, at: number) {
    const file = yield* openFile(from, "r")
    const before = Buffer.alloc(1)
    yield* io(`read ${from}`, () => file.read(before, 0, 1, at - 1))
    return before[0] !== 10
  }, Effect.scoped)

  const readChunk = Effect.fnUntraced(function* (from: string, listener: LineListener) {
    const file = yield* openFile(from, "r")
    const chunk = Buffer.allocUnsafe(CHUNK)
    const { bytesRead } = yield* io(`read ${from}`, () => file.read(chunk, 0, CHUNK, position.offset))
    position = { ...position, offset: position.offset + bytesRead }
    fresh = false
    if (bytesRead > 0) yield* feed.read(chunk.subarray(0, bytesRead), listener)
    return bytesRead === CHUNK
  }, Effect.scoped)

  const rotate = Effect.fnUntraced(function* (listener: LineListener) {
    const isIncomplete = gapInOlder !== 0
    const relayed = yield* readCutRecord(folder)
    const rotated = yield* rotateConsole(folder, { relayed, gapInOlder, offset: position.offset })
    gapInOlder = rotated.gapInOlder
    yield* times.rotated(isIncomplete)
    position = { ...position, offset: 0 }
    yield* feed.read(rotated.unread, listener)
    if (rotated.lost > 0) yield* feed.skip(rotated.lost, listener)
    yield* pages.reset
  })

  const step = Effect.fnUntraced(function* (listener: LineListener, isSilent: boolean) {
    const { file, isOlder, size } = yield* currentFile(listener)
    if (size < position.offset) skipTo(0) // truncated by another program
    // The beginning of a run's output is never skipped: it may have the online signal.
    if (!fresh && (isOlder || size > CONSOLE_MAX) && size - position.offset > BACKLOG) {
      const skipped = size - position.offset - CHUNK
      skipTo(size - CHUNK)
      yield* feed.skip(skipped, listener, yield* isWithinLine(file, size - CHUNK))
    }
    if (isOlder) {
      yield* readChunk(file, listener)
      return true
    }
    if (size > CONSOLE_MAX && size - position.offset <= CHUNK) {
      yield* rotate(listener)
      return false
    }
    if (size !== position.offset) return yield* readChunk(file, listener)
    if (isSilent) yield* feed.readOpen(listener)
    return false
  })

  const finish = Effect.fnUntraced(function* (listener: LineListener) {
    while (yield* step(listener, false)) yield* Effect.yieldNow
    yield* times.flush
    yield* feed.readOpen(listener)
  })

  const begin = Effect.gen(function* () {
    yield* resetCutRecord(folder)
    const file = yield* openFile(path, "a+", 0o600)
    const end = yield* io(`read ${path}`, () => file.stat())
    yield* times.observe(end)
    if (end.size === 0) return 0
    const last = Buffer.alloc(1)
    yield* io(`read ${path}`, () => file.read(last, 0, 1, end.size - 1))
    if (last[0] === 10) return end.size
    yield* io(`write ${path}`, () => file.appendFile("\n"))
    return end.size + 1
  }).pipe(Effect.scoped)

  const seek = Effect.fnUntraced(function* (offset: number) {
    const known = offset === END ? undefined : yield* readCutRecord(folder)
    yield* times.observe(yield* lstat(path))
    const begins = known?.begins ?? "earlier"
    const stats = yield* lstat(begins === "earlier" ? path : older)
    const size = stats?.size ?? 0
    const wanted = begins === "gone" ? 0 : begins === "earlier" ? offset : begins
    fresh = true
    feed.forget()
    position = { file: fileId(stats), offset: offset === END ? size : wanted > size ? 0 : wanted }
    return begins === "gone"
  })

  return {
    /** Ends an open line before a run starts, and returns the offset at which the run's output will begin. */
    begin: lock.withPermit(begin),
    /** Sets the position to `begin`'s offset, or {@link END}. Returns whether the beginning is lost. */
    seek: (offset: number) => lock.withPermit(seek(offset)),
    /** Delivers the next output; returns whether there is more. `isSilent` delivers an open line, too. */
    step: (listener: LineListener, isSilent = false) =>
      lock.withPermit(step(listener, isSilent).pipe(orMissing(false))),
    hasOpenLine: () => feed.openLine() !== undefined,
    /** Delivers the rest of the output, an unterminated last line included. */
    finish: (listener: LineListener) => lock.withPermit(finish(listener).pipe(orMissing(undefined))),
    /** Returns a page of lines without ANSI sequences. Page 1 has the newest lines (spec 3.10). */
    page: (request: LinesRequest): Effect.Effect<ConsolePage, IoError> =>
      lock.withPermit(pages.page(request)),
    subscribe: subscribers.subscribe,
    end: subscribers.end
  }
}

export type ConsoleLog = ReturnType<typeof makeConsoleLog>
