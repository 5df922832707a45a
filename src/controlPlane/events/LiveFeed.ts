import { Context, type Effect, Layer, type Scope } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { RestrictedServer } from "../../contract/domain/Key.ts"
import type { Labels } from "../../contract/domain/Labels.ts"
import type { OperationChange } from "../../contract/domain/Operation.ts"
import type { Server, ServerStats } from "../../contract/domain/Server.ts"
import type { InstallProgress } from "../../contract/domain/ServerEvent.ts"
import type { EventFilter } from "./EncodedEvent.ts"

/** News of a server that is not in the journal: only open streams get it. */
export type LiveNews = {
  readonly server_id: ServerId
  readonly blueprint_id: string
  readonly labels: Labels
  /** Milliseconds since the epoch. */
  readonly at: number
} & (
  | { readonly topic: "install"; readonly payload: InstallProgress }
  | { readonly topic: "operation"; readonly payload: OperationChange }
  /** Only streams with this `interval`, in seconds, get them. */
  | { readonly topic: "stats"; readonly payload: ServerStats; readonly interval: number }
)

/** Carries live news to the streams; the event hub is the receiver. */
export class LiveFeed extends Context.Service<
  LiveFeed,
  {
    publish(news: ReadonlyArray<LiveNews>): void
    receive(receiver: (news: ReadonlyArray<LiveNews>) => void): void
  }
>()("muster/events/LiveFeed") {
  static readonly layer = Layer.sync(LiveFeed, () => {
    let receiver: (news: ReadonlyArray<LiveNews>) => void = () => undefined
    return LiveFeed.of({
      publish: (news) => receiver(news),
      receive: (next) => {
        receiver = next
      }
    })
  })
}

/** Measures servers for the topic `stats`; the servers implement it. */
export class StatsFeed extends Context.Service<
  StatsFeed,
  {
    /** Measures the servers of a filter until the scope closes. Filters with one interval share the measurements. */
    listen(filter: EventFilter): Effect.Effect<void, never, Scope.Scope>
  }
>()("muster/events/StatsFeed") {}

/** The summaries of servers (spec 3.1), of recently deleted ones too. The read model of servers implements it. */
export class ServerSummaries extends Context.Service<
  ServerSummaries,
  {
    find(server_id: ServerId): Server | undefined
    facts(server_id: ServerId): RestrictedServer | undefined
    /** Returns nothing if the server has no name or is unknown. */
    nameOf(server_id: ServerId): string | undefined
  }
>()("muster/events/ServerSummaries") {}
