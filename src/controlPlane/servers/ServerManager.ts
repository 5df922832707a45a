import { Context, Effect, Layer } from "effect"
import { RequestId } from "../../contract/domain/ApiError.ts"
import { auditObject } from "../../contract/domain/AuditedRequest.ts"
import {
  Conflict,
  type Forbidden,
  type InsufficientStorage,
  type InvalidRequest,
  NotFound,
  type PreconditionFailed,
  type RangeNotSatisfiable,
  type TooManyRequests,
  Unauthorized,
  type Unavailable
} from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { withProgress } from "../../contract/domain/InstallState.ts"
import { admits, type RestrictedServer } from "../../contract/domain/Key.ts"
import type { InstallReport } from "../../contract/domain/NodeMessages.ts"
import type { ConsolePage } from "../../contract/domain/Pagination.ts"
import type { BulkOutcomes, Selector } from "../../contract/domain/Selector.ts"
import type { Daemon, DaemonError, LinesRequest } from "../../contract/nodeApi/Daemon.ts"
import { pause } from "../../shared/work/slices.ts"
import { etagOf, type Versioned } from "../http/conditional.ts"
import { CurrentPrincipal, currentRestriction, KeyEnds, ServerAccess } from "../http/Principal.ts"
import { type CrashQuery, CrashRepo } from "../store/repos/CrashRepo.ts"
import { Store } from "../store/Store.ts"
import { makeCreation } from "./creation.ts"
import { InstallProgresses } from "./list/InstallProgresses.ts"
import { filterOf, type ListRequest, type ServerFilter, unknownAfter } from "./list/listQuery.ts"
import { followReservations } from "./list/reservations.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { has, type Include, withStats } from "./list/summary.ts"
import { makeRedefining } from "./patchAndUpgrade.ts"
import { callerName, makePower } from "./powerActions.ts"
import { wrongStatus } from "./state/conflicts.ts"
import { isUnknownToNode, makeNodeCalls, makeNodeErrors, type NodeCallError } from "./state/nodeCalls.ts"
import { makeRemove } from "./state/removal.ts"
import { isFinished } from "./state/transitions.ts"
import { makeStatsOf } from "./stats.ts"
import { makeWaitFor, makeWaitForReport } from "./waiting.ts"

const noLines: ConsolePage = { items: [], total: 0 }

/**
 * The routes that call a server's node (spec 3.9). They check existence (404), then state (409), then call (503,
 * 502). Only the node's reports change the status.
 */
