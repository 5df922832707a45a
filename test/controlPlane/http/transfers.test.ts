/** Routes whose bodies are files: one that counts what arrives, and one that sends without an end. */
import { connect, type Socket } from "node:net"
import { NodeHttpServer } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Layer, Logger, Schema, Stream } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { route } from "../../../src/contract/api/middleware.ts"
import { Authentication } from "../../../src/controlPlane/http/authenticate.ts"
import { LeavingBodies } from "../../../src/controlPlane/http/leavingBodies.ts"
import { makeNodeServer } from "../../../src/controlPlane/http/node/nodeServer.ts"
import { withPipeline } from "../../../src/controlPlane/http/Pipeline.ts"
import { KeyEnds, type Principal } from "../../../src/controlPlane/http/Principal.ts"
import { routesOf } from "../../../src/controlPlane/http/routes.ts"
import { eventually } from "../../support/eventually.ts"
import { assertError, parseAnswer } from "./support/http.ts"

const LIMIT = 1024
const TIMEOUT = Duration.millis(100)
const MEBIBYTE = new Uint8Array(1024 * 1024)

const bytes = HttpApiSchema.StreamUint8Array()

const Api = HttpApi.make("transfers").add(
  HttpApiGroup.make("files")
    .add(
      HttpApiEndpoint.put("receive", "/files", {
        payload: bytes,
        success: Schema.Struct({ bytes: Schema.Int })
      }).annotateMerge(route("Count the bytes of a body", { transfers: true }))
    )
    .add(
      HttpApiEndpoint.get("send", "/files", { success: bytes }).annotateMerge(
        route("Bytes without an end", { transfers: true })
      )
    )
    .add(
      HttpApiEndpoint.get("silent", "/silent", { success: bytes }).annotateMerge(
        route("One piece of bytes, and no other", { transfers: true })
      )
    )
)

const principal: Principal = { key_id: "key_1", name: "known", scope: "AppAdmin" }

interface Options {
  readonly stalled?: Duration.Duration
  readonly revoked?: Deferred.Deferred<void>
  /** Runs once a body has arrived, before its response. */
  readonly store?: Effect.Effect<void>
  readonly onSent?: (bytes: number) => void
  readonly onConnection?: (socket: Socket) => void
  readonly log?: (line: string) => void
}

/** @param options.revoked ends the key of all callers */
const serve = ({
  log = () => {},
  onConnection = () => {},
  onSent = () => {},
  revoked,
  store = Effect.void,
  ...options
}: Options = {}) => {
  const server = makeNodeServer().on("connection", onConnection)
  const handlers = HttpApiBuilder.group(Api, "files", (files) =>
    files
      .handle("receive", ({ payload }) =>
        Stream.runFold(
          payload,
          () => ({ bytes: 0 }),
          (sum, chunk) => ({ bytes: sum.bytes + chunk.length })
        ).pipe(
          Effect.tap(() => store),
          Effect.orDie
        )
      )
      .handle("send", () =>
        Effect.succeed(
          HttpServerResponse.stream(
            Stream.tap(Stream.forever(Stream.make(MEBIBYTE)), (chunk) =>
              Effect.sync(() => onSent(chunk.length))
            )
          )
        )
      )
      .handle("silent", () =>
        Effect.succeed(HttpServerResponse.stream(Stream.concat(Stream.make(MEBIBYTE), Stream.never)))
      )
  )
  const pipeline = withPipeline({
    declared: routesOf(Api),
    bodyLimit: LIMIT,
    timeout: TIMEOUT,
    ...options
  })(HttpApiBuilder.layer(Api).pipe(Layer.provide(handlers))).pipe(
    Layer.provide(
      Layer.succeed(
        Authentication,
        Authentication.of({
          authorize: () => Effect.succeed({ principal, headers: {}, isStranger: false }),
          limited: Effect.succeed
        })
      )
    )
  )
  return HttpRouter.serve(pipeline, { disableLogger: true, disableListenLog: true }).pipe(
    Layer.provide(
      Layer.succeed(KeyEnds, () => (revoked === undefined ? Effect.never : Deferred.await(revoked)))
    ),
    Layer.provide(LeavingBodies(server, { stalled: Duration.millis(200) })),
    Layer.provideMerge(NodeHttpServer.layer(() => server, { host: "127.0.0.1", port: 0 })),
    Layer.provide(Logger.layer([Logger.map(Logger.formatLogFmt, log)]))
  )
}

const port = Effect.map(HttpServer.HttpServer, ({ address }) => ("port" in address ? address.port : 0))

interface Peer {
  readonly socket: Socket
  readonly text: () => string
  readonly ended: () => boolean
}

