/** Routes that the real service does not have: one that never responds, and one with a defect. */
import { connect, type Socket } from "node:net"
import { NodeHttpServer } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { type Context, Duration, Effect, Fiber, Layer, Logger } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { Unavailable } from "../../../src/contract/domain/errors.ts"
import { Authentication, stranger } from "../../../src/controlPlane/http/authenticate.ts"
import { makeNodeServer } from "../../../src/controlPlane/http/node/nodeServer.ts"
import { withPipeline } from "../../../src/controlPlane/http/Pipeline.ts"
import type { Principal } from "../../../src/controlPlane/http/Principal.ts"
import { eventually, until } from "../../support/eventually.ts"
import { requestTo } from "../../support/Service.ts"
import { assertError } from "./support/http.ts"

const LARGE = 32 * 1024 * 1024

const principal: Principal = { key_id: "key_1", name: "known", scope: "AppAdmin" }

const open: Context.Service.Shape<typeof Authentication> = {
  authorize: () => Effect.succeed(stranger),
  limited: Effect.succeed
}
const caller = { principal, headers: {}, isStranger: false }

const routes = Layer.mergeAll(
  HttpRouter.add("GET", "/large", Effect.succeed(HttpServerResponse.uint8Array(new Uint8Array(LARGE)))),
  HttpRouter.add("GET", "/never", Effect.never),
  HttpRouter.add("GET", "/dies", Effect.die(new Error("secret /etc/passwd"))),
  HttpRouter.add("GET", "/fails", Effect.fail(Unavailable.store())),
  HttpRouter.add("DELETE", "/api/fails", Effect.fail(Unavailable.store())),
  HttpRouter.add("GET", "/bare", HttpServerResponse.text("stack trace", { status: 502 })),
  HttpRouter.add(
    "GET",
    "/odd",
    HttpServerResponse.text("teapot", { status: 418, headers: { "x-kept": "1" } })
  )
)

const serve = (
  log: (line: string) => void,
  authentication = open,
  onConnection: (socket: Socket) => void = () => {},
  timeout: Duration.Input = 50,
  more = routes
) => {
  const pipeline = withPipeline({
    declared: [],
    bodyLimit: 1024,
    timeout: Duration.fromInputUnsafe(timeout),
    reading: Duration.millis(300)
  })(more).pipe(Layer.provide(Layer.succeed(Authentication, Authentication.of(authentication))))
  return HttpRouter.serve(pipeline, {
    disableLogger: true,
    disableListenLog: true
  }).pipe(
    Layer.provideMerge(
      NodeHttpServer.layer(() => makeNodeServer().on("connection", onConnection), {
        host: "127.0.0.1",
        port: 0
      })
    ),
    Layer.provide(Logger.layer([Logger.map(Logger.formatLogFmt, log)]))
  )
}

const get = Effect.fnUntraced(function* (path: string, method = "GET", key = "none") {
  const { address } = yield* HttpServer.HttpServer
  if (!("port" in address)) return yield* Effect.die(new Error("no port"))
  return yield* requestTo(`http://127.0.0.1:${address.port}`, key)(method, path)
})