const makeNodeRequests = Effect.gen(function* () {
  const progresses = yield* InstallProgresses
  const waitForReport = yield* makeWaitForReport
  const { call, recordOf, refuseBusy, refuseMoving } = yield* makeNodeCalls
  const { failAway, unavailableReason } = yield* makeNodeErrors

  const ask = <A, R>(id: ServerId, use: (daemon: Daemon) => Effect.Effect<A, DaemonError, R>) =>
    Effect.flatMap(recordOf(id), (record) => call(record, use))

  const lines = Effect.fnUntraced(function* (
    id: ServerId,
    use: (daemon: Daemon) => Effect.Effect<ConsolePage, DaemonError>
  ) {
    const record = yield* recordOf(id)
    return yield* call(record, (daemon) =>
      Effect.catchIf(
        use(daemon),
        (error) => isUnknownToNode(error) && !isFinished(record.install),
        () => Effect.succeed(noLines)
      )
    )
  })

  const commands = Effect.fn("ServerManager.commands")(function* (
    id: ServerId,
    input: ReadonlyArray<string>
  ) {
    const record = yield* recordOf(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status !== "running" && record.status !== "starting") return yield* wrongStatus(record)
    const by = yield* callerName
    yield* call(record, (daemon) => daemon.commands(id, input, by))
  })

  const reset = Effect.fn("ServerManager.reset")(function* (id: ServerId) {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    yield* refuseBusy(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status === "installing") return yield* wrongStatus(record)
    const sequence = yield* call(record, (daemon) => daemon.reset(id))
    if (sequence !== undefined) yield* waitForReport(record, sequence)
  })

  const install = Effect.fn("ServerManager.install")(function* (id: ServerId) {
    const record = yield* recordOf(id)
    const script = record.definition.install_script
    const waits = record.install.phase === "pending" ? yield* unavailableReason(record.node_id) : undefined
    const steps = record.install.steps ?? []
    const progress = progresses.of(record)
    return {
      ...record.install,
      steps: progress === undefined ? steps : withProgress(steps, progress),
      ...(waits === undefined ? {} : { waiting_reason: waits }),
      entrypoint: script?.entrypoint ?? "",
      script: script?.script ?? "",
      skip_scripts: script?.skip_scripts ?? false
    } satisfies InstallReport
  })

  return {
    status: (id: ServerId) => Effect.map(recordOf(id), (record) => record.status),
    /**
     * @param wait_seconds default: the stop timeout of the server
     * @error Forbidden `wait_seconds` is below the stop timeout, and the caller may not kill
     */
    power: yield* makePower,
    commands,
    reset,
    install,
    stats: Effect.fn("ServerManager.stats")(
      (id: ServerId, options: { readonly update_disk_usage: boolean }) =>
        ask(id, (daemon) => daemon.stats(id, options))
    ),
    logs: Effect.fn("ServerManager.logs")((id: ServerId, request: LinesRequest) =>
      lines(id, (daemon) => daemon.logs(id, request))
    ),
    installLogs: Effect.fn("ServerManager.installLogs")((id: ServerId, request: LinesRequest) =>
      lines(id, (daemon) => daemon.installLogs(id, request))
    ),
    console: Effect.fn("ServerManager.console")((id: ServerId) => ask(id, (daemon) => daemon.console(id)))
  } as const
})

const MOST_IDS = 10

/** Pages through crashes (spec 3.18). */
const makeCrashes = Effect.gen(function* () {
  const index = yield* ServerIndex
  const crashRepo = yield* CrashRepo
  const store = yield* Store

  const crashes = Effect.fn("ServerManager.crashes")(function* (asked: CrashQuery) {
    const within = yield* currentRestriction
    const mayRead = (server: RestrictedServer) => admits(within, index.factsOf(server.id) ?? server)
    const query = within === undefined ? asked : { ...asked, mayRead }
    return (yield* store.read(crashRepo.find(query))) ?? (yield* unknownAfter("crash", query.after))
  })

  return {
    /** Returns crashes, newest first. @error InvalidRequest `after` is no crash */
    crashes,
    /** Returns the crashes of a server, also a deleted one. @error NotFound it is unknown and has no crash */
    crashesOf: Effect.fn("ServerManager.crashesOf")(function* (id: ServerId, query: CrashQuery) {
      const found = yield* crashes({ ...query, server_id: id })
      if (found.length === 0) yield* index.mustBeKnown(id, yield* currentRestriction)
      return found
    })
  }
})

