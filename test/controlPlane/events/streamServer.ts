/** A real HTTP server with the stream routes only. */
import { createServer, type ServerOptions as NodeOptions } from "node:http"
import { NodeHttpServer } from "@effect/platform-node"
import { type Cause, Context, type Duration, Effect, Layer, Queue, Stream } from "effect"
import { HttpRouter, HttpServer, HttpServerRequest } from "effect/http"
import { EventHub } from "../../../src/controlPlane/events/EventHub.ts"
import { eventQueryOf } from "../../../src/controlPlane/events/eventQuery.ts"
import { sseResponse } from "../../../src/controlPlane/events/http.ts"
import { StreamShutdown } from "../../../src/controlPlane/events/OpenStreams.ts"
import { webSocketOptions } from "../../../src/controlPlane/events/webSocketUpgrade.ts"
import { serveConsole, serveEventSocket } from "../../../src/controlPlane/events/websocket.ts"
import { LeavingBodies } from "../../../src/controlPlane/http/leavingBodies.ts"
import { MemoryJournal } from "./MemoryJournal.ts"

/** The Node.js server and the console that it serves. */
export class TestServer extends Context.Service<
  TestServer,
  {
    readonly port: number
    /** Connections that the server holds. */
    readonly connections: Effect.Effect<number>
    /** Lines of the console; `/console` sends them. */
    readonly lines: Queue.Queue<string, Cause.Done>
    /** Commands that clients sent to the console. */
    readonly commands: ReadonlyArray<string>
  }
>()("test/TestServer") {}

export interface ServerOptions {
  /** Batches that a subscriber may be behind. */
  readonly batches?: number
  /** Bytes of a console that its client may not have read. */
  readonly bufferBytes?: number
  /** Time without progress after which a connection is closed. */
  readonly stalled?: Duration.Duration
  readonly grace?: Duration.Input
  /** Time without a pong after which a WebSocket is ended; with it, pings are sent every 100 ms. */
  readonly pongTimeout?: Duration.Input
  /** Completes when the server has processed a command; default: at once. */
  readonly processed?: Effect.Effect<void>
  /** Timeouts of Node's server. */
  readonly node?: NodeOptions
}

/** The server over a journal in memory. */
export const streamServer = (options: ServerOptions = {}) =>
  Layer.provideMerge(streamServerOfJournal(options), MemoryJournal.layer)

/** The server over a journal that the caller provides. */
export const streamServerOfJournal = (options: ServerOptions = {}) => {
  const { bufferBytes = 1024 * 1024, grace = "50 millis", pongTimeout, processed = Effect.void } = options
  return Layer.unwrap(
    Effect.gen(function* () {
      const lines = yield* Queue.unbounded<string, Cause.Done>()
      const commands: Array<string> = []
      const node = createServer(options.node ?? {})
      const routes = HttpRouter.use(
        Effect.fnUntraced(function* (router) {
          const hub = yield* EventHub
          const { begun } = yield* StreamShutdown
          yield* Effect.forkScoped(Effect.andThen(begun, hub.end))
          const streamed = <A, E, R>(
            serve: (
              request: HttpServerRequest.HttpServerRequest,
              subscribed: Effect.Success<ReturnType<typeof hub.subscribe>>,
              resumes: boolean
            ) => Effect.Effect<A, E, R>
          ) =>
            Effect.gen(function* () {
              const request = yield* HttpServerRequest.HttpServerRequest
              const query = yield* eventQueryOf(request)
              return yield* serve(request, yield* hub.subscribe(query), query.cursor !== undefined)
            })
          yield* router.add(
            "GET",
            "/events",
            streamed((_, subscription, withIds) => Effect.succeed(sseResponse(subscription, { withIds })))
          )
          yield* router.add(
            "GET",
            "/events/ws",
            streamed((request, subscription, withCursors) =>
              serveEventSocket(request, subscription, {
                withCursors,
                shutdown: begun,
                grace,
                ...(pongTimeout === undefined ? {} : { pongTimeout, pingInterval: "100 millis" })
              })
            )
          )
          yield* router.add(
            "GET",
            "/console",
            Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
              serveConsole(
                request,
                Stream.fromQueue(lines),
                (line) =>
                  Effect.andThen(
                    processed,
                    Effect.sync(() => commands.push(line))
                  ),
                { shutdown: begun, bufferBytes, grace }
              )
            )
          )
        })
      )
      const server = NodeHttpServer.layer(() => node, {
        port: 0,
        host: "127.0.0.1",
        websocket: webSocketOptions,
        gracefulShutdownTimeout: "10 seconds"
      })
      const testServer = Layer.effect(
        TestServer,
        Effect.gen(function* () {
          const { address } = yield* HttpServer.HttpServer
          return TestServer.of({
            port: "port" in address ? Number(address.port) : 0,
            connections: Effect.callback<number>((resume) => {
              node.getConnections((_, count) => resume(Effect.succeed(count)))
            }),
            lines,
            commands
          })
        })
      )
      return StreamShutdown.onRelease.pipe(
        Layer.provideMerge(HttpRouter.serve(routes, { disableLogger: true, disableListenLog: true })),
        Layer.provideMerge(testServer),
        Layer.provide(server),
        Layer.provide(LeavingBodies(node, options.stalled === undefined ? {} : { stalled: options.stalled })),
        Layer.provideMerge(StreamShutdown.layer),
        Layer.provideMerge(EventHub.layer(options.batches === undefined ? {} : { batches: options.batches }))
      )
    })
  )
}
