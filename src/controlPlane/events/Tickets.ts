import { createHash, randomBytes } from "node:crypto"
import {
  Array as Arr,
  Context,
  DateTime,
  Duration,
  Effect,
  Latch,
  Layer,
  Redacted,
  Schedule,
  Semaphore
} from "effect"
import { Unauthorized } from "../../contract/domain/errors.ts"
import { CurrentPrincipal, OUTSIDE_KEY, type Principal } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"
import { followChanges } from "../store/journal/Journal.ts"
import { TicketRepo } from "../store/repos/TicketRepo.ts"
import { Store } from "../store/Store.ts"

const form = /^[\w-]{43}$/

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")

const hashOf = (ticket: string) => sha256(ticket)

/** Tickets that one write renews. */
const CHUNK = 500

export interface TicketOptions {
  /** Time in which a ticket can open its stream (30 s). */
  readonly lifetime?: Duration.Input
  /** Time after the end of its stream in which a ticket can open the stream again (60 s). */
  readonly reconnect?: Duration.Input
  /** Interval at which the tickets of open streams are renewed (10 s). */
  readonly renewal?: Duration.Input
  /** Bound of tickets without an open stream (10,000). */
  readonly most?: number
  /** The same bound per key (1,000). */
  readonly mostOfKey?: number
  /** The key from outside. Streams of its tickets cannot be opened again once it changes. */
  readonly adminKey?: Redacted.Redacted<string>
}

export interface WantedStream {
  /** The content of the stream: route, filter and fields, in one form. */
  readonly content: string
  /** Cursor after which the stream begins. */
  readonly start: number
  /** Cursor that the request names, if it asks for earlier events. */
  readonly cursor: number | undefined
}

interface Connection {
  /** Number of times the ticket had opened its stream with this connection. Unset until the write commits. */
  timesOpened: number | undefined
  /** The present number. */
  newest: number
  readonly replaced: Latch.Latch
}

const refused = (detail: string) =>
  new Unauthorized({ detail, hint: "POST /api/events/tickets issues a new one." })