/** Creates, lists and manages servers (spec 3). Reads of servers touch memory only. */
export class ServerManager extends Context.Service<ServerManager>()("muster/servers/ServerManager", {
  make: Effect.gen(function* () {
    const index = yield* ServerIndex
    yield* followReservations
    const statsOf = yield* makeStatsOf

    return {
      /** The state of all servers now, for the `ETag` of lists. */
      version: index.version,
      size: index.size,
      /** Returns the readable servers of a request, by creation. @error InvalidRequest `after` is no server */
      select: Effect.fn("ServerManager.select")(function* ({ filter, ...request }: ListRequest) {
        const within = yield* currentRestriction
        const page = yield* index.select({ ...request, filter: { ...filter, within } })
        return page ?? (yield* unknownAfter("server", request.after))
      }),
      /**
       * JSON array of the ids or the summaries of all servers that a filter admits, made as it is read. The key of the
       * request is no longer in the context then.
       */
      stream: (filter: ServerFilter, what: Include | "ids") =>
        Effect.map(currentRestriction, (within) => index.stream({ ...filter, within }, what)),
      /** Returns the id of the only server whose id begins with a text. @error Conflict several ids do */
      identify: Effect.fn("ServerManager.identify")(function* (prefix: string) {
        const ids = yield* index.withPrefix(prefix, MOST_IDS + 1, yield* currentRestriction)
        const [id] = ids
        if (id === undefined) return yield* NotFound.serverBeginning(prefix)
        if (ids.length === 1) return id
        const shown = ids.slice(0, MOST_IDS).join(", ")
        return yield* new Conflict({
          detail: `several servers have an id that begins with ${prefix}: ${shown}${ids.length > MOST_IDS ? ", ..." : ""}`,
          hint: "Send more characters of the id."
        })
      }),
      /** Waits until a server is in a state (spec 3.8). @error Conflict the server cannot reach it */
      waitFor: yield* makeWaitFor,
      counts: index.counts,
      /** Number of servers that wait for their nodes to start them. */
      waiting: index.waiting,
      /** Returns the figures of servers from their nodes. */
      statsOf,
      /** JSON of one summary, with its figures if `include` has them. */
      get: Effect.fnUntraced(function* (
        id: ServerId,
        include: Include
      ): Effect.fn.Return<Versioned, NotFound> {
        const found = index.summary(id, include, yield* currentRestriction)
        const summary = yield* Effect.catch(found, () => NotFound.server(id))
        if (summary === undefined) return yield* NotFound.server(id)
        if (!has(include, "stats")) return summary
        const body = withStats(summary.body, (yield* statsOf([id])).get(id) ?? null)
        return { body, etag: etagOf(body), cursor: summary.cursor }
      }),
      ...(yield* makeCreation),
      ...(yield* makeCrashes),
      remove: yield* makeRemove,
      ...(yield* makeNodeRequests),
      ...(yield* makeRedefining)
    }
  })
}) {
  static readonly layer = Layer.effect(ServerManager, ServerManager.make)
}

const AT_ONCE = 64

/** The failures of one server; a bulk action on files has those of its node, too. */
export type BulkFailure =
  | NodeCallError
  | Forbidden
  | PreconditionFailed
  | RangeNotSatisfiable
  | InsufficientStorage
  | TooManyRequests

const named = (ids: ReadonlyArray<ServerId>) => ({ filter: { labels: [], ids: new Set(ids) } })

/**
 * Acts on selected servers, each with its outcome (spec 3.13): 404 outside the key's limits, 401 without a valid key.
 */
export const makeBulk = Effect.gen(function* () {
  const servers = yield* ServerManager
  const access = yield* ServerAccess
  const keyEnds = yield* KeyEnds
  return Effect.fn("bulk")(function* (
    selector: Selector,
    act: (id: ServerId) => Effect.Effect<void, BulkFailure>
  ): Effect.fn.Return<
    ReadonlyArray<readonly [ServerId, BulkOutcomes[string]]>,
    InvalidRequest | Unavailable
  > {
    const page = yield* servers.select({ filter: yield* filterOf(selector) })
    const { ids = [] } = selector
    const others = ids.length === 0 ? [] : (yield* servers.select(named(ids))).ids
    const known = new Set([...page.ids, ...others])
    const unknown = ids.filter((id) => !known.has(id))
    const request_id = (yield* RequestId) ?? ""
    const ended = yield* Effect.forkChild(keyEnds(yield* CurrentPrincipal), { startImmediately: true })
    const allowed = Effect.fnUntraced(function* (id: ServerId) {
      if (ended.pollUnsafe() !== undefined) return yield* Unauthorized.keyEnded()
      if (!known.has(id) || !(yield* access.mayRead(id))) {
        return yield* yield* access.explained(id, NotFound.server(id))
      }
    })
    return yield* Effect.forEach(
      [...page.ids, ...new Set(unknown)],
      (id) =>
        Effect.andThen(Effect.andThen(pause, allowed(id)), auditObject(id)(act(id))).pipe(
          Effect.match({
            onFailure: ({ code, detail, hint, status }) => ({ code, status, detail, hint, request_id }),
            onSuccess: () => ({ status: 200 as const })
          }),
          Effect.map((outcome) => [id, outcome] as const)
        ),
      { concurrency: AT_ONCE }
    )
  })
})
