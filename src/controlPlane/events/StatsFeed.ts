import { Context, type Effect, type Scope } from "effect"
import type { EventFilter } from "./EncodedEvent.ts"

/** Measures servers for the topic `stats`; the servers implement it. */
export class StatsFeed extends Context.Service<
  StatsFeed,
  {
    /** Measures the servers of a filter until the scope closes. Filters with one interval share the measurements. */
    listen(filter: EventFilter): Effect.Effect<void, never, Scope.Scope>
  }
>()("muster/events/StatsFeed") {}
