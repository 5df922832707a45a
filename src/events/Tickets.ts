import { createHash, randomBytes } from "node:crypto"
import { Context, DateTime, Duration, Effect, Layer, Semaphore } from "effect"
import type { Ticket } from "../api/EventsGroup.ts"
import type { Principal } from "../api/Principal.ts"
import { LimitReached } from "../api/rateLimit.ts"
import { Unauthorized, type Unavailable } from "../domain/errors.ts"
import { TicketRepo } from "../store/repos/TicketRepo.ts"
import { Store } from "../store/Store.ts"

const form = /^[\w-]{43}$/

/** Only the hash is stored, as with keys. */
const hashOf = (ticket: string) => createHash("sha256").update(ticket).digest("hex")

/**
 * Tickets open one stream, once, within their lifetime, for browsers, which cannot set headers on `EventSource` and
 * `WebSocket` (decisions, section 6). Every replica accepts the tickets of all others.
 */
export class Tickets extends Context.Service<
  Tickets,
  {
    /** @error LimitReached the bound of unused tickets is reached, of this key or in total */
    issue(principal: Principal): Effect.Effect<typeof Ticket.Type, LimitReached | Unavailable>
    /**
     * Uses up a ticket and returns its holder. An unknown ticket costs one read.
     *
     * @param options.limited the caller has failed too often: tickets of such callers are looked up one at a time
     * @error Unauthorized the ticket is unknown, used or expired, or its holder's key is revoked
     */
    redeem(
      ticket: string,
      options?: { readonly limited: boolean }
    ): Effect.Effect<Principal, Unauthorized | Unavailable>
  }
>()("muster/events/Tickets") {
  /**
   * @param options.lifetime  time in which a ticket can be used (30 s)
   * @param options.most      bound of unused tickets (10,000)
   * @param options.mostOfKey bound of unused tickets per key (1,000)
   */
  static layer(
    options: { readonly lifetime?: Duration.Input; readonly most?: number; readonly mostOfKey?: number } = {}
  ): Layer.Layer<Tickets, never, Store | TicketRepo> {
    const lifetime = Duration.toMillis(options.lifetime ?? "30 seconds")
    const limits = { lifetime, most: options.most ?? 10_000, mostOfKey: options.mostOfKey ?? 1000 }
    return Layer.effect(
      Tickets,
      Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* TicketRepo
        const oneAtATime = yield* Semaphore.make(1)

        /** Callers without a key can ask at any rate: only an issued ticket is worth a write. */
        const take = Effect.fnUntraced(function* (hash: string, limited: boolean) {
          const find = store.read(repo.isKept(hash))
          const isKept = yield* limited ? oneAtATime.withPermit(find) : find
          return isKept ? yield* store.write(repo.take(hash)) : undefined
        })

        return Tickets.of({
          issue: Effect.fn("Tickets.issue")(function* ({ key_id, name, scope }) {
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
          }),
          redeem: Effect.fn("Tickets.redeem")(function* (ticket, { limited } = { limited: false }) {
            // A text of another form is not looked up.
            const holder = form.test(ticket) ? yield* take(hashOf(ticket), limited) : undefined
            if (holder === undefined) {
              return yield* new Unauthorized({
                detail: "the ticket is unknown, was used or has expired",
                hint: "POST /api/events/tickets issues a new one."
              })
            }
            return holder
          })
        })
      })
    )
  }
}
