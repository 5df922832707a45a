/**
 * The consoles of servers: files, lines, times and the online signal. Imports `disk` only. Read first: this file,
 * `consoleFiles.ts` (the files and their bounds), `lines.ts`.
 */
import { Deferred, Effect, PubSub, type Scope, Semaphore, Stream } from "effect"
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
import { makeLineTimes } from "./lineTimes.ts"

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

/**
 * The console of one server. The server appends its output to `console.log` without this service; this service follows,
 * rotates and reads the file. While this service is down, the relay of a plain process rotates the file (see
 * consoleRelay.ts).
 */
export interface ConsoleLog {
  /** Ends an open line before a run starts, and returns the offset at which the run's output will begin. */
  readonly begin: Effect.Effect<number, IoError>
  /** Sets the position to `begin`'s offset, or {@link END}. Returns whether the beginning is lost. */
  seek(offset: number): Effect.Effect<boolean, IoError>
  /** Delivers the next output; returns whether there is more. `isSilent` delivers an open line, too. */
  step(listener: LineListener, isSilent?: boolean): Effect.Effect<boolean, IoError>
  readonly hasOpenLine: () => boolean
  /** Delivers the rest of the output, an unterminated last line included. */
  finish(listener: LineListener): Effect.Effect<void, IoError>
  /** Returns a page of lines without ANSI sequences. Page 1 has the newest lines (spec 3.10). */
  page(request: LinesRequest): Effect.Effect<ConsolePage, IoError>
  readonly subscribe: Effect.Effect<Stream.Stream<string>, never, Scope.Scope>
  readonly end: Effect.Effect<void>
}

/** The end of a console, whatever its size; see {@link ConsoleLog.seek}. */
export const END = Number.MAX_SAFE_INTEGER

interface Position {
  /** Unset for the current file. */
  readonly file: string | undefined
  readonly offset: number
}

