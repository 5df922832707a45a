import { Clock, Effect } from "effect"

/** The time, RFC 3339 in UTC with milliseconds. */
export const nowText: Effect.Effect<string> = Effect.map(Clock.currentTimeMillis, (now) =>
  new Date(now).toISOString()
)
