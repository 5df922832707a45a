/** Bounds the memory of responses that have not left completely (SECURITY.md, "Promises and their tests"). */
import type { Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { totalmem } from "node:os"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Clock, Duration, Effect, Layer, Schedule } from "effect"
import type { HttpServerResponse } from "effect/http"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"
import { Tally } from "../../shared/work/Tally.ts"
import { LargeAnswers, tooManyUnread } from "./LargeAnswers.ts"
import { removeFrom } from "./node/pipelining.ts"
import { sendQueues } from "./node/sendQueues.ts"
import { CurrentPrincipal } from "./Principal.ts"

/** Bytes of a body that counts towards no bound: the number of connections bounds such bodies. */
const SMALL = 16 * 1024
/** Bytes of the larger bodies of one key that leave at the same time; a single body may be larger. */
export const LEAVING_BYTES = 16 * 1024 * 1024
/** Bytes that count for a body that is made as it is read: its buffers and its compressor. */
const STREAM_BYTES = 256 * 1024
/** The part of the connections on which one key has requests in progress at most. */
const CONNECTIONS_PART = 1 / 2
/** The part of the memory that the bodies of all keys take at most. */
const MEMORY_PART = 1 / 8
const PATIENCE = Duration.seconds(5)
/** Time without progress after which a connection is closed. */
const STALLED = Duration.seconds(20)
const CHECKS = 10

/** A connection whose peer has bytes to read. */
interface Unread {
  taken: number
  /** Bytes that the peer has acknowledged; unset until the kernel has taken none for a while. */
  acknowledged?: number
  /** Time of the last progress, of {@link elapsedMillisOf}. */
  since: number
  /** Milliseconds without progress after which the connection is closed, if not those of all. */
  patience?: number
  /** Each ends the count of a response. */
  readonly releases: Array<() => void>
}

interface Maker {
  readonly bytes: number
  /** `admit` is called once there is room. */
  state: "waiting" | "admitted"
  admit: () => void
}

interface Account {
  making: number
  leaving: number
  readonly waiting: Array<Maker>
}

const takenOf = (socket: Socket): number => {
  // Node.js decides by this number whether a connection has timed out; its types do not have it.
  const { _handle } = socket as { readonly _handle?: { readonly writeQueueSize?: number } | null }
  return socket.bytesWritten - (_handle?.writeQueueSize ?? 0)
}

/** Returns the memory of a body, unless it is small. */
const memoryOf = (response: HttpServerResponse.HttpServerResponse) => {
  const { body } = response
  if (body._tag === "Uint8Array" && body.contentLength > SMALL)
    return { holder: body.body, bytes: body.contentLength }
  if (body._tag === "Stream") return { holder: response, bytes: STREAM_BYTES }
  return undefined
}

const bytesOfAll = (): number =>
  Math.max(LEAVING_BYTES, Math.min(totalmem(), process.constrainedMemory() || totalmem()) * MEMORY_PART)

