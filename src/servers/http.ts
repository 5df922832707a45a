import { createHash } from "node:crypto"
import { Effect, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { CurrentPrincipal, KeyEnds } from "../api/Principal.ts"
import { limitResponse } from "../api/rateLimit.ts"
import { CommandsRequest } from "../api/ServersGroup.ts"
import { InvalidRequest } from "../domain/errors.ts"
import { pageNumber, pageSize, paginated } from "../domain/Pagination.ts"
import { makeServeEvents } from "../events/http.ts"
import { OpenStreams } from "../events/OpenStreams.ts"
import { StreamShutdown } from "../events/StreamShutdown.ts"
import { serveConsole } from "../events/websocket.ts"
import type { Include } from "./index/summary.ts"
import { ServerManager } from "./ServerManager.ts"

const DEFAULT_WAIT_SECONDS = 30
const includable = ["status", "limits", "software"] as const

const parseInclude = Effect.fnUntraced(function* (text: string | undefined) {
  const asked = (text ?? "").split(",").filter((item) => item !== "")
  const unknown = asked.find((item) => !includable.some((known) => known === item))
  if (unknown !== undefined) {
    return yield* new InvalidRequest({
      detail: `query field include: expected ${includable.join(", ")}, got ${JSON.stringify(unknown.slice(0, 100))}`
    })
  }
  const include: Include = {
    status: asked.includes("status"),
    limits: asked.includes("limits"),
    software: asked.includes("software")
  }
  return include
})

const json = (body: Uint8Array) => HttpServerResponse.uint8Array(body, { contentType: "application/json" })

const decodeCommands = Schema.decodeEffect(CommandsRequest)

const linePages = { standard: 100, fallback: 100, maximum: 1000 }

interface LinesQuery {
  readonly page?: string
  readonly per_page?: string
}

const linePage = (query: LinesQuery) => ({
  page: pageNumber(query.page),
  per_page: pageSize(query.per_page, linePages)
})

/** Page of console lines: `page` and `per_page` where one is given, else the newest `size`, clamped. */
const logPage = ({ size = "", ...query }: LinesQuery & { readonly size?: string }) => {
  if (`${query.page ?? ""}${query.per_page ?? ""}` !== "") return linePage(query)
  return { page: 1, per_page: size === "" ? 100 : Math.min(Math.max(Number(size), 1), 100) }
}

/** Handlers of the server routes (contract 4.4, 4.5, 4.10; decisions, section 3). */
export const ServersHandlers = HttpApiBuilder.group(
  ApplicationApi,
  "servers",
  Effect.fn(function* (handlers) {
    const servers = yield* ServerManager
    const serveEvents = yield* makeServeEvents
    const { begun } = yield* StreamShutdown
    const keyEnds = yield* KeyEnds
    const streams = yield* OpenStreams
    return handlers
      .handleAll({
        list: Effect.fnUntraced(function* ({ query }) {
          const include = yield* parseInclude(query.include)
          return query.ids_only === "true" ? yield* servers.ids : json(yield* servers.list(include))
        }),
        create: Effect.fnUntraced(function* ({ payload, headers }) {
          const idempotencyKey = headers["idempotency-key"]
          const principal = yield* CurrentPrincipal
          const created = yield* servers.create({
            blueprint_id: payload.blueprint_id,
            ...(payload.node_id === undefined || payload.node_id === "" ? {} : { node_id: payload.node_id }),
            overrides: payload.overrides ?? {},
            start: payload.start ?? false,
            ...(idempotencyKey === undefined
              ? {}
              : {
                  idempotency: {
                    // Each API key has a name space of its own.
                    key: `${principal?.key_id ?? ""}:${idempotencyKey}`,
                    body_hash: createHash("sha256").update(JSON.stringify(payload)).digest("hex")
                  }
                })
          })
          return HttpServerResponse.text(created.body, {
            status: 202,
            contentType: "application/json",
            headers: { location: `/api/servers/${created.id}` }
          })
        }),
        get: Effect.fnUntraced(function* ({ params, query }) {
          return json(yield* servers.get(params.server, yield* parseInclude(query.include)))
        }),
        remove: ({ params, query }) => servers.remove(params.server, { force: query.force === "true" }),
        power: ({ params, payload }) =>
          servers.power(params.server, payload.action, payload.wait_seconds ?? DEFAULT_WAIT_SECONDS),
        status: ({ params }) => Effect.map(servers.status(params.server), (status) => ({ status })),
        stats: ({ params, query }) =>
          servers.stats(params.server, { update_disk_usage: query.update_disk_usage === "true" }),
        logs: Effect.fnUntraced(function* ({ params, query }) {
          const at = logPage(query)
          return paginated(yield* servers.logs(params.server, at), at)
        }),
        commands: ({ params, payload }) => servers.commands(params.server, payload.commands),
        reset: ({ params }) => servers.reset(params.server),
        reinstall: ({ params }) => servers.reinstall(params.server),
        install: ({ params }) => servers.install(params.server),
        installLogs: Effect.fnUntraced(function* ({ params, query }) {
          const at = linePage(query)
          return paginated(yield* servers.installLogs(params.server, at), at)
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
            yield* streams.take
            const lines = yield* servers.console(params.server)
            const send = (line: string) =>
              Effect.gen(function* () {
                const { commands } = yield* decodeCommands({ commands: [line] })
                yield* servers.commands(params.server, commands)
              }).pipe(
                // The socket has no way to answer; the line was not a command, or the server is not up.
                Effect.catch((error) => Effect.logDebug(`console line refused: ${error.message}`))
              )
            const revoked = keyEnds(yield* CurrentPrincipal)
            return yield* serveConsole(request, lines, send, { shutdown: begun, revoked })
          },
          Effect.catchTag("LimitReached", limitResponse),
          Effect.scoped
        )
      )
  })
)
