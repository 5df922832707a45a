import { type Cause, Deferred, Effect, Latch, Queue, type Scope, Stream } from "effect"
import { Socket } from "effect/socket"
import { stripAnsi } from "../contract/domain/ConsoleLine.ts"
import { NotFound } from "../contract/domain/errors.ts"
import { ServerId } from "../contract/domain/Id.ts"
import { nowText } from "../contract/domain/nowText.ts"
import { makePause } from "../shared/work/backoff.ts"
import type { Calls } from "./calls.ts"
import { isTransient, retries } from "./responses.ts"

/** Returns the index after the place in the stored lines that has the most equal lines before it, and their number. */
const place = (had: ReadonlyArray<string>, stored: ReadonlyArray<string>) => {
  let begin = 0
  let most = 0
  for (let end = stored.length; end > 0; end--) {
    let equal = 0
    while (equal < end && equal < had.length && stored[end - 1 - equal] === had[had.length - 1 - equal])
      equal++
    if (equal > most) {
      most = equal
      begin = end
    }
  }
  return { begin, most }
}

/**
 * Returns the stored lines that the reader lacks: the ones after the place with most equal lines before it. The newest
 * line of the reader may have grown.
 */
export const missingLines = (
  had: ReadonlyArray<string>,
  stored: ReadonlyArray<string>
): { readonly missing: ReadonlyArray<string>; readonly isContinuous: boolean } => {
  const exact = place(had, stored)
  const { begin, most } = exact.most > 0 ? exact : place(had.slice(0, -1), stored)
  return { missing: stored.slice(begin), isContinuous: most > 0 || had.length === 0 }
}

/** Drops lines that a new connection repeats. A possible repetition is held back until a later line decides. */
export class Repeats {
  readonly #missing: ReadonlyArray<string>
  /** The indices that the next line may have; none: nothing is repeated any more. */
  #next: ReadonlyArray<number>
  #held: Array<string> = []

  constructor(missing: ReadonlyArray<string>) {
    this.#missing = missing
    this.#next = missing.map((_, at) => at)
  }

