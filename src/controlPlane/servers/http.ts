import { Clock, Effect, Option, Schema } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { CommandsRequest, type ServersRequest } from "../../contract/api/ServersGroup.ts"
import { auditOpened, describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { type NotFound, Unauthorized } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { expiryOf } from "../../contract/domain/Labels.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import { paginated, paginatedLog } from "../../contract/domain/Pagination.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { makeServeEvents } from "../events/http.ts"
import { OpenStreams, StreamShutdown } from "../events/OpenStreams.ts"
import { Tickets } from "../events/Tickets.ts"
import { checkHandshake } from "../events/webSocketUpgrade.ts"
import { serveConsole } from "../events/websocket.ts"
import { conditional } from "../http/conditional.ts"
import { LargeAnswers } from "../http/LargeAnswers.ts"
import { CurrentPrincipal, KeyEnds, requireRight, rightOfPower, ServerAccess } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { filled, pageAfter } from "../http/requestUrl.ts"
import { CurrentSlsRequest, slsPhase } from "../http/sls.ts"
import { makeCreate, runOverrides } from "./createHttp.ts"
import { KeptServers } from "./kept/KeptServers.ts"
import { linePage, logPage, newestLines, parseInclude } from "./list/listQuery.ts"
import { type Include, includeOf, plain } from "./list/summary.ts"
import { makeLists, respondWithFields } from "./listHttp.ts"
import { makeBulk, ServerManager } from "./ServerManager.ts"
import { makeForSeconds, type WaitTarget } from "./waiting.ts"

/** The longest line that a daemon keeps, in bytes. */
const LINE_BYTES = 8 * 1024

/** The longest wait of a read, in seconds, unless the query has another. */
const DEFAULT_TIMEOUT = 30

const CRASHES = 20

const patched = includeOf(["labels", "name", "expires_at", "definition"])

const checkPower = (action: PowerAction) =>
  Effect.andThen(describeAudit({ action: `server.power.${action}` }), requireRight(rightOfPower(action)))

const decodeCommands = Schema.decodeEffect(CommandsRequest)

const answered = <E, R>(outcomes: Effect.Effect<Iterable<readonly [string, unknown]>, E, R>) =>
  Effect.flatMap(outcomes, (fields) => respondWithFields(fields))

/** Reads one server, and waits for a state first if the query has `wait`. */
const makeGet = Effect.gen(function* () {
  const servers = yield* ServerManager
  const keyEnds = yield* KeyEnds
  const access = yield* ServerAccess
  const forSeconds = yield* makeForSeconds

  const getAfter = Effect.fnUntraced(function* (
    id: ServerId,
    include: Include,
    target: WaitTarget,
    seconds: number
  ) {
    const waited = yield* forSeconds(
      Effect.raceFirst(
        Effect.as(Effect.raceFirst(servers.waitFor(id, target), access.ends(id)), "reached" as const),
        Effect.as(keyEnds(yield* CurrentPrincipal), "revoked" as const)
      ),
      seconds
    )
    if (Option.contains(waited, "revoked"))
      return yield* HttpServerRespondable.toResponse(Unauthorized.keyEnded())
    return yield* conditional(
      yield* servers.get(id, include),
      Option.isNone(waited) ? { "x-muster-timed-out": "true" } : {}
    )
  })

  return Effect.fnUntraced(function* ({ params: { server }, query }: ServersRequest<"get">) {
    const include = parseInclude(query.include)
    const { timeout = "", wait = "" } = query
    const identified = <A, E, R>(read: (id: ServerId) => Effect.Effect<A, NotFound | E, R>) =>
      Effect.catchTag(read(server), "NotFound", () => Effect.flatMap(servers.identify(server), read))
    if (wait === "") return yield* conditional(yield* identified((id) => servers.get(id, include)))
    const id = yield* identified((known) => Effect.as(servers.get(known, plain), known))
    return yield* getAfter(id, include, wait, timeout === "" ? DEFAULT_TIMEOUT : Number(timeout))
  })
})

/** Opens a console: its lines go to the socket, and the commands of the socket to the server. */
const makeConsole = Effect.gen(function* () {
  const servers = yield* ServerManager
  const { begun } = yield* StreamShutdown
  const keyEnds = yield* KeyEnds
  const access = yield* ServerAccess
  const streams = yield* OpenStreams
  const tickets = yield* Tickets
  return Effect.fnUntraced(
    function* ({ params, request }: ServersRequest<"console">) {
      yield* servers.status(params.server)
      yield* checkHandshake(request)
      yield* streams.take
      const content = JSON.stringify(["console", params.server])
      const replaced = yield* tickets.open({ content, start: 0, cursor: undefined })
      const lines = yield* servers.console(params.server)
      const principal = yield* CurrentPrincipal
      yield* auditOpened(101)
      const send = (line: string) =>
        Effect.gen(function* () {
          yield* requireRight("commands")
          const { commands } = yield* decodeCommands({ commands: [line] })
          yield* servers.commands(params.server, commands)
        }).pipe(
          // The socket has no way to answer a refused line.
          Effect.catch((error) => Effect.logDebug(`console line refused: ${error.message}`))
        )
      const revoked = Effect.raceFirst(keyEnds(principal), access.ends(params.server))
      return yield* serveConsole(request, lines, send, { shutdown: begun, revoked, replaced })
    },
    Effect.catchTag("LimitReached", limitResponse),
    Effect.scoped
  )
})

/** Handlers of the server routes (spec 3). */
export const ServersHandlers = handlersOf(
  ApplicationApi,
  "servers",
  Effect.fn(function* (handlers) {
    const kept = yield* KeptServers
    const servers = yield* ServerManager
    const bulk = yield* makeBulk
    const { making } = yield* LargeAnswers
    const serveEvents = yield* makeServeEvents
    const lists = yield* makeLists
    const create = yield* makeCreate
    const get = yield* makeGet
    const openConsole = yield* makeConsole

    return handlers
      .handleAll({
        ...lists,
        create,
        get,
        crashesOf: ({ params, query }) => servers.crashesOf(params.server, pageAfter(query, CRASHES)),
        crashes: Effect.fnUntraced(function* ({ query }) {
          const { blueprint_id, node_id, server, since = "" } = query
          return yield* servers.crashes({
            ...pageAfter(query, CRASHES),
            ...filled({ blueprint_id, node_id, server }),
            ...(since === "" ? {} : { since: Date.parse(since) })
          })
        }),
        patch: Effect.fnUntraced(function* ({ params, payload }) {
          const { expires_in, overrides: _, priority: __, run: ___, ...change } = payload
          const { overrides: ____, ...fields } = payload
          const overrides = { ...payload.overrides, ...runOverrides(payload) }
          // Also for a refused request. The names below these may be anything.
          yield* describeAudit({ changes: Object.keys({ ...fields, ...overrides }) })
          const now = yield* Clock.currentTimeMillis
          const expires_at = typeof expires_in === "number" ? expiryOf(now, expires_in) : null
          yield* servers.patch(params.server, {
            ...change,
            ...(Object.keys(overrides).length === 0 ? {} : { overrides }),
            ...(expires_in === undefined ? {} : { expires_at })
          })
          return yield* conditional(yield* servers.get(params.server, patched))
        }),
        powerMany: ({ payload: { action, selector, wait_seconds } }) =>
          Effect.andThen(
            checkPower(action),
            answered(bulk(selector, (id) => servers.power(id, action, wait_seconds)))
          ),
        removeMany: ({ payload: { force = false, purge = false, selector } }) =>
          answered(bulk(selector, (id) => servers.remove(id, { force, purge }))),
        remove: Effect.fnUntraced(function* ({
          params: { server },
          query: { force = false, purge = false }
        }) {
          yield* Effect.catchTag(servers.remove(server, { force, purge }), "NotFound", (error) =>
            purge ? kept.purge(server) : Effect.fail(error)
          )
        }),
        undelete: Effect.fnUntraced(function* ({ params }) {
          yield* requireRight("create")
          return yield* kept.undelete(params.server)
        }),
        power: ({ params, payload: { action, wait_seconds } }) =>
          Effect.andThen(checkPower(action), servers.power(params.server, action, wait_seconds)),
        status: ({ params }) => Effect.map(servers.status(params.server), (status) => ({ status })),
        stats: ({ params, query }) =>
          servers.stats(params.server, { update_disk_usage: query.update_disk_usage === true }),
        logs: Effect.fnUntraced(function* ({ params, query }) {
          const at = { ...logPage(query), times: query.include?.split(",").includes("times") ?? false }
          return yield* making(at.per_page * LINE_BYTES)(
            Effect.map(servers.logs(params.server, at), (page) => paginatedLog(page, at))
          )
        }),
        commands: ({ params, payload }) => servers.commands(params.server, payload.commands),
        reset: ({ params }) => servers.reset(params.server),
        reinstall: ({ params, payload }) => servers.reinstall(params.server, payload?.definition),
        upgrade: Effect.fnUntraced(function* ({ params, payload }) {
          const { blueprint_id, dry_run = false } = payload ?? {}
          if (dry_run) yield* withoutAudit
          const upgrade = yield* servers.upgrade(params.server, {
            dry_run,
            ...(blueprint_id === undefined ? {} : { blueprint_id })
          })
          return HttpServerResponse.jsonUnsafe(upgrade, { status: dry_run ? 200 : 202 })
        }),
        install: Effect.fnUntraced(function* ({ params, query }) {
          const { script, ...report } = yield* servers.install(params.server)
          const shown = query.script === false || script === undefined ? report : { ...report, script }
          return (yield* CurrentSlsRequest) === undefined
            ? shown
            : HttpServerResponse.jsonUnsafe({ ...shown, phase: slsPhase(shown.phase) })
        }),
        installLogs: Effect.fnUntraced(function* ({ params, query }) {
          const at = linePage(query)
          const isNewestFirst = (yield* CurrentSlsRequest) !== undefined
          const read = (page: typeof at) => servers.installLogs(params.server, page)
          return yield* making(at.per_page * LINE_BYTES)(
            Effect.map(isNewestFirst ? newestLines(read, at) : read(at), (page) => paginated(page, at))
          )
        })
      })
      .handle(
        "events",
        Effect.fnUntraced(function* ({ params, request }) {
          yield* servers.status(params.server)
          return yield* serveEvents(request, params.server)
        })
      )
      .handle("console", openConsole)
  })
)
