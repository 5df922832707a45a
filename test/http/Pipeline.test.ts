/** What no request to the real service brings about in time: a route that never answers, and one that dies. */
import { NodeHttpServer } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer, Logger } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { Unavailable } from "../../src/domain/errors.ts"
import { Authentication } from "../../src/http/authenticate.ts"
import { makeNodeServer } from "../../src/http/nodeServer.ts"
import { Pipeline } from "../../src/http/Pipeline.ts"
import { requestTo } from "../support/Service.ts"
import { assertError } from "./support/http.ts"

const routes = Layer.mergeAll(
  HttpRouter.add("GET", "/never", Effect.never),
  HttpRouter.add("GET", "/dies", Effect.die(new Error("secret /etc/passwd"))),
  HttpRouter.add("GET", "/fails", Effect.fail(Unavailable.store())),
  HttpRouter.add("GET", "/bare", HttpServerResponse.text("stack trace", { status: 502 })),
  HttpRouter.add(
    "GET",
    "/odd",
    HttpServerResponse.text("teapot", { status: 418, headers: { "x-kept": "1" } })
  )
)

const serve = (log: (line: string) => void) => {
  const pipeline = Pipeline({
    cors_origins: [],
    trusted_proxies: [],
    body_limit: 1024,
    timeout: Duration.millis(50)
  }).pipe(
    Layer.provide(
      Layer.succeed(Authentication, Authentication.of({ principal: () => Effect.succeed(undefined) }))
    )
  )
  return HttpRouter.serve(Layer.mergeAll(routes, pipeline), {
    disableLogger: true,
    disableListenLog: true
  }).pipe(
    Layer.provideMerge(NodeHttpServer.layer(makeNodeServer, { host: "127.0.0.1", port: 0 })),
    Layer.provide(Logger.layer([Logger.map(Logger.formatLogFmt, log)]))
  )
}

const get = Effect.fnUntraced(function* (path: string) {
  const { address } = yield* HttpServer.HttpServer
  if (!("port" in address)) return yield* Effect.die(new Error("no port"))
  return yield* requestTo(`http://127.0.0.1:${address.port}`, "none")("GET", path)
})

describe("decisions 1: timeouts and defects", () => {
  it.live("a request that is not answered in time is 504", () =>
    Effect.gen(function* () {
      assertError(yield* get("/never"), 504, "no answer within 0.05 s")
    }).pipe(Effect.provide(serve(() => {})))
  )

  it.live(
    "a defect is 500 with a generic detail; the cause is only in the log, under the request's id",
    () => {
      const lines: Array<string> = []
      return Effect.gen(function* () {
        const answer = yield* get("/dies")
        const { request_id } = assertError(answer, 500, "internal server error")
        assert.notInclude(answer.text, "secret")
        const logged = lines.filter((line) => line.includes("secret /etc/passwd"))
        assert.strictEqual(logged.length, 1)
        assert.include(logged[0], request_id)
      }).pipe(Effect.provide(serve((line) => lines.push(line))))
    }
  )

  it.live("a failure of the contract keeps its status; an error without the body gets it", () =>
    Effect.gen(function* () {
      assertError(yield* get("/fails"), 503, "the database cannot be reached")
      const bare = yield* get("/bare")
      assertError(bare, 502)
      assert.notInclude(bare.text, "stack trace")
      const odd = yield* get("/odd")
      assertError(odd, 422)
      assert.strictEqual(odd.headers.get("x-kept"), "1")
    }).pipe(Effect.provide(serve(() => {})))
  )
})
