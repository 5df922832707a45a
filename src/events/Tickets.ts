import { createHash, randomBytes } from "node:crypto"
import { Clock, Context, DateTime, Duration, Effect, Layer } from "effect"
import type { Ticket } from "../api/EventsGroup.ts"
import type { Principal } from "../api/Principal.ts"
import { TooManyRequests, Unauthorized } from "../domain/errors.ts"

interface Issued {
  readonly principal: Principal
  /** Milliseconds since the epoch. */
  readonly expires_at: number
}

/** Only the hash is kept, as it is with keys. */
const hashOf = (ticket: string) => createHash("sha256").update(ticket).digest("hex")

/**
 * Tickets open one stream, once, within their lifetime, for browsers that cannot set headers on `EventSource` and
 * `WebSocket` (decisions, section 6).
 */
export class Tickets extends Context.Service<
  Tickets,
  {
    /** @error TooManyRequests as many tickets as are kept wait to be used */
    issue(principal: Principal): Effect.Effect<typeof Ticket.Type, TooManyRequests>
    /**
     * Uses a ticket up; answers whom it was issued to.
     *
     * @error Unauthorized the ticket is unknown, was used or has expired
     */
    redeem(ticket: string): Effect.Effect<Principal, Unauthorized>
  }
>()("muster/events/Tickets") {
  /**
   * Tickets of this process alone, in memory.
   *
   * @param options.lifetime how long a ticket can be used (30 s)
   * @param options.most     tickets that may wait to be used at a time (10,000)
   */
  static layer(
    options: { readonly lifetime?: Duration.Input; readonly most?: number } = {}
  ): Layer.Layer<Tickets> {
    const lifetime = Duration.toMillis(options.lifetime ?? "30 seconds")
    const most = options.most ?? 10_000
    return Layer.sync(Tickets, () => {
      /** By hash, oldest first: all live equally long. */
      const issued = new Map<string, Issued>()

      const prune = (now: number) => {
        for (const [hash, { expires_at }] of issued) {
          if (expires_at > now) break
          issued.delete(hash)
        }
      }

      return Tickets.of({
        issue: Effect.fn("Tickets.issue")(function* (principal) {
          const now = yield* Clock.currentTimeMillis
          prune(now)
          if (issued.size >= most) {
            return yield* new TooManyRequests({
              detail: `${most} tickets wait to be used`,
              hint: `Use them, or wait: a ticket expires after ${lifetime / 1000} s.`
            })
          }
          const ticket = randomBytes(32).toString("base64url")
          const expires_at = now + lifetime
          issued.set(hashOf(ticket), { principal, expires_at })
          return { ticket, expires_at: DateTime.formatIso(DateTime.makeUnsafe(expires_at)) }
        }),
        redeem: Effect.fn("Tickets.redeem")(function* (ticket) {
          const now = yield* Clock.currentTimeMillis
          prune(now)
          const hash = hashOf(ticket)
          const found = issued.get(hash)
          if (found === undefined || !issued.delete(hash)) {
            return yield* new Unauthorized({
              detail: "the ticket is unknown, was used or has expired",
              hint: "POST /api/events/tickets issues a new one."
            })
          }
          return found.principal
        })
      })
    })
  }
}