  /** Returns the lines to deliver once this one has arrived. @param plain the line without ANSI sequences */
  take(line: string, plain: string): ReadonlyArray<string> {
    if (this.#next.length === 0) return [line]
    const matching = this.#next.filter((at) => this.#missing[at] === plain)
    if (matching.includes(this.#missing.length - 1)) {
      this.#next = []
      this.#held = []
      return []
    }
    this.#held.push(line)
    this.#next = matching.map((at) => at + 1)
    return this.#next.length > 0 ? [] : this.#held.splice(0)
  }
}

const UNREAD = 10_000

/** Unread bytes at which the platform's buffer is full: the connection is then made again. */
const UNREAD_BYTES = 1024 * 1024

const OPENING = "30 seconds"

/** Lines that are compared after a break, and of the longest gap that is closed. */
const COMPARED = 1000
const newest = { page: "1", per_page: String(COMPARED) }

/** Fails with the reason of a refused connection, which a WebSocket of the platform does not say. */
const whyRefused = (calls: Calls, server: ServerId) =>
  Effect.catchTag(calls.servers.console({ params: { server } }), "UpgradeRequired", () => Effect.void)

const ticketOf = (calls: Calls) => Effect.map(calls.events.ticket(), ({ ticket }) => ticket)

interface LinesQuery {
  readonly page: string
  readonly per_page: string
  readonly include?: "times"
}

/** Returns stored lines, oldest first, without ANSI sequences. */
export const storedLines = (calls: Pick<Calls, "servers">, server: ServerId, query: LinesQuery) =>
  calls.servers.logs({ params: { server }, query })

/** Why a console cannot be opened, or has ended. */
export type ConsoleError =
  | Effect.Error<ReturnType<typeof whyRefused>>
  | Effect.Error<ReturnType<typeof ticketOf>>
  | Effect.Error<ReturnType<typeof storedLines>>
  | Socket.SocketError

export interface TimedLine {
  readonly text: string
  /** RFC 3339 in UTC, null if unknown: when this client received the line, or when a stored line was written. */
  readonly at: string | null
}

/** An open console in both directions. */
export interface Console {
  /**
   * The lines from now on until the server is deleted, for one reader; of unread lines, the newest 10,000 stay. After a
   * break, the newest 1,000 stored lines, without ANSI sequences, fill the gap; a line says if more are missing.
   */
  readonly lines: Stream.Stream<string, ConsoleError>
  /** The same lines with their times; a console has one reader, of these or of `lines`. */
  readonly timedLines: Stream.Stream<TimedLine, ConsoleError>
  /** Sends a line once connected. A break, or a server that is down, may lose it; `servers.commands` confirms lines. */
  readonly send: (line: string) => Effect.Effect<void, ConsoleError>
}

/**
 * Opens the console of a server until the scope closes. The connection is made again when it breaks.
 * @error NotFound    the server does not exist
 * @error Unavailable the node of the server is not connected
 * @error SocketError no WebSocket can be opened, as behind a proxy that does not pass them on
 */
export const openConsole = (calls: Calls, baseUrl: string) =>
  Effect.fn("MusterClient.console")(function* (
    of: ServerId | string
  ): Effect.fn.Return<Console, ConsoleError, Scope.Scope | Socket.WebSocketConstructor> {
    const server = ServerId.make(of)
    const address = `${baseUrl.replace(/^http/, "ws").replace(/\/$/, "")}/api/servers/${encodeURIComponent(server)}/console`
    const unread = yield* Effect.acquireRelease(
      Queue.sliding<TimedLine, ConsoleError | Cause.Done>(UNREAD),
      Queue.end
    )
    const opened = yield* Deferred.make<void, ConsoleError>()
    const ended = yield* Deferred.make<never, ConsoleError>()
    const connected = yield* Latch.make(false)
    let write: (line: string) => Effect.Effect<void, Socket.SocketError> = () => Effect.void
    let pause = yield* makePause(retries)
    /** The newest lines that the reader has, or that precede its first one, if known. */
    let had: ReadonlyArray<string> | undefined

    const deliver = Effect.fnUntraced(function* (lines: ReadonlyArray<TimedLine>) {
      had = [...(had ?? []), ...lines.map(({ text }) => stripAnsi(text))].slice(-COMPARED)
      yield* Queue.offerAll(unread, lines)
    })

    /** Delivers the lines since the last connection; returns what the new one may repeat. */
    const closeGap = Effect.fnUntraced(function* (before: ReadonlyArray<string>) {
      const { data, times = [] } = yield* storedLines(calls, server, { ...newest, include: "times" })
      const { isContinuous, missing } = missingLines(before, data)
      const first = data.length - missing.length
      const lines = missing.map((text, line): TimedLine => ({ text, at: times[first + line] ?? null }))
      yield* deliver(isContinuous ? lines : [{ text: "[lines are missing here]", at: null }, ...lines])
      return new Repeats(missing)
    })

    const connection = Effect.gen(function* () {
      const ticket = yield* Effect.timeoutOrElse(ticketOf(calls), {
        duration: OPENING,
        orElse: () =>
          new Socket.SocketError({
            reason: new Socket.SocketOpenError({ kind: "Timeout", cause: `no response within ${OPENING}` })
          })
      })
      // Without them, a gap is closed only after the first line.
      had ??= yield* storedLines(calls, server, newest).pipe(
        Effect.map(({ data }) => data),
        Effect.orElseSucceed(() => undefined)
      )
      const url = `${address}?ticket=${encodeURIComponent(ticket)}`
      const socket = yield* Socket.makeWebSocket(url, { highWaterMark: UNREAD_BYTES })
      const { pull } = yield* Effect.tapError(socket.reader, () =>
        // A response of another program says less than the failure of the WebSocket.
        Effect.catchTag(whyRefused(calls, server), "HttpClientError", () => Effect.void)
      )
      write = (yield* socket.writer).write
      yield* Effect.acquireRelease(connected.open, () => connected.close)
      const isFirst = yield* Deferred.succeed(opened, undefined)
      const repeats = isFirst || had === undefined ? new Repeats([]) : yield* closeGap(had)
      while (true) {
        const frames = yield* pull
        pause = yield* makePause(retries)
        const lines = frames.filter((frame) => typeof frame === "string")
        const at = yield* nowText
        const fresh = lines.flatMap((line) => repeats.take(line, stripAnsi(line)))
        yield* deliver(fresh.map((text) => ({ text, at })))
      }
    }).pipe(Effect.scoped)

    const end = (error: ConsoleError) =>
      Effect.gen(function* () {
        const wasOpen = yield* Deferred.isDone(opened)
        yield* Deferred.fail(opened, error)
        yield* Deferred.fail(ended, error)
        yield* wasOpen && error instanceof NotFound ? Queue.end(unread) : Queue.fail(unread, error)
      })

    yield* connection.pipe(
      Effect.catchIf(
        (error) => error._tag === "SocketError" || isTransient(error),
        (error) =>
          Effect.gen(function* () {
            // A console that cannot be opened is an error of the caller's request; later ones are breaks.
            if (!(yield* Deferred.isDone(opened))) return yield* Effect.fail(error)
            yield* Effect.logDebug(`a console broke: ${error}`)
          })
      ),
      Effect.andThen(Effect.suspend(() => pause)),
      Effect.forever,
      Effect.catch(end),
      Effect.forkScoped
    )
    yield* Deferred.await(opened)

    const sendNow = (line: string): Effect.Effect<void> =>
      Effect.andThen(
        connected.await,
        Effect.suspend(() => write(line))
      ).pipe(
        // The connection has just broken: the line waits for the next one.
        Effect.catchTag("SocketError", () =>
          Effect.delay(
            Effect.suspend(() => sendNow(line)),
            "100 millis"
          )
        )
      )
    return {
      lines: Stream.map(Stream.fromQueue(unread), ({ text }) => text),
      timedLines: Stream.fromQueue(unread),
      send: (line) => Effect.raceFirst(sendNow(line), Deferred.await(ended))
    }
  })