/** The connections of a server whose peers have bytes to read. */
const unreadOf = (server: Server, clock: Clock.Clock) => {
  const unread = new Map<Socket, Unread>()
  const watch = (socket: Socket): Unread => {
    const known = unread.get(socket)
    if (known !== undefined) return known
    const made: Unread = { taken: takenOf(socket), since: elapsedMillisOf(clock), releases: [] }
    unread.set(socket, made)
    return made
  }
  const forget = (socket: Socket) => {
    const releases = unread.get(socket)?.releases ?? []
    unread.delete(socket)
    for (const release of [...releases]) release()
  }
  const cut = (socket: Socket) => {
    forget(socket)
    socket.destroy()
  }
  /** Notes the progress of all connections; returns the ones without any, the longest first. */
  const stalled = (): ReadonlyArray<readonly [Socket, millis: number, patience: number | undefined]> => {
    const now = elapsedMillisOf(clock)
    for (const [socket, state] of unread) {
      if (socket.destroyed || (socket.writableLength === 0 && state.releases.length === 0)) {
        forget(socket)
        continue
      }
      const taken = takenOf(socket)
      // Without bytes in the connection, its responses wait for an earlier one.
      if (taken !== state.taken || socket.writableLength === 0) Object.assign(state, { taken, since: now })
    }
    return Array.from(unread, ([socket, { patience, since }]) => [socket, now - since, patience] as const)
      .filter(([, millis]) => millis > 0)
      .toSorted(([, one], [, other]) => other - one)
  }
  /** Notes the progress of peers that read what the kernel has taken: its buffers hold megabytes. */
  const noteQueues = (queues: ReadonlyMap<Socket, number>) => {
    const now = elapsedMillisOf(clock)
    for (const [socket, queue] of queues) {
      const state = unread.get(socket)
      if (state === undefined) continue
      const acknowledged = state.taken - queue
      if (acknowledged > (state.acknowledged ?? acknowledged)) state.since = now
      state.acknowledged = acknowledged
    }
  }
  /** Connections with a request: a stream has no end. A set of responses would leak, see `removeFrom`. */
  const open = new Set<Socket>()
  const watchOpen = Effect.sync(() => {
    for (const socket of open) if (socket.writableLength > 0) watch(socket)
  })
  server.on("request", ({ socket }, response: ServerResponse) => {
    if (!open.has(socket)) {
      open.add(socket)
      socket.once("close", () => open.delete(socket))
    }
    response.on("prefinish", () => {
      if (socket.writableLength > 0) watch(socket)
    })
  })
  return { watch, watchOpen, cut, stalled, noteQueues }
}

/** The responses of all keys, and the connections on which they leave. */
const makeLargeAnswers = (
  unread: ReturnType<typeof unreadOf>,
  mostBytes: number,
  mostRequests: () => number
) => {
  const accounts = new Map<string, Account>()
  const inProgress = new Tally<string>()
  /** Counts the responses of each object that holds a body. */
  const held = new Tally<object>()
  let total = 0

  const accountOf = (key: string): Account => {
    const known = accounts.get(key)
    if (known !== undefined) return known
    const made: Account = { making: 0, leaving: 0, waiting: [] }
    accounts.set(key, made)
    return made
  }
  const admitNext = (key: string, account: Account) => {
    for (let next = account.waiting[0]; next !== undefined; next = account.waiting[0]) {
      const used = account.making + account.leaving
      if (used > 0 && used + next.bytes > LEAVING_BYTES) return
      account.waiting.shift()
      account.making += next.bytes
      next.state = "admitted"
      next.admit()
    }
    if (account.making + account.leaving === 0) accounts.delete(key)
  }
  const hold = (holder: object, bytes: number) => {
    if (held.of(holder) === 0) total += bytes
    held.add(holder)
  }
  const letGo = (holder: object, bytes: number) => {
    held.remove(holder)
    if (held.of(holder) === 0) total -= bytes
  }
  const hasRoom = (bytes: number) => total === 0 || total + bytes <= mostBytes
  const makeRoom = (bytes: number) => {
    if (hasRoom(bytes)) return
    for (const [socket] of unread.stalled()) {
      unread.cut(socket)
      if (hasRoom(bytes)) return
    }
  }

  return LargeAnswers.of({
    making: (bytes) => (handler) =>
      Effect.flatMap(CurrentPrincipal, (principal) => {
        if (principal === undefined || bytes <= SMALL) return handler
        const key = principal.key_id
        return Effect.acquireUseRelease(
          Effect.sync(() => {
            const maker: Maker = { bytes, state: "waiting", admit: () => {} }
            const account = accountOf(key)
            account.waiting.push(maker)
            admitNext(key, account)
            return maker
          }),
          (maker) =>
            maker.state === "admitted"
              ? handler
              : Effect.callback<void>((resume) => {
                  maker.admit = () => resume(Effect.void)
                  if (maker.state === "admitted") maker.admit()
                }).pipe(
                  Effect.timeoutOrElse({ duration: PATIENCE, orElse: () => Effect.die(tooManyUnread) }),
                  Effect.andThen(handler)
                ),
          (maker) =>
            Effect.sync(() => {
              const account = accountOf(key)
              if (maker.state === "admitted") account.making -= bytes
              else removeFrom(account.waiting, maker)
              admitNext(key, account)
            })
        )
      }),
    admit: (request, principal) => {
      const response = NodeHttpServerRequest.toServerResponse(request)
      if (principal === undefined || response.closed) return true
      const { key_id } = principal
      if (inProgress.of(key_id) >= mostRequests()) return false
      inProgress.add(key_id)
      response.once("close", () => inProgress.remove(key_id))
      return true
    },
    begin: (request, response, principal, patience) => {
      const memory = memoryOf(response)
      if (memory === undefined || request.method === "HEAD") return true
      const { bytes, holder } = memory
      const { socket } = NodeHttpServerRequest.toIncomingMessage(request)
      if (socket.destroyed) return true
      // Callers without a key get the same buffers.
      const key = principal?.key_id
      const account = key === undefined ? undefined : accountOf(key)
      if (account !== undefined && account.leaving > 0 && account.leaving + bytes > LEAVING_BYTES)
        return false
      const fresh = held.of(holder) > 0 ? 0 : bytes
      makeRoom(fresh)
      if (!hasRoom(fresh)) return false
      hold(holder, bytes)
      if (account !== undefined) account.leaving += bytes
      const state = unread.watch(socket)
      const { releases } = state
      if (patience !== undefined) state.patience = Duration.toMillis(patience)
      const release = () => {
        if (!releases.includes(release)) return
        removeFrom(releases, release)
        if (patience !== undefined) delete state.patience
        letGo(holder, bytes)
        if (account === undefined || key === undefined) return
        account.leaving -= bytes
        admitNext(key, account)
      }
      releases.push(release)
      NodeHttpServerRequest.toServerResponse(request).once("close", release)
      return true
    }
  })
}