export const makeConsoleLog = (folder: string): ConsoleLog => {
  const { current: path, older } = consoleFiles(folder)
  const lock = Semaphore.makeUnsafe(1)
  /** There only while it has subscribers: its buffer has 16 KiB. */
  let hub: PubSub.PubSub<string> | undefined
  const indexes = { older: makeLineIndex(older), current: makeLineIndex(path) }
  const times = makeLineTimes(folder)
  const ended = Deferred.makeUnsafe<void>()
  let subscribers = 0
  let position: Position = { file: undefined, offset: 0 }
  let fresh = true
  let reader = lineReader()
  let shown: string | undefined
  /** Bytes that are missing within the older file, and whose number a line of it states. */
  let gapInOlder = 0

  const deliver = Effect.fnUntraced(function* (lines: ReadonlyArray<Line>, listener: LineListener) {
    if (lines.length === 0) return
    if (hub !== undefined)
      yield* PubSub.publishAll(
        hub,
        lines.slice(-QUEUED_LINES).map(({ text }) => text)
      )
    yield* listener.onLines(lines)
  })

  const feed = Effect.fnUntraced(function* (chunk: Buffer, listener: LineListener) {
    for (const piece of piecesOf(chunk)) {
      const isWanted = subscribers > 0 || listener.wanted()
      const lastEnd = isWanted ? -1 : piece.lastIndexOf(10)
      if (lastEnd >= 0) forgetOpen()
      const lines: Array<Line> = []
      reader.read(piece.subarray(lastEnd + 1), (part) => {
        const line = isWanted ? lineOf(part) : undefined
        if (line !== undefined && (line.isCut || line.text !== shown)) lines.push(line)
        shown = undefined
      })
      yield* deliver(lines, listener)
      yield* pause
    }
  })

  const openLine = () => {
    const line = lineOf(reader.open())
    return line.text === "" || line.text === shown ? undefined : line
  }

  const deliverOpen = Effect.fnUntraced(function* (listener: LineListener) {
    const line = openLine()
    if (line === undefined) return
    shown = line.text
    yield* deliver([{ ...line, isOpen: true }], listener)
  })

  const forgetOpen = () => {
    reader = lineReader()
    shown = undefined
  }

  const noteSkipped = Effect.fnUntraced(function* (bytes: number, listener: LineListener) {
    forgetOpen()
    const text = `[${bytes} bytes of output were skipped here]`
    yield* deliver([{ text, continues: false, isCut: false }], listener)
    yield* listener.onLost ?? Effect.void
  })

  const skipTo = (offset: number) => {
    position = { ...position, offset }
    forgetOpen()
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
        // Rotated twice since the last read.
        forgetOpen()
        yield* listener.onLost ?? Effect.void
      }
      position = { file: fileId(current), offset: 0 }
    }
    position = { ...position, file: fileId(current) }
    return { file: path, size: current?.size ?? 0, isOlder: false }
  })

  const readChunk = Effect.fnUntraced(function* (from: string, listener: LineListener) {
    const file = yield* openFile(from, "r")
    const chunk = Buffer.allocUnsafe(CHUNK)
    const { bytesRead } = yield* io(`read ${from}`, () => file.read(chunk, 0, CHUNK, position.offset))
    position = { ...position, offset: position.offset + bytesRead }
    fresh = false
    if (bytesRead > 0) yield* feed(chunk.subarray(0, bytesRead), listener)
    return bytesRead === CHUNK
  }, Effect.scoped)

  const rotate = Effect.fnUntraced(function* (listener: LineListener) {
    const isIncomplete = gapInOlder !== 0
    const relayed = yield* readCutRecord(folder)
    const rotated = yield* rotateConsole(folder, { relayed, gapInOlder, offset: position.offset })
    gapInOlder = rotated.gapInOlder
    yield* times.rotated(isIncomplete)
    position = { ...position, offset: 0 }
    yield* feed(rotated.unread, listener)
    if (rotated.lost > 0) yield* noteSkipped(rotated.lost, listener)
    yield* indexes.older.reset
    yield* indexes.current.reset
  })

  const step = Effect.fnUntraced(function* (listener: LineListener, isSilent = false) {
    const { file, isOlder, size } = yield* currentFile(listener)
    if (size < position.offset) skipTo(0) // truncated by another program
    // The beginning of a run's output is never skipped: it may have the online signal.
    if (!fresh && (isOlder || size > CONSOLE_MAX) && size - position.offset > BACKLOG) {
      const skipped = size - position.offset - CHUNK
      skipTo(size - CHUNK)
      yield* noteSkipped(skipped, listener)
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
    if (isSilent) yield* deliverOpen(listener)
    return false
  })

  const finish = Effect.fnUntraced(function* (listener: LineListener) {
    while (yield* step(listener)) yield* Effect.yieldNow
    yield* times.flush
    yield* deliverOpen(listener)
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

  const seek = Effect.fnUntraced(function* (offset: number) {
    const known = offset === END ? undefined : yield* readCutRecord(folder)
    yield* times.observe(yield* lstat(path))
    const begins = known?.begins ?? "earlier"
    const stats = yield* lstat(begins === "earlier" ? path : older)
    const size = stats?.size ?? 0
    const wanted = begins === "gone" ? 0 : begins === "earlier" ? offset : begins
    fresh = true
    forgetOpen()
    position = { file: fileId(stats), offset: offset === END ? size : wanted > size ? 0 : wanted }
    return begins === "gone"
  })

  const subscribe = Effect.gen(function* () {
    const lines = yield* Effect.acquireRelease(
      Effect.map(PubSub.sliding<string>(QUEUED_LINES), (made) => {
        subscribers++
        hub ??= made
        return hub
      }),
      () =>
        Effect.sync(() => {
          subscribers--
          if (subscribers === 0) hub = undefined
        })
    )
    return Stream.fromSubscription(yield* PubSub.subscribe(lines)).pipe(
      Stream.interruptWhen(Deferred.await(ended))
    )
  })

  return {
    begin: lock.withPermit(begin),
    seek: (offset) => lock.withPermit(seek(offset)),
    step: (listener, isSilent) => lock.withPermit(step(listener, isSilent).pipe(orMissing(false))),
    hasOpenLine: () => openLine() !== undefined,
    finish: (listener) => lock.withPermit(finish(listener).pipe(orMissing(undefined))),
    page: (request) => lock.withPermit(page(request)),
    subscribe,
    end: Effect.asVoid(Deferred.succeed(ended, undefined))
  }
}
