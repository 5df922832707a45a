import { Stream } from "effect"
import type { Unavailable } from "../../src/domain/errors.ts"
import type { EncodedEvent } from "../../src/events/EncodedEvent.ts"
import type { Subscription } from "../../src/events/EventHub.ts"
import type { SubscriberTooSlow } from "../../src/events/subscription.ts"

/** All events of a subscription, to be run once. */
export const eventsOf = ({
  events
}: Subscription): Stream.Stream<EncodedEvent, SubscriberTooSlow | Unavailable> =>
  Stream.flattenIterable(Stream.map(events, (delivery) => (delivery === "beat" ? [] : delivery)))
