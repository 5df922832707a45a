import { connect, type Socket } from "node:net"
import { NodeHttpServer } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Logger, Stream } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { Authentication } from "../../../src/controlPlane/http/authenticate.ts"
import { LargeAnswers } from "../../../src/controlPlane/http/LargeAnswers.ts"
import { LEAVING_BYTES, LeavingBodies } from "../../../src/controlPlane/http/leavingBodies.ts"
import { makeNodeServer } from "../../../src/controlPlane/http/node/nodeServer.ts"
import { withPipeline } from "../../../src/controlPlane/http/Pipeline.ts"
import { eventually } from "../../support/eventually.ts"
import { requestTo } from "../../support/Service.ts"
import { assertError } from "./support/http.ts"

/** Two of these responses fit into the bound of a key. */
const LARGE = LEAVING_BYTES / 2

const routes = Layer.mergeAll(
  HttpRouter.add(
    "GET",
    "/large",
    Effect.sync(() => HttpServerResponse.uint8Array(new Uint8Array(LARGE)))
  ),
  HttpRouter.add(
    "GET",
    "/streamed",
    Effect.sync(() => HttpServerResponse.stream(Stream.forever(Stream.make(new Uint8Array(32 * 1024)))))
  ),
  HttpRouter.add("GET", "/never", Effect.never),
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const { making } = yield* LargeAnswers
      yield* router.add("GET", "/made", making(LARGE)(Effect.succeed(HttpServerResponse.text("made"))))
    })
  )
)

/** The key of a request is its whole `Authorization` header. */
const authentication = Layer.succeed(
  Authentication,
  Authentication.of({
    authorize: ({ headers: { authorization = "" } }) =>
      Effect.succeed({
        principal: { key_id: authorization, name: "known", scope: "AppAdmin" },
        headers: {},
        isStranger: false
      }),
    limited: Effect.succeed
  })
)

interface Options {
  readonly mostBytes?: number
  readonly stalled?: Duration.Duration
  readonly connections?: number
}

const serve = ({ connections, ...options }: Options = {}) => {
  const server = makeNodeServer()
  if (connections !== undefined) server.maxConnections = connections
  const pipeline = withPipeline({
    declared: [],
    bodyLimit: 1024,
    timeout: Duration.seconds(30)
  })(routes).pipe(Layer.provide(authentication))
  return HttpRouter.serve(pipeline, {
    disableLogger: true,
    disableListenLog: true
  }).pipe(
    Layer.provide(LeavingBodies(server, options)),
    Layer.provideMerge(NodeHttpServer.layer(() => server, { host: "127.0.0.1", port: 0 })),
    Layer.provide(Logger.layer([]))
  )
}

const port = Effect.map(HttpServer.HttpServer, ({ address }) => ("port" in address ? address.port : 0))

const get = Effect.fnUntraced(function* (path: string, key: string) {
  return yield* requestTo(`http://127.0.0.1:${yield* port}`, key)("GET", path)
})

/** Sends a request; `event` says that the response has begun. `read` reads more of it. */
const sent = Effect.fnUntraced(function* (key: string, path: string, event: "readable" | "connect") {
  const at = yield* port
  return yield* Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const socket = connect({ host: "127.0.0.1", port: at }).on("error", () => {})
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`)
      socket.once(event, () => resume(Effect.succeed(socket)))
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )
})

/** Requests a large response and waits for its first bytes. */
const requested = (key: string) => sent(key, "/large", "readable")

const isCut = (socket: Socket) => {
  // The end of a connection is seen behind the bytes that have arrived.
  while (socket.read() !== null);
  return socket.destroyed || socket.readableEnded
}

describe("requests in progress", () => {
  it.live("a key has half of the connections; a further request is 503 until one ends", () =>
    Effect.gen(function* () {
      const held = yield* Effect.replicateEffect(sent("a", "/never", "connect"), 4)
      const detail = "the API key has too many requests in progress"
      const refused = yield* eventually(get("/large", "a"), ({ status }) => status === 503)
      assertError(refused, 503, detail)
      assert.strictEqual(refused.headers.get("retry-after"), "5")
      assert.strictEqual((yield* get("/large", "b")).status, 200)
      held[0]?.destroy()
      yield* eventually(get("/large", "a"), ({ status }) => status === 200)
    }).pipe(Effect.scoped, Effect.provide(serve({ connections: 8 })))
  )
})

describe("responses that are not read", () => {
  it.live("a key over its bytes gets 503; others, and a closed connection's key, get their responses", () =>
    Effect.gen(function* () {
      const [first] = [yield* requested("a"), yield* requested("a")]
      const refused = yield* get("/large", "a")
      assertError(refused, 503, "the API key has too many large responses that are not read yet")
      assert.strictEqual(refused.headers.get("retry-after"), "5")
      assert.strictEqual((yield* get("/large", "b")).status, 200)
      const waiting = yield* Effect.forkChild(get("/made", "a"), { startImmediately: true })
      first.destroy()
      assert.strictEqual((yield* Fiber.join(waiting)).text, "made")
      assert.strictEqual((yield* get("/large", "a")).status, 200)
    }).pipe(Effect.scoped, Effect.provide(serve()))
  )

  it.live("bodies that are made as they are read count, too", () =>
    Effect.gen(function* () {
      const streams = yield* Effect.replicateEffect(sent("a", "/streamed", "readable"), 64)
      const detail = "the API key has too many large responses that are not read yet"
      assertError(yield* get("/streamed", "a"), 503, detail)
      yield* sent("b", "/streamed", "readable")
      for (const stream of streams) stream.destroy()
      yield* eventually(get("/large", "a"), ({ status }) => status === 200)
    }).pipe(Effect.scoped, Effect.provide(serve()))
  )

  it.live("over the bytes of all keys, the connection without progress for the longest time is closed", () =>
    Effect.gen(function* () {
      const [first, second] = [yield* requested("a"), yield* requested("b")]
      // Both have made progress until now.
      yield* eventually(get("/large", "c"), ({ status }) => status === 200)
      yield* eventually(
        () => isCut(first),
        (is) => is
      )
      assert.isFalse(second.destroyed)
    }).pipe(Effect.scoped, Effect.provide(serve({ mostBytes: 2 * LARGE })))
  )

  it.live(
    "a connection without progress is closed; one whose peer reads less than the kernel holds is not",
    () =>
      Effect.gen(function* () {
        const [silent, slow] = [yield* requested("a"), yield* requested("a")]
        let bytes = 0
        const reading = setInterval(() => {
          const chunk: Buffer | null = slow.read(8 * 1024) ?? slow.read()
          bytes += chunk?.length ?? 0
        }, 10)
        yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(reading)))
        yield* eventually(
          () => bytes > LARGE / 4 || slow.destroyed,
          (is) => is
        )
        assert.isAbove(bytes, LARGE / 4)
        assert.isFalse(slow.destroyed)
        yield* eventually(
          () => isCut(silent),
          (is) => is
        )
      }).pipe(Effect.scoped, Effect.provide(serve({ stalled: Duration.millis(700) })))
  )
})
