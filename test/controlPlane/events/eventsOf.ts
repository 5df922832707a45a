import { Stream } from "effect"
import type { Unavailable } from "../../../src/contract/domain/errors.ts"
import type { EncodedEvent } from "../../../src/controlPlane/events/EncodedEvent.ts"
import type { Subscription } from "../../../src/controlPlane/events/EventHub.ts"
import type { SubscriberTooSlow } from "../../../src/controlPlane/events/subscription.ts"

/** All events of a subscription, to be run once. */
export const eventsOf = ({
  events
}: Subscription): Stream.Stream<EncodedEvent, SubscriberTooSlow | Unavailable> =>
  Stream.flattenIterable(Stream.map(events, (delivery) => (delivery === "beat" ? [] : delivery)))