/**
 * Bounds requests in progress and unsent responses. A key has half of the connections and {@link LEAVING_BYTES}:
 * handlers wait for room, and a response without room is 503. Over the bound of all keys, the longest stalled
 * connection is closed.
 * @param options.mostBytes bytes of all keys; default: an eighth of the memory
 * @param options.stalled   a connection without progress for this time is closed; default: 20 s
 */
export const LeavingBodies = (
  server: Server,
  {
    mostBytes = bytesOfAll(),
    stalled = STALLED
  }: { readonly mostBytes?: number; readonly stalled?: Duration.Duration } = {}
) =>
  Layer.effect(
    LargeAnswers,
    Effect.gen(function* () {
      const unread = unreadOf(server, yield* Clock.Clock)
      const longest = Duration.toMillis(stalled)
      const slow = Effect.sync(() => unread.stalled().filter(([, millis]) => millis >= longest / 2))
      const noted = Effect.flatMap(slow, (found) => sendQueues(found.map(([socket]) => socket)))
      const check = Effect.andThen(unread.watchOpen, Effect.map(noted, unread.noteQueues)).pipe(
        Effect.andThen(() => {
          const ended = unread.stalled().filter(([, millis, patience = longest]) => millis >= patience)
          for (const [socket] of ended) unread.cut(socket)
          return ended.length === 0
            ? Effect.void
            : Effect.logInfo(
                `closed ${ended.length} connections whose peers did not read for ${(ended[0]?.[1] ?? 0) / 1000} s`
              )
        })
      )
      yield* check.pipe(Effect.repeat(Schedule.spaced(Duration.millis(longest / CHECKS))), Effect.forkScoped)
      // Another layer sets the number of connections; without it, keys have no bound.
      return makeLargeAnswers(unread, mostBytes, () => server.maxConnections * CONNECTIONS_PART)
    })
  )
