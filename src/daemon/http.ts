import { Context, Deferred, Effect, Layer, References, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { Socket } from "effect/socket"
import {
  Conflict,
  InternalError,
  InvalidRequest,
  NotFound,
  Unauthorized,
  Unavailable
} from "../contract/domain/errors.ts"
import type { DaemonServer } from "../contract/domain/NodeMessages.ts"
import { pageNumber, pageSize, paginated, paginatedLog } from "../contract/domain/Pagination.ts"
import type { Daemon, DaemonError, LinesRequest } from "../contract/nodeApi/Daemon.ts"
import { DaemonApi, SEQUENCE_HEADER } from "../contract/nodeApi/DaemonApi.ts"
import { DaemonAuthorization } from "../contract/nodeApi/NodeFilesApi.ts"
import { handlersOf } from "../shared/net/requestServices.ts"
import { serveSocket } from "../shared/net/serveSocket.ts"
import { continueTrace } from "../shared/observability/trace.ts"
import { NOT_THE_TOKEN } from "./uplink/diagnosis.ts"

const makeServedDaemon = Effect.gen(function* () {
  const daemon = yield* Deferred.make<Daemon>()
  const servers = yield* Deferred.make<() => ReadonlyArray<DaemonServer>>()
  return {
    daemon: Deferred.await(daemon),
    servers: Effect.map(Deferred.await(servers), (list) => list()),
    provideDaemon: (value: Daemon) => Effect.asVoid(Deferred.succeed(daemon, value)),
    provideServers: (list: () => ReadonlyArray<DaemonServer>) =>
      Effect.asVoid(Deferred.succeed(servers, list))
  }
})

/** The daemon behind the HTTP routes, which start first: the control plane calls as soon as the node registers. */
export class ServedDaemon extends Context.Service<ServedDaemon, Effect.Success<typeof makeServedDaemon>>()(
  "muster/daemon/ServedDaemon"
) {
  static readonly layer = Layer.effect(ServedDaemon, makeServedDaemon)
}

/** The limit of open consoles: each is a connection with a queue of lines. */
const MAX_CONSOLES = 1000

const pages = { standard: 100, fallback: 100, maximum: 1000 }

const errors = { 404: NotFound, 409: Conflict, 422: InvalidRequest, 500: InternalError } as const

const httpError = (error: DaemonError) => {
  if (error._tag === "NodeUnreachable") return Unavailable.nodeNotConnected(error.node_id)
  const { detail, hint, status } = error
  return new errors[status]({ detail, hint })
}

const CREATIONS_AT_ONCE = 8

const failedCreation = (error: DaemonError) => {
  if (error._tag === "DaemonRefused") return { status: error.status, detail: error.detail, hint: error.hint }
  const { detail, hint } = Unavailable.nodeNotConnected(error.node_id)
  return { status: 503 as const, detail, hint }
}

/** Returns the response to an accepted request, with the sequence of the report that shows its effect. */
const accepted = (status: 200 | 202, sequence: number | undefined) =>
  HttpServerResponse.empty({
    status,
    headers: sequence === undefined ? {} : { [SEQUENCE_HEADER]: String(sequence) }
  })

const definitionMissing = new InvalidRequest({
  detail: "body field servers: a definition is not in the body field definitions",
  hint: "Run the same version of Muster on the control plane as here."
})

const pageOf = (query: { readonly page?: string; readonly per_page?: string }): LinesRequest => ({
  page: pageNumber(query.page),
  per_page: pageSize(query.per_page, pages)
})

/** Serves a console over WebSocket; each text message is a line. A slow peer misses lines (see `Daemon.console`). */
const serveConsole = (
  request: HttpServerRequest.HttpServerRequest,
  lines: Stream.Stream<string>,
  onLine: (line: string) => Effect.Effect<void>
) =>
  serveSocket(request, "a console", (write) =>
    Effect.succeed({
      onMessage: (line) => (typeof line === "string" ? onLine(line) : Effect.void),
      until: Effect.andThen(Stream.runForEach(lines, write), write(new Socket.CloseEvent(1000)))
    })
  ).pipe(Effect.withSpan("serveConsole"))

/** The handlers of a daemon's routes (spec 9.4). */
export const DaemonHandlers = handlersOf(
  DaemonApi,
  "daemon",
  Effect.fn(function* (handlers) {
    const served = yield* ServedDaemon
    let consoles = 0
    const reserveConsole = Effect.acquireRelease(
      Effect.suspend(() => {
        if (consoles >= MAX_CONSOLES) {
          return new Conflict({
            detail: `the node has ${consoles} open consoles`,
            hint: "Close consoles of servers on this node."
          })
        }
        consoles += 1
        return Effect.void
      }),
      () =>
        Effect.sync(() => {
          consoles -= 1
        })
    )
    const ask = <A>(use: (daemon: Daemon) => Effect.Effect<A, DaemonError>) =>
      // Work that outlives the request must not log with the request's annotations.
      Effect.provideService(Effect.flatMap(served.daemon, use), References.CurrentLogAnnotations, {})
    const call = <A>(use: (daemon: Daemon) => Effect.Effect<A, DaemonError>) =>
      Effect.mapError(ask(use), httpError)

    return handlers
      .handleAll({
        system: () => call((daemon) => daemon.system),
        list: () => served.servers,
        create: ({ payload }) => call((daemon) => daemon.create(payload)),
        createMany: Effect.fnUntraced(function* ({ payload: { definitions, servers } }) {
          const specs = servers.flatMap(({ definition: at, traceparent, ...own }) => {
            const definition = definitions[at]
            return definition === undefined ? [] : { spec: { ...own, definition }, traceparent }
          })
          if (specs.length < servers.length) return yield* definitionMissing
          const outcomes = yield* Effect.forEach(
            specs,
            ({ spec, traceparent }) =>
              ask((daemon) => daemon.create(spec)).pipe(
                Effect.match({ onSuccess: (server) => ({ server }), onFailure: failedCreation }),
                continueTrace(traceparent)
              ),
            { concurrency: CREATIONS_AT_ONCE }
          )
          return { outcomes }
        }),
        get: Effect.fnUntraced(function* ({ params }) {
          const found = (yield* served.servers).find((server) => server.id === params.id)
          if (found !== undefined) return found
          return yield* new NotFound({
            detail: `server not found: ${params.id}`,
            hint: "Ask the control plane which node has the server."
          })
        }),
        remove: ({ params, query }) =>
          call((daemon) =>
            daemon.remove(params.id, { moved: query.moved === true, kept: query.kept === true })
          ),
        power: Effect.fnUntraced(function* ({ params, payload }) {
          const { action, by, wait_seconds } = payload
          const sequence = yield* call((daemon) => daemon.power(params.id, action, wait_seconds, by))
          return accepted(200, sequence)
        }),
        commands: ({ params, payload }) =>
          call((daemon) => daemon.commands(params.id, payload.commands, payload.by)),
        register: () => call((daemon) => daemon.register),
        reset: ({ params }) =>
          Effect.map(
            call((daemon) => daemon.reset(params.id)),
            (sequence) => accepted(202, sequence)
          ),
        reinstall: ({ params }) => call((daemon) => daemon.reinstall(params.id)),
        hold: ({ params, payload }) => call((daemon) => daemon.hold(params.id, payload.held)),
        status: ({ params }) =>
          Effect.map(
            call((daemon) => daemon.status(params.id)),
            (status) => ({ status })
          ),
        stats: ({ params, query }) =>
          call((daemon) => daemon.stats(params.id, { update_disk_usage: query.update_disk_usage === true })),
        statsOfMany: ({ payload }) => call((daemon) => daemon.statsOfMany(payload.ids)),
        logs: Effect.fnUntraced(function* ({ params, query }) {
          const at = { ...pageOf(query), times: query.times === true }
          return paginatedLog(yield* call((daemon) => daemon.logs(params.id, at)), at)
        }),
        install: ({ params }) => call((daemon) => daemon.install(params.id)),
        installLogs: Effect.fnUntraced(function* ({ params, query }) {
          const at = pageOf(query)
          return paginated(yield* call((daemon) => daemon.installLogs(params.id, at)), at)
        })
      })
      .handle(
        "files",
        Effect.fnUntraced(function* ({ params }) {
          const daemon = yield* served.daemon
          return yield* Effect.mapError(daemon.exportFiles(params.id), httpError)
        })
      )
      .handle(
        "console",
        Effect.fnUntraced(function* ({ params, request }) {
          yield* reserveConsole
          const daemon = yield* served.daemon
          const lines = yield* Effect.mapError(daemon.console(params.id), httpError)
          return yield* serveConsole(request, lines, (line) =>
            Effect.catch(daemon.commands(params.id, [line]), (error) =>
              Effect.logDebug(`console line refused: ${error._tag}`).pipe(
                Effect.annotateLogs({ server_id: params.id })
              )
            )
          )
        }, Effect.scoped)
      )
  })
)

export const unauthorized = new Unauthorized({
  detail: NOT_THE_TOKEN,
  hint: "Only the control plane that this node is registered with may call it."
})

/** `DaemonAuthorization`: declares the error only. */
export const DaemonAuthorizationLayer = Layer.succeed(
  DaemonAuthorization,
  DaemonAuthorization.of((handler) => handler)
)
