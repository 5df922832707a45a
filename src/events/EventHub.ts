import { Context, type Effect, type Scope, type Stream } from "effect"
import type { CursorExpired, Unavailable } from "../domain/errors.ts"
import type { Topic } from "../domain/ServerEvent.ts"

/** What a subscriber wants to see; an absent field filters nothing (decisions, section 6). */
export interface EventFilter {
  readonly topics?: ReadonlySet<Topic>
  readonly server_ids?: ReadonlySet<string>
  readonly blueprint_ids?: ReadonlySet<string>
}

/** One public event, encoded once for all subscribers. */
export interface EncodedEvent {
  readonly cursor: number
  readonly topic: Topic
  readonly server_id: string
  readonly blueprint_id: string
  /** SSE event without and with its `id:` line. */
  readonly sse: Uint8Array
  readonly sseWithId: Uint8Array
  /** WebSocket message without and with `Cursor`. */
  readonly text: string
  readonly textWithCursor: string
}

/**
 * Hands every public event to every subscriber, in one total order (decisions, section 6). A subscriber that does
 * not keep up (more than the bound unsent) is cut off; it never slows a publisher or another subscriber.
 */
export class EventHub extends Context.Service<
  EventHub,
  {
    /**
     * Subscribed before it returns: nothing committed afterwards is missed. With `cursor` the stream first replays
     * what came after it. Chunks hold all that is waiting. The stream ends when the subscriber is cut off
     * (`overflow` is then true) or the scope closes.
     */
    subscribe(options: {
      readonly filter: EventFilter
      readonly cursor?: number
    }): Effect.Effect<Subscription, CursorExpired | Unavailable, Scope.Scope>
    readonly subscribers: Effect.Effect<number>
  }
>()("muster/events/EventHub") {}

export interface Subscription {
  readonly events: Stream.Stream<EncodedEvent, Unavailable>
  /** Whether the stream ended because the subscriber did not keep up. */
  readonly overflow: Effect.Effect<boolean>
}
