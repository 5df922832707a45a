/** Outboxes and subscriptions as streams. */
import { type Array as Arr, Cause, Data, Effect, type Pull, Stream } from "effect"
import type { Unavailable } from "../../src/domain/errors.ts"
import type { EncodedEvent } from "../../src/events/EncodedEvent.ts"
import type { Subscription } from "../../src/events/EventHub.ts"
import type { Outbox } from "../../src/events/Outbox.ts"

/** The failure of a stream whose outbox is cut off. */
export class SubscriberTooSlow extends Data.TaggedError("SubscriberTooSlow") {}

/** The items of an outbox; each chunk holds all items that wait. */
export const itemsOf = <A>(outbox: Outbox<A>): Stream.Stream<A, SubscriberTooSlow> => {
  const changed = Effect.callback<void>((resume) => {
    const remove = outbox.listenUnsafe(() => {
      remove()
      resume(Effect.void)
    })
    return Effect.sync(remove)
  })
  const pull: Pull.Pull<Arr.NonEmptyReadonlyArray<A>, SubscriberTooSlow> = Effect.suspend(() => {
    const taken = outbox.takeUnsafe()
    if (taken === undefined) return Effect.andThen(changed, pull)
    if (typeof taken !== "string") return Effect.succeed(taken)
    return taken === "ended" ? Cause.done() : new SubscriberTooSlow()
  })
  return Stream.fromPull(Effect.succeed(pull))
}

/** All events of a subscription, to be run once. */
export const eventsOf = ({
  live,
  replay
}: Subscription): Stream.Stream<EncodedEvent, SubscriberTooSlow | Unavailable> =>
  Stream.concat(replay, itemsOf(live))
