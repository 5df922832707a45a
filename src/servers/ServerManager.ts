import { Context, Effect, Layer, Option, type Scope, type Stream } from "effect"
import type { LinesRequest } from "../api/Daemon.ts"
import {
  type Conflict,
  type InvalidRequest,
  type NodeFailure,
  NotFound,
  type Unavailable
} from "../domain/errors.ts"
import type { InstallReport, PowerAction } from "../domain/NodeMessages.ts"
import type { Page } from "../domain/Pagination.ts"
import type { ServerStats } from "../domain/Server.ts"
import type { ServerStatus } from "../domain/ServerStatus.ts"
import type { CreateRequest } from "./CreateRequest.ts"
import { makeCreate } from "./creation.ts"
import { followReservations } from "./index/reservations.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import type { Include } from "./index/summary.ts"
import { makeManagement } from "./management.ts"
import { makeRemove } from "./removal.ts"

/** Errors of routes that ask the server's node. */
export type NodeCallError = NotFound | Conflict | InvalidRequest | NodeFailure | Unavailable

/** Creates, lists and manages servers (contract, 4.4, 4.5, 4.10; decisions, section 3). Reads touch memory only. */
export class ServerManager extends Context.Service<
  ServerManager,
  {
    /** JSON array of summaries, by id. */
    list(include: Include): Effect.Effect<Uint8Array>
    readonly ids: Effect.Effect<ReadonlyArray<string>>
    /** JSON of one summary. */
    get(id: string, include: Include): Effect.Effect<Uint8Array, NotFound>
    /**
     * Returns once the record is durable and its ports are reserved. `body` is the JSON of the summary.
     *
     * @error NotFound       unknown blueprint or node
     * @error InvalidRequest overrides that are not possible
     * @error Conflict       the idempotency key came with another body
     * @error Unavailable    no node fits, or the database cannot be reached
     */
    create(
      request: CreateRequest
    ): Effect.Effect<
      { readonly id: string; readonly body: string },
      NotFound | InvalidRequest | Conflict | Unavailable
    >
    remove(id: string, options: { readonly force: boolean }): Effect.Effect<void, NodeCallError>
    power(id: string, action: PowerAction, wait_seconds: number): Effect.Effect<void, NodeCallError>
    status(id: string): Effect.Effect<ServerStatus, NotFound | Unavailable>
    stats(
      id: string,
      options: { readonly update_disk_usage: boolean }
    ): Effect.Effect<ServerStats, NodeCallError>
    logs(id: string, request: LinesRequest): Effect.Effect<Page<string>, NodeCallError>
    commands(id: string, lines: ReadonlyArray<string>): Effect.Effect<void, NodeCallError>
    reset(id: string): Effect.Effect<void, NodeCallError>
    reinstall(id: string): Effect.Effect<void, NodeCallError>
    install(id: string): Effect.Effect<InstallReport, NodeCallError>
    installLogs(id: string, request: LinesRequest): Effect.Effect<Page<string>, NodeCallError>
    console(id: string): Effect.Effect<Stream.Stream<string>, NodeCallError, Scope.Scope>
    /** Number of servers by status, for metrics. */
    readonly counts: Effect.Effect<ReadonlyMap<ServerStatus, number>>
  }
>()("muster/servers/ServerManager") {
  static readonly layer = Layer.effect(
    ServerManager,
    Effect.gen(function* () {
      const index = yield* ServerIndex
      yield* followReservations
      const create = yield* makeCreate
      const remove = yield* makeRemove
      const management = yield* makeManagement

      return ServerManager.of({
        list: index.list,
        ids: index.ids,
        counts: index.counts,
        get: Effect.fn("ServerManager.get")(function* (id, include) {
          // Another replica may have just created it.
          if (Option.isNone(yield* index.find(id))) yield* Effect.ignore(index.lookUp(id))
          const summary = Option.getOrUndefined(yield* index.summary(id, include))
          return summary ?? (yield* NotFound.server(id))
        }),
        create,
        remove,
        ...management
      })
    })
  )
}
