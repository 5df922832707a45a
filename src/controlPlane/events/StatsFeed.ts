import { Context, type Effect, type Scope } from "effect"
import type { EventFilter } from "./EncodedEvent.ts"

/** Measures servers for the topic `stats`; the servers implement it. */
export class StatsFeed extends Context.Service<
  StatsFeed,
  {
    /**
     * Measures the servers that a filter lets through at each interval, until the scope closes. All filters with the same
     * interval share the measurements, which are published as live news.
     */
    listen(filter: EventFilter): Effect.Effect<void, never, Scope.Scope>
  }
>()("muster/events/StatsFeed") {}
