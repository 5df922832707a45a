import { Clock, Effect, Schema } from "effect"

/** A time of the control plane: RFC 3339 in UTC with milliseconds. */
export const TimeText = Schema.String.annotate({ format: "date-time" })

export const nowText: Effect.Effect<string> = Effect.map(Clock.currentTimeMillis, (now) =>
  new Date(now).toISOString()
)