/** Opens a connection. @param reads whether it reads all that arrives, or nothing */
const peer = Effect.fnUntraced(function* (head: string, reads = true) {
  const at = yield* port
  return yield* Effect.acquireRelease(
    Effect.sync((): Peer => {
      const socket = connect({ host: "127.0.0.1", port: at }).on("error", () => {})
      let text = ""
      if (reads)
        socket.on("data", (chunk: Buffer) => {
          text = `${text}${chunk.toString("latin1")}`.slice(-64 * 1024)
        })
      socket.write(`${head}\r\nHost: x\r\n`)
      return { socket, text: () => text, ended: () => socket.destroyed || socket.readableEnded }
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )
})

const ended = (one: Peer) => eventually(Effect.sync(one.ended), (isEnded) => isEnded)

describe("spec 10.3: transfers", () => {
  it.live("a body has no limit of size, and no deadline while its bytes move", () =>
    Effect.gen(function* () {
      const upload = yield* peer("PUT /files HTTP/1.1")
      upload.socket.write(`Content-Length: ${30 * MEBIBYTE.length}\r\n\r\n`)
      for (let piece = 0; piece < 30; piece++) {
        upload.socket.write(MEBIBYTE)
        // All pieces take longer than a request may.
        yield* Effect.sleep(Duration.millis(10))
      }
      const text = yield* eventually(Effect.sync(upload.text), (all) => all.includes("}"))
      const answer = parseAnswer(text)
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(answer.json, { bytes: 30 * MEBIBYTE.length })
    }).pipe(Effect.scoped, Effect.provide(serve()))
  )

  it.live("an upload without a body is empty, and its Content-Type does not count", () =>
    Effect.gen(function* () {
      for (const head of ["", "Content-Length: 0\r\n", "Content-Type: text/plain\r\nContent-Length: 0\r\n"]) {
        const upload = yield* peer("PUT /files HTTP/1.1")
        upload.socket.write(`${head}\r\n`)
        const text = yield* eventually(Effect.sync(upload.text), (all) => all.includes("}"))
        assert.deepStrictEqual(parseAnswer(text).json, { bytes: 0 })
      }
    }).pipe(Effect.scoped, Effect.provide(serve()))
  )

  it.live("an upload without a byte for the time of a stall is 504, and the connection closes", () =>
    Effect.gen(function* () {
      const upload = yield* peer("PUT /files HTTP/1.1")
      upload.socket.write("Content-Length: 1000000\r\n\r\n{")
      yield* ended(upload)
      const answer = parseAnswer(upload.text())
      assertError(answer, 504, "no byte was transferred for 0.3 s")
      assert.strictEqual(answer.headers.get("connection"), "close")
    }).pipe(Effect.scoped, Effect.provide(serve({ stalled: Duration.millis(300) })))
  )

  it.live("an upload that has arrived is not ended while it is stored", () =>
    Effect.gen(function* () {
      const upload = yield* peer("PUT /files HTTP/1.1")
      upload.socket.write("Content-Length: 1\r\n\r\n{")
      const text = yield* eventually(Effect.sync(upload.text), (all) => all.includes("}"))
      assert.deepStrictEqual(parseAnswer(text).json, { bytes: 1 })
    }).pipe(
      Effect.scoped,
      // Storing takes three times as long as a transfer may stall.
      Effect.provide(serve({ stalled: Duration.millis(100), store: Effect.sleep(Duration.millis(300)) }))
    )
  )

  it.live("a download whose source gives no byte for the time of a stall is cut", () => {
    const lines: Array<string> = []
    return Effect.gen(function* () {
      const download = yield* peer("GET /silent HTTP/1.1")
      download.socket.write("\r\n")
      yield* ended(download)
      assert.notMatch(download.text(), /0\r\n\r\n$/)
      assert.include(lines.join(), "no byte was transferred for 0.3 s")
    }).pipe(
      Effect.scoped,
      Effect.provide(serve({ stalled: Duration.millis(300), log: (line) => lines.push(line) }))
    )
  })

  it.live("a peer that does not read fills no memory, and is cut after the time of a stall", () => {
    let sent = 0
    const accepted: Array<Socket> = []
    return Effect.gen(function* () {
      const download = yield* peer("GET /files HTTP/1.1", false)
      const begun = Date.now()
      download.socket.write("\r\n")
      yield* eventually(
        Effect.sync(() => accepted[0]?.destroyed),
        (isCut) => isCut === true
      )
      assert.isAbove(sent, 0)
      assert.isBelow(sent, 16 * MEBIBYTE.length)
      assert.isAtLeast(Date.now() - begun, 1000)
    }).pipe(
      Effect.scoped,
      Effect.provide(
        serve({
          stalled: Duration.seconds(1),
          onConnection: (socket) => accepted.push(socket),
          onSent: (bytes) => {
            sent += bytes
          }
        })
      )
    )
  })

  it.live("transfers in both directions end within a second after their key is revoked", () => {
    const revoked = Deferred.makeUnsafe<void>()
    const accepted: Array<Socket> = []
    return Effect.gen(function* () {
      const upload = yield* peer("PUT /files HTTP/1.1")
      upload.socket.write("Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
      const download = yield* peer("GET /files HTTP/1.1")
      download.socket.write("\r\n")
      const unread = yield* peer("GET /files HTTP/1.1", false)
      unread.socket.write("\r\n")
      yield* eventually(Effect.sync(download.text), (text) => text.length > 0)
      yield* eventually(
        Effect.sync(() => accepted[2]?.writableLength ?? 0),
        (length) => length > 0
      )
      const begun = Date.now()
      yield* Deferred.succeed(revoked, undefined)
      yield* ended(upload)
      yield* ended(download)
      yield* eventually(
        Effect.sync(() => accepted.filter(({ destroyed }) => destroyed).length),
        (cut) => cut === 3
      )
      assert.isBelow(Date.now() - begun, 10_000)
      assertError(parseAnswer(upload.text()), 401, "the API key is not valid")
    }).pipe(
      Effect.scoped,
      Effect.provide(serve({ revoked, onConnection: (socket) => accepted.push(socket) }))
    )
  })
})
