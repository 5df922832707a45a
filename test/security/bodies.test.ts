import { once } from "node:events"
import { connect } from "node:net"
import { NodeHttpServer } from "@effect/platform-node"
import { assert, describe, it, layer } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { HttpRouter, HttpServer, HttpServerRequest, HttpServerResponse } from "effect/http"
import { Authentication, stranger } from "../../src/controlPlane/http/authenticate.ts"
import { makeNodeServer } from "../../src/controlPlane/http/node/nodeServer.ts"
import { withPipeline } from "../../src/controlPlane/http/Pipeline.ts"
import {
  assertError,
  bearer,
  noNode,
  options,
  parseAnswer,
  rawRequest,
  service
} from "../controlPlane/http/support/http.ts"
import { Muster } from "../support/Muster.ts"

/** Sends bytes and reads until the server closes the connection; the client never does. */
const sent = (url: string, bytes: Buffer | string) =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const { hostname, port } = new URL(url)
      return connect({ host: hostname, port: Number(port), allowHalfOpen: true })
    }),
    (socket) =>
      Effect.promise(async () => {
        let text = ""
        socket.on("data", (chunk: Buffer) => {
          text += chunk.toString()
        })
        socket.write(bytes)
        await once(socket, "end")
        return text
      }),
    (socket) => Effect.sync(() => socket.destroy())
  )

layer(service(noNode), options)("bytes that are not UTF-8", (it) => {
  describe("spec 1.2: 422", () => {
    const post = (path: string, headers: Record<string, string>, body: Buffer) =>
      Buffer.concat([
        Buffer.from(rawRequest("POST", path, { ...headers, "content-length": `${body.length}` })),
        body
      ])

    it.effect("a JSON body that is not UTF-8 is refused instead of read with replacement characters", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const wrong of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0xaf]]) {
          const body = Buffer.concat([
            Buffer.from('{"blueprint_id":"'),
            Buffer.from(wrong),
            Buffer.from('"}')
          ])
          const answer = parseAnswer(yield* sent(api.url, post("/api/servers", bearer(api), body)))
          assertError(answer, 422, "body: not valid UTF-8")
        }
        const fine = Buffer.from('{"blueprint_id":"größe-💾"}')
        assertError(
          parseAnswer(yield* sent(api.url, post("/api/servers", bearer(api), fine))),
          404,
          "blueprint not found: größe-💾"
        )
      })
    )

    it.effect("a query that is not UTF-8 is refused; a body that the route does not read is ignored", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        assertError(yield* api.request("GET", "/api/nodes?ids_only=%ff"), 422, "query: not valid UTF-8")
        assertError(yield* api.request("GET", "/api/nope?x=%ff"), 404)
        assert.strictEqual((yield* api.request("GET", "/api/blueprints?page=%ff")).status, 200)
        const ignored = post("/api/blueprints/reload", bearer(api), Buffer.from([0xff]))
        assert.match(yield* sent(api.url, ignored), /^HTTP\/1\.1 200 /)
      })
    )
  })
})

describe("spec 1.7: timeouts", () => {
  const reading = HttpRouter.add(
    "POST",
    "/read",
    Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      Effect.map(request.text, (text) => HttpServerResponse.text(text))
    )
  )
  const pipeline = withPipeline({
    declared: [],
    bodyLimit: 1024,
    timeout: Duration.millis(100)
  })(reading).pipe(
    Layer.provide(
      Layer.succeed(
        Authentication,
        Authentication.of({
          authorize: () => Effect.succeed(stranger),
          limited: Effect.succeed
        })
      )
    )
  )
  const slow = HttpRouter.serve(pipeline, {
    disableLogger: true,
    disableListenLog: true
  }).pipe(Layer.provideMerge(NodeHttpServer.layer(makeNodeServer, { host: "127.0.0.1", port: 0 })))

  it.live.each([
    ["of a known length", "content-length: 1000\r\n\r\n{"],
    ["in chunks", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"]
  ])("a body %s that does not arrive is 504, and the connection closes", ([, rest]) =>
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      const port = "port" in address ? address.port : 0
      const text = yield* sent(`http://127.0.0.1:${port}`, `POST /read HTTP/1.1\r\nHost: x\r\n${rest}`)
      const answer = parseAnswer(text)
      assertError(answer, 504, "no response within 0.1 s")
      assert.strictEqual(answer.headers.get("connection"), "close")
    }).pipe(Effect.provide(slow))
  )
})