describe("spec 1.7: timeouts and defects", () => {
  it.live("a request that exceeds its timeout is 504", () =>
    Effect.gen(function* () {
      assertError(yield* get("/never"), 504, "no response within 0.05 s")
    }).pipe(Effect.provide(serve(() => {})))
  )

  it.live("a closed connection ends a dry run, which changes nothing, and no other request", () =>
    Effect.gen(function* () {
      const begun: Array<string> = []
      const ended: Array<string> = []
      const work = HttpRouter.add("POST", "/work", ({ url }) =>
        Effect.suspend(() => {
          begun.push(url)
          return Effect.onInterrupt(Effect.never, () => Effect.sync(() => void ended.push(url)))
        })
      )
      yield* Effect.gen(function* () {
        const urls = ["/work", "/work?dry_run=true"]
        for (const url of urls) {
          const caller = yield* Effect.forkChild(get(url, "POST"))
          yield* until("it has begun", () => begun.includes(url))
          yield* Fiber.interrupt(caller)
        }
        yield* until("a request has ended", () => ended.length > 0)
        assert.deepStrictEqual(ended, ["/work?dry_run=true"])
      }).pipe(
        Effect.provide(
          serve(
            () => {},
            open,
            () => {},
            "10 minutes",
            work
          )
        )
      )
    })
  )

  it.live("a defect is 500 with a generic detail; only the log has the cause, with the request id", () => {
    const lines: Array<string> = []
    return Effect.gen(function* () {
      const answer = yield* get("/dies")
      const { request_id } = assertError(answer, 500, "internal server error")
      assert.notInclude(answer.text, "secret")
      const logged = lines.filter((line) => line.includes("secret /etc/passwd"))
      assert.strictEqual(logged.length, 1)
      assert.include(logged[0], request_id)
    }).pipe(Effect.provide(serve((line) => lines.push(line))))
  })

  it.live("a failure of the contract keeps its status; an error without the error body gets one", () =>
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

describe("connections: slow readers", () => {
  const withKey: Context.Service.Shape<typeof Authentication> = {
    ...open,
    authorize: ({ headers }) => Effect.succeed(headers.authorization === undefined ? stranger : caller)
  }
  /** Requests a large response and reads little of it. */
  const slowReader = (header: string) =>
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      const port = "port" in address ? address.port : 0
      return yield* Effect.acquireRelease(
        Effect.sync(() => {
          const socket = connect({ host: "127.0.0.1", port }).on("error", () => {})
          socket.write(`GET /large HTTP/1.1\r\nHost: x\r\n${header}\r\n`)
          const reading = setInterval(() => socket.read(1024), 20)
          return { socket, reading }
        }),
        ({ reading, socket }) =>
          Effect.sync(() => {
            clearInterval(reading)
            socket.destroy()
          })
      )
    })

  it.live(
    "an unauthenticated peer that reads slowly loses its connection; an authenticated peer keeps it",
    () => {
      const accepted: Array<Socket> = []
      return Effect.gen(function* () {
        const known = yield* slowReader("Authorization: Bearer key\r\n")
        yield* eventually(
          Effect.sync(() => accepted.length),
          (count) => count === 1
        )
        yield* slowReader("")
        yield* slowReader("Upgrade: x\r\nConnection: upgrade\r\n")
        yield* eventually(
          Effect.sync(() => accepted.map(({ destroyed }) => destroyed)),
          (destroyed) => destroyed.join() === "false,true,true"
        )
        let bytes = 0
        known.socket.on("data", (chunk: Buffer) => {
          bytes += chunk.length
        })
        yield* eventually(
          Effect.sync(() => bytes),
          (count) => count > 0.9 * LARGE
        )
      }).pipe(
        Effect.scoped,
        Effect.provide(
          serve(
            () => {},
            withKey,
            (socket) => accepted.push(socket)
          )
        )
      )
    }
  )
})

describe("failed logins: unauthenticated requests do not flood the log", () => {
  it.live("while the database is away, writes without a valid key are not logged", () => {
    const lines: Array<string> = []
    const away: Context.Service.Shape<typeof Authentication> = {
      ...open,
      authorize: ({ headers }) =>
        headers.authorization === "Bearer known"
          ? Effect.succeed(caller)
          : Effect.fail({ error: Unavailable.store(), caller: stranger })
    }
    return Effect.gen(function* () {
      assertError(yield* get("/api/fails", "DELETE", "guess"), 503)
      assert.strictEqual((yield* get("/api/fails", "DELETE", "known")).status, 503)
      assert.strictEqual(
        lines.filter((line) => line.includes("method=DELETE path=/api/fails status=503")).length,
        1
      )
    }).pipe(Effect.provide(serve((line) => lines.push(line), away)))
  })
})
