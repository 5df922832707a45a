import { Context, Effect, Layer, Option, type Scope, type Stream } from "effect"
import type { CreationPlan } from "../../contract/api/ServersGroup.ts"
import type { CrashRecord } from "../../contract/domain/CrashRecord.ts"
import {
  Conflict,
  type Forbidden,
  InvalidRequest,
  NotFound,
  type Unavailable
} from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { admits, type RestrictedServer } from "../../contract/domain/Key.ts"
import type { InstallReport, PowerAction } from "../../contract/domain/NodeMessages.ts"
import type { ConsolePage, Page } from "../../contract/domain/Pagination.ts"
import type { FiguresById, ServerStats } from "../../contract/domain/Server.ts"
import type { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import type { LinesRequest } from "../../contract/nodeApi/Daemon.ts"
import type { Versioned } from "../http/conditional.ts"
import { CurrentPrincipal, currentRestriction } from "../http/Principal.ts"
import { type CrashQuery, CrashRepo } from "../store/repos/CrashRepo.ts"
import { Store } from "../store/Store.ts"
import { type CreateRequest, makeCreation } from "./creation.ts"
import { followReservations } from "./list/reservations.ts"
import type { ListRequest, ServerFilter } from "./list/ServerFilter.ts"
import { type IndexVersion, ServerIndex, type ServerPage } from "./list/ServerIndex.ts"
import { withStats } from "./list/SummaryCache.ts"
import { has, type Include } from "./list/summary.ts"
import { makeManagement } from "./management.ts"
import {
  makeRedefining,
  type ReinstallDefinition,
  type ServerChange,
  type Upgrade,
  type UpgradeRequest
} from "./redefining.ts"
import type { NodeCallError } from "./state/nodeCalls.ts"
import { makeRemove } from "./state/removal.ts"
import { makeStatsOf } from "./stats.ts"
import { makeWaitFor, type WaitTarget } from "./waiting.ts"

const MOST_IDS = 10

const unknownAfter = (kind: "crash" | "server", id: string | undefined) =>
  new InvalidRequest({
    detail: `query field after: no ${kind} has this id: ${id}`,
    hint: "Begin with the first page again: leave `after` out."
  })

/** Creates, lists and manages servers (spec 3). Reads touch memory only. */
export class ServerManager extends Context.Service<
  ServerManager,
  {
    /** The state of all servers now, for the `ETag` of lists. */
    readonly version: Effect.Effect<IndexVersion>
    readonly size: Effect.Effect<number>
    /** Returns the readable servers of a request, by creation. @error InvalidRequest `after` is no server */
    select(request: ListRequest): Effect.Effect<ServerPage, InvalidRequest>
    /** JSON array of the ids or the summaries of all servers that a filter admits, made as it is read. */
    stream(filter: ServerFilter, what: Include | "ids"): Effect.Effect<Stream.Stream<Uint8Array>>
    /** Returns the figures of servers from their nodes. */
    statsOf(ids: ReadonlyArray<ServerId>): Effect.Effect<FiguresById>
    /** JSON of one summary, with its figures if `include` has them. */
    get(id: ServerId, include: Include): Effect.Effect<Versioned, NotFound>
    /** Returns the id of the only server whose id begins with a text. @error Conflict several ids do */
    identify(prefix: string): Effect.Effect<ServerId, NotFound | Conflict>
    /** Waits until a server is in a state (spec 3.6). @error Conflict the server cannot reach it */
    waitFor(id: ServerId, target: WaitTarget): Effect.Effect<void, NotFound | Conflict>
    /**
     * Returns once the record is durable and its ports are reserved. `body` is the JSON of the summary, `start`
     * whether the server starts once installed.
     *
     * @error NotFound       unknown blueprint or node
     * @error InvalidRequest overrides that are not possible
     * @error Conflict       the idempotency key came with another body
     * @error Forbidden      the key is limited to other servers, or its quota is used up
     * @error Unavailable    no node fits, or the database cannot be reached
     */
    create(
      request: CreateRequest
    ): Effect.Effect<
      { readonly id: ServerId; readonly body: string; readonly start: boolean },
      NotFound | InvalidRequest | Conflict | Forbidden | Unavailable
    >
    /** Returns what {@link create} would do now, with its errors. Stores and reserves nothing. */
    plan(
      request: CreateRequest
    ): Effect.Effect<CreationPlan, NotFound | InvalidRequest | Forbidden | Unavailable>
    /**
     * Changes name, labels, expiry and overrides of a server (spec 3.12).
     * @error Conflict       the server is being deleted; with overrides also: it migrates, or its blueprint is gone
     * @error Forbidden      the change deletes the server, and the caller may not delete servers
     * @error InvalidRequest too many labels, or overrides that do not fit
     * @error Unavailable    limits that do not fit on the node
     */
    patch(id: ServerId, change: ServerChange): Effect.Effect<void, NodeCallError | Forbidden>
    /** Resolves the definition of a server again and returns the changes. Errors as {@link patch}. */
    upgrade(id: ServerId, request: UpgradeRequest): Effect.Effect<Upgrade, NodeCallError | Forbidden>
    /** Returns crashes, newest first (spec 3.18). @error InvalidRequest `after` is no crash */
    crashes(query: CrashQuery): Effect.Effect<ReadonlyArray<CrashRecord>, InvalidRequest | Unavailable>
    /** Returns the crashes of a server, also a deleted one. @error NotFound it is unknown and has no crash */
    crashesOf(
      id: ServerId,
      query: CrashQuery
    ): Effect.Effect<ReadonlyArray<CrashRecord>, NotFound | InvalidRequest | Unavailable>
    remove(id: ServerId, options: { readonly force: boolean }): Effect.Effect<void, NodeCallError>
    /**
     * @param wait_seconds default: the stop timeout of the server
     * @error Forbidden `wait_seconds` is below the stop timeout, and the caller may not kill
     */
    power(
      id: ServerId,
      action: PowerAction,
      wait_seconds?: number
    ): Effect.Effect<void, NodeCallError | Forbidden>
    status(id: ServerId): Effect.Effect<ServerStatus, NotFound | Unavailable>
    stats(
      id: ServerId,
      options: { readonly update_disk_usage: boolean }
    ): Effect.Effect<ServerStats, NodeCallError>
    logs(id: ServerId, request: LinesRequest): Effect.Effect<ConsolePage, NodeCallError>
    commands(id: ServerId, lines: ReadonlyArray<string>): Effect.Effect<void, NodeCallError>
    reset(id: ServerId): Effect.Effect<void, NodeCallError>
    /** Installs an offline server again. Today's definition adds the errors of {@link patch}. */
    reinstall(id: ServerId, definition?: ReinstallDefinition): Effect.Effect<void, NodeCallError | Forbidden>
    install(id: ServerId): Effect.Effect<InstallReport, NodeCallError>
    installLogs(id: ServerId, request: LinesRequest): Effect.Effect<Page<string>, NodeCallError>
    console(id: ServerId): Effect.Effect<Stream.Stream<string>, NodeCallError, Scope.Scope>
    readonly counts: Effect.Effect<ReadonlyMap<ServerStatus, number>>
    /** Number of servers that wait for their nodes to start them. */
    readonly waiting: Effect.Effect<number>
  }
>()("muster/servers/ServerManager") {
  static readonly layer = Layer.effect(
    ServerManager,
    Effect.gen(function* () {
      const index = yield* ServerIndex
      yield* followReservations
      const { create, plan } = yield* makeCreation
      const statsOf = yield* makeStatsOf
      const remove = yield* makeRemove
      const management = yield* makeManagement
      const redefining = yield* makeRedefining
      const waitFor = yield* makeWaitFor

      const crashRepo = yield* CrashRepo
      const store = yield* Store
      const crashes = Effect.fn("ServerManager.crashes")(function* (asked: CrashQuery) {
        const within = yield* currentRestriction
        const query =
          within === undefined
            ? asked
            : {
                ...asked,
                mayRead: (server: RestrictedServer) => admits(within, index.factsOf(server.id) ?? server)
              }
        const found = yield* store.read(crashRepo.find(query))
        if (found === undefined) {
          return yield* unknownAfter("crash", query.after)
        }
        return found
      })
      const crashesOf = Effect.fn("ServerManager.crashesOf")(function* (id: ServerId, query: CrashQuery) {
        const found = yield* crashes({ ...query, server_id: id })
        if (found.length === 0 && !(yield* isReadable(id))) return yield* NotFound.server(id)
        return found
      })

      const identify = Effect.fn("ServerManager.identify")(function* (prefix: string) {
        const ids = yield* index.withPrefix(prefix, MOST_IDS + 1, yield* currentRestriction)
        const [id] = ids
        if (id === undefined) return yield* NotFound.serverBeginning(prefix)
        if (ids.length === 1) return id
        const named = ids.slice(0, MOST_IDS).join(", ")
        return yield* new Conflict({
          detail: `several servers have an id that begins with ${prefix}: ${named}${ids.length > MOST_IDS ? ", ..." : ""}`,
          hint: "Send more characters of the id."
        })
      })

      const isReadable = (id: ServerId) =>
        Effect.flatMap(currentRestriction, (within) =>
          Effect.match(index.lookUpWithin(id, within), { onFailure: () => false, onSuccess: Option.isSome })
        )

      return ServerManager.of({
        version: index.version,
        size: index.size,
        select: Effect.fn("ServerManager.select")(function* ({ filter, ...request }) {
          const within = yield* currentRestriction
          const page = yield* index.select({
            ...request,
            filter: { ...filter, within }
          })
          return page ?? (yield* unknownAfter("server", request.after))
        }),
        // The key of the request is no longer in the context when the body is read.
        stream: (filter, what) =>
          Effect.map(currentRestriction, (within) => index.stream({ ...filter, within }, what)),
        identify,
        waitFor,
        counts: index.counts,
        waiting: index.waiting,
        statsOf,
        get: (id, include) =>
          Effect.withFiber((fiber) =>
            Effect.matchEffect(index.summary(id, include, fiber.getRef(CurrentPrincipal)?.restriction), {
              onFailure: () => NotFound.server(id),
              onSuccess: (summary): Effect.Effect<Versioned, NotFound> => {
                if (summary === undefined) return NotFound.server(id)
                if (!has(include, "stats")) return Effect.succeed(summary)
                return Effect.map(statsOf([id]), (stats) => {
                  const { body, etag } = withStats(summary, stats.get(id) ?? null)
                  return { body, etag, cursor: summary.cursor }
                })
              }
            })
          ),
        create,
        plan,
        crashes,
        crashesOf,
        remove,
        ...management,
        ...redefining
      })
    })
  )
}
