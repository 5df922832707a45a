import { createHash } from "node:crypto"
import { Clock, Duration, Effect, Iterable, Option, Schema } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { CommandsRequest } from "../../contract/api/ServersGroup.ts"
import { auditOpened, describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { Unauthorized } from "../../contract/domain/errors.ts"
import { NodeId, type ServerId } from "../../contract/domain/Id.ts"
import { expiryOf } from "../../contract/domain/Labels.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import { paginated, paginatedLog } from "../../contract/domain/Pagination.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import { inSlices } from "../../shared/work/slices.ts"
import { makeServeEvents } from "../events/http.ts"
import { OpenStreams, StreamShutdown } from "../events/OpenStreams.ts"
import { Tickets } from "../events/Tickets.ts"
import { checkHandshake } from "../events/webSocketUpgrade.ts"
import { serveConsole } from "../events/websocket.ts"
import { conditional, etagOf, respondWith, respondWithStream, unlessKnown } from "../http/conditional.ts"
import { type JsonBody, JsonWriter } from "../http/JsonWriter.ts"
import { LargeAnswers } from "../http/LargeAnswers.ts"
import { CurrentPrincipal, currentRestriction, KeyEnds, ServerAccess } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { linkOf, pageAfter } from "../http/requestUrl.ts"
import { requireRight, rightOfPower } from "../http/rights.ts"
import { CurrentSlsRequest, slsPhase } from "../http/sls.ts"
import type { ListRequest } from "./list/listQuery.ts"
import { linePage, logPage, newestLines, parseInclude, parseListQuery } from "./list/listQuery.ts"
import { LONGEST_WHOLE } from "./list/ServerIndex.ts"
import { has, type Include, includeOf, plain } from "./list/summary.ts"
import { makeBulk, ServerManager } from "./ServerManager.ts"
import type { WaitTarget } from "./waiting.ts"

/** The longest line that a daemon keeps, in bytes. */
const LINE_BYTES = 8 * 1024

const DEFAULT_TIMEOUT = 30

const CRASHES = 20

const patched = includeOf(["labels", "name", "expires_at", "definition"])

const LONGEST_WAIT_SECONDS = 60

/** Returns the seconds of `Prefer: wait=N` (RFC 7240), and ignores an unreadable preference. */
const preferredWait = (prefer: string | undefined): number | undefined => {
  const seconds = Number(/(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:[,;]|$)/i.exec(prefer ?? "")?.[1] ?? 0)
  return seconds < 1 ? undefined : Math.min(seconds, LONGEST_WAIT_SECONDS)
}

const runOverrides = <R, P>({ priority, run }: { readonly run?: R; readonly priority?: P }) => ({
  ...(run === undefined ? {} : { run }),
  ...(priority === undefined ? {} : { priority })
})

const checkPower = (action: PowerAction) =>
  Effect.andThen(describeAudit({ action: `server.power.${action}` }), requireRight(rightOfPower(action)))

const decodeCommands = Schema.decodeEffect(CommandsRequest)

/** Expected bytes of a summary, and the bound that counts of a list: a key makes two long lists at a time. */
const SUMMARY_BYTES = 512
const LIST_BYTES = 8 * 1024 * 1024
/** Bytes of a short list, which does not wait for room: that would cost as much as the list. */
const SHORT_BYTES = 128 * 1024
/** Short lists in memory for callers that ask again while no server changes. */
const RECENT = 32

/** Returns the tag of a list: the state of the servers and what else decides on the list. */
const tagOf = (state: string, ...of: ReadonlyArray<unknown>) =>
  etagOf(JSON.stringify([state, of], (_, value) => (value instanceof Set ? [...value] : value)))

const respondWithFields = (
  fields: Iterable<readonly [string, unknown]>,
  headers: Readonly<Record<string, string>> = {}
) => {
  const encoded = inSlices(function* () {
    const writer = new JsonWriter("{")
    for (const [name, value] of fields) {
      writer.add(`${JSON.stringify(name)}:${JSON.stringify(value)}`)
      yield
    }
    return yield* writer.end()
  })
  return Effect.flatMap(encoded, (body) => respondWith(body, headers))
}

const answered = <E, R>(outcomes: Effect.Effect<Iterable<readonly [string, unknown]>, E, R>) =>
  Effect.flatMap(outcomes, (fields) => respondWithFields(fields))

/** Handlers of the server routes (spec 3). */
export const ServersHandlers = handlersOf(
  ApplicationApi,
  "servers",
  Effect.fn(function* (handlers) {
    const servers = yield* ServerManager
    const bulk = yield* makeBulk
    const { making } = yield* LargeAnswers
    const serveEvents = yield* makeServeEvents
    const { begun } = yield* StreamShutdown
    const keyEnds = yield* KeyEnds
    const access = yield* ServerAccess
    const streams = yield* OpenStreams
    const tickets = yield* Tickets

    const recent = new RecentMap<string, { readonly body: JsonBody; readonly next: string | undefined }>(
      RECENT
    )

    const bounded = <A, E, R>({ limit }: ListRequest, size: number, list: Effect.Effect<A, E, R>) => {
      const bytes = Math.min(LIST_BYTES, SUMMARY_BYTES * Math.min(limit ?? Infinity, size))
      return bytes <= SHORT_BYTES ? list : making(bytes)(list)
    }

    const listOf = Effect.fnUntraced(function* (asked: ListRequest, include: Include, idsOnly: boolean) {
      const page = yield* servers.select(asked)
      return { body: yield* idsOnly ? page.encodeIds : page.encode(include), next: page.next }
    })

    /** Waits for some seconds. A service that stops ends the wait as its timeout does. */
    const forSeconds = <A, E, R>(waiting: Effect.Effect<A, E, R>, seconds: number) =>
      Effect.raceFirst(
        Effect.timeoutOption(waiting, Duration.seconds(seconds)),
        Effect.as(begun, Option.none<A>())
      )

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

    return handlers
      .handleAll({
        list: Effect.fnUntraced(function* ({ query, request }) {
          const include = parseInclude(query.include)
          const asked = yield* parseListQuery(query)
          const within = yield* currentRestriction
          // Before the selection, as a list may show later changes than its version.
          const { cursor, state } = yield* servers.version
          const size = yield* servers.size
          const hasFigures = query.ids_only !== true && has(include, "stats")
          if (hasFigures) {
            const withFigures = Effect.gen(function* () {
              const page = yield* servers.select(asked)
              const stats = yield* servers.statsOf(page.ids)
              const etag = tagOf(state, request.url, within, [...stats])
              return yield* unlessKnown({ etag, cursor }, (headers) =>
                Effect.flatMap(page.encode(include, stats), (body) =>
                  respondWith(body, { ...linkOf(request.url, page.next), ...headers })
                )
              )
            })
            return yield* bounded(asked, size, withFigures)
          }
          const etag = tagOf(state, request.url, within)
          const isWhole = size <= LONGEST_WHOLE || asked.limit !== undefined || asked.after !== undefined
          return yield* unlessKnown({ etag, cursor }, (headers) => {
            if (!isWhole) {
              const list = servers.stream(asked.filter, query.ids_only === true ? "ids" : include)
              return Effect.flatMap(list, (body) => respondWithStream(body, headers))
            }
            const respond = Effect.gen(function* () {
              const list = recent.get(etag) ?? (yield* listOf(asked, include, query.ids_only === true))
              if (list.body.length <= SHORT_BYTES) recent.set(etag, list)
              return yield* respondWith(list.body, { ...linkOf(request.url, list.next), ...headers })
            })
            return bounded(asked, size, respond)
          })
        }),
        statsOfMany: Effect.fnUntraced(function* ({ query, request }) {
          const asked = yield* parseListQuery(query)
          const respond = Effect.gen(function* () {
            const page = yield* servers.select(asked)
            const figures = yield* servers.statsOf(page.ids)
            return yield* respondWithFields(
              Iterable.map(page.ids, (id) => [id, figures.get(id) ?? null] as const),
              linkOf(request.url, page.next)
            )
          })
          return yield* bounded(asked, yield* servers.size, respond)
        }),
        create: Effect.fnUntraced(function* ({ payload, headers, query }) {
          const { node_id = "", priority: _, run: __, ...same } = payload
          const { start } = payload
          const sls = (yield* CurrentSlsRequest) !== undefined
          const asked = {
            ...same,
            ...(node_id === "" ? {} : { node_id: NodeId.make(node_id) }),
            overrides: { ...payload.overrides, ...runOverrides(payload) },
            ...(sls ? { startUnlessSaid: true } : {})
          }
          if (query.dry_run === true) return yield* Effect.andThen(withoutAudit, servers.plan(asked))
          const idempotencyKey = headers["idempotency-key"]
          const principal = yield* CurrentPrincipal
          const created = yield* servers.create({
            ...asked,
            ...(idempotencyKey === undefined
              ? {}
              : {
                  idempotency: {
                    // Each API key has a name space of its own.
                    key: `${principal?.key_id ?? ""}:${idempotencyKey}`,
                    body_hash: createHash("sha256")
                      .update(
                        JSON.stringify(sls && start === undefined ? { ...payload, start: true } : payload)
                      )
                      .digest("hex")
                  }
                })
          })
          const location = `/api/servers/${created.id}`
          const wait = preferredWait(headers.prefer)
          if (wait !== undefined) {
            const waiting = servers.waitFor(created.id, created.start ? "running" : "installed").pipe(
              // The creation was accepted, so a key that is no longer valid gets its response without the outcome.
              Effect.raceFirst(Effect.raceFirst(keyEnds(principal), access.ends(created.id)))
            )
            const failed = yield* forSeconds(waiting, wait).pipe(
              Effect.as(undefined),
              // An unsaved server may have ended by now.
              Effect.catchTag("NotFound", () => Effect.succeed(undefined)),
              Effect.catchTag("Conflict", (error) => HttpServerRespondable.toResponse(error))
            )
            if (failed !== undefined) return HttpServerResponse.setHeader(failed, "location", location)
          }
          return HttpServerResponse.text(created.body, {
            status: 202,
            contentType: "application/json",
            headers: {
              location,
              ...(wait === undefined ? {} : { "preference-applied": "wait" })
            }
          })
        }),
        get: Effect.fnUntraced(function* ({ params: { server }, query }) {
          const include = parseInclude(query.include)
          const { timeout = "", wait = "" } = query
          const whole = Effect.as(servers.get(server, plain), server)
          const id = yield* Effect.catchTag(whole, "NotFound", () => servers.identify(server))
          return yield* wait === ""
            ? conditional(yield* servers.get(id, include))
            : getAfter(id, include, wait, timeout === "" ? DEFAULT_TIMEOUT : Number(timeout))
        }),
        crashesOf: ({ params, query }) => servers.crashesOf(params.server, pageAfter(query, CRASHES)),
        crashes: Effect.fnUntraced(function* ({ query }) {
          const { blueprint_id = "", node_id = "", server = "", since = "" } = query
          return yield* servers.crashes({
            ...pageAfter(query, CRASHES),
            ...(since === "" ? {} : { since: Date.parse(since) }),
            ...(blueprint_id === "" ? {} : { blueprint_id }),
            ...(node_id === "" ? {} : { node_id }),
            ...(server === "" ? {} : { server })
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
        removeMany: ({ payload: { force = false, selector } }) =>
          answered(bulk(selector, (id) => servers.remove(id, { force }))),
        remove: ({ params, query }) => servers.remove(params.server, { force: query.force === true }),
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
      .handle(
        "console",
        Effect.fnUntraced(
          function* ({ params, request }) {
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
      )
  })
)