const make = Effect.fnUntraced(function* (options: TicketOptions) {
  const lifetime = Duration.toMillis(options.lifetime ?? "30 seconds")
  const reconnect = Duration.toMillis(options.reconnect ?? "60 seconds")
  const renewal = Duration.toMillis(options.renewal ?? "10 seconds")
  /** One renewal may fail. */
  const lease = reconnect + 2 * renewal
  const limits = { lifetime, most: options.most ?? 10_000, mostOfKey: options.mostOfKey ?? 1000 }
  const outside = options.adminKey === undefined ? "" : Redacted.value(options.adminKey)
  const store = yield* Store
  const repo = yield* TicketRepo
  const oneAtATime = yield* Semaphore.make(1)
  const connections = new Map<string, Set<Connection>>()

  const endIfReplaced = (connection: Connection) => {
    const { newest, replaced, timesOpened } = connection
    if (timesOpened !== undefined && timesOpened < newest) replaced.openUnsafe()
  }

  yield* followChanges("publish", (change) => {
    if (change.topic !== "ticket:reopened") return
    for (const connection of connections.get(change.ticket) ?? []) {
      connection.newest = Math.max(connection.newest, change.times_opened)
      endIfReplaced(connection)
    }
  })

  const isOpen = ({ newest, timesOpened }: Connection) => timesOpened !== undefined && timesOpened >= newest

  yield* Effect.suspend(() => {
    const hashes = [...connections].flatMap(([hash, some]) => ([...some].some(isOpen) ? [hash] : []))
    return Effect.forEach(Arr.chunksOf(hashes, CHUNK), (chunk) => store.write(repo.renew(chunk, lease)), {
      discard: true
    })
  }).pipe(
    Effect.catch((error) => Effect.logDebug(`tickets were not renewed: ${error.detail}`)),
    Effect.repeat(Schedule.spaced(renewal)),
    Effect.forkScoped
  )

  /** Registered before the write: another replica may open the stream again before the write has returned here. */
  const connected = (hash: string) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const connection: Connection = { timesOpened: undefined, newest: 0, replaced: Latch.makeUnsafe() }
        connections.set(hash, (connections.get(hash) ?? new Set()).add(connection))
        return connection
      }),
      (connection) =>
        Effect.sync(() => {
          const others = connections.get(hash)
          others?.delete(connection)
          if (others?.size === 0) connections.delete(hash)
        })
    )

  const close = (hash: string, connection: Connection, timesOpened: number) =>
    isOpen(connection)
      ? store.write(repo.close(hash, timesOpened, reconnect)).pipe(
          // The lease ends, too.
          Effect.catch((error) => Effect.logDebug(`a stream of a ticket was not closed: ${error.detail}`))
        )
      : Effect.void

  /** @error LimitReached the bound of tickets without an open stream is reached, of this key or in total */
  const issue = Effect.fn("Tickets.issue")(function* ({ key_id, name, scope }: Principal) {
    const ticket = yield* Effect.sync(() => randomBytes(32).toString("base64url"))
    const kept = yield* store.write(repo.insert(hashOf(ticket), { key_id, name, scope }, limits))
    if (typeof kept === "string") {
      const limit = limits[kept]
      return yield* new LimitReached({
        detail: `${limit} tickets${kept === "most" ? "" : " of this key"} wait to be used`,
        hint: `Use them, or wait: a ticket expires after ${lifetime / 1000} s.`,
        limit,
        resetAfter: lifetime
      })
    }
    return { ticket, expires_at: DateTime.formatIso(DateTime.makeUnsafe(kept)) }
  })

  /**
   * Returns the key of a ticket, without its rights and without a write. `limited` callers, who failed too often,
   * are looked up one at a time.
   *
   * @error Unauthorized the ticket is unknown or expired, or its holder's key is revoked or expired
   */
  const verify = Effect.fn("Tickets.verify")(function* (ticket: string, { limited } = { limited: false }) {
    if (!form.test(ticket)) return yield* refused("the ticket is unknown or has expired")
    const hash = hashOf(ticket)
    const find = store.read(repo.find(hash))
    const holder = yield* limited ? oneAtATime.withPermit(find) : find
    if (holder === undefined) return yield* refused("the ticket is unknown or has expired")
    return { ...holder, ticket: hash }
  })

  /**
   * Opens the stream of the caller's ticket until the scope closes. The returned effect waits until the ticket opens
   * it again.
   *
   * @error Unauthorized the ticket is no longer valid, or it has opened another stream or a later part of this one
   */
  const open = Effect.fn("Tickets.open")(function* ({ content, ...position }: WantedStream) {
    const principal = yield* CurrentPrincipal
    const hash = principal?.ticket
    if (hash === undefined) return Effect.never
    const stream = sha256(principal?.key_id === OUTSIDE_KEY ? `${content}\n${outside}` : content)
    const connection = yield* connected(hash)
    const timesOpened = yield* Effect.acquireRelease(
      store.write(repo.open(hash, { stream, ...position }, lease)),
      (opened) => (opened === undefined ? Effect.void : close(hash, connection, opened))
    )
    if (timesOpened === undefined) {
      return yield* refused("the ticket has expired, or is for another stream or for a later cursor")
    }
    connection.timesOpened = timesOpened
    endIfReplaced(connection)
    return connection.replaced.await
  })

  return { issue, verify, open }
})

/**
 * Tickets open one stream each, for browsers, which cannot set headers (spec 5), and again on any replica until 60 s
 * after it broke, which ends the earlier connection (spec 5.7). Replicas renew leases of open tickets.
 */
export class Tickets extends Context.Service<Tickets, Effect.Success<ReturnType<typeof make>>>()(
  "muster/events/Tickets"
) {
  static readonly layer = (options: TicketOptions = {}) => Layer.effect(Tickets, make(options))
}
