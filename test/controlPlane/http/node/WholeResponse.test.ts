import { createServer, type Server, type ServerResponse } from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import { assert, describe, it, vi } from "@effect/vitest"
import { Effect } from "effect"
import { makeNodeServer } from "../../../../src/controlPlane/http/node/nodeServer.ts"
import { MOST_UNANSWERED, WholeResponse } from "../../../../src/controlPlane/http/node/pipelining.ts"
import { eventually } from "../../../support/eventually.ts"

/** Starts a server that responds; returns its port. */
const listening = (
  respond: (response: ServerResponse) => void,
  server: Server = createServer({ ServerResponse: WholeResponse })
) =>
  Effect.gen(function* () {
    server.on("request", (_, response) => respond(response))
    yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
    yield* Effect.callback<void>((resume) => void server.listen(0, () => resume(Effect.void)))
    const { port } = server.address() as AddressInfo
    return port
  })

const connected = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const socket = connect(port, "127.0.0.1", () => resume(Effect.succeed(socket)))
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

/** Responds with a body; returns the bytes that a client gets. */
const received = (respond: (response: ServerResponse) => void, method = "GET") =>
  Effect.gen(function* () {
    const port = yield* listening(respond)
    const response = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/`, { method }))
    return new Uint8Array(yield* Effect.promise(() => response.arrayBuffer()))
  }).pipe(Effect.scoped)

describe("design, Reads: whole responses", () => {
  it.live("bodies without an announced length are sent as before", () =>
    Effect.gen(function* () {
      const text = yield* received((response) => response.end("text"))
      assert.strictEqual(Buffer.from(text).toString(), "text")
      assert.strictEqual((yield* received((response) => response.end())).length, 0)
      assert.strictEqual((yield* received((response) => response.end("text"), "HEAD")).length, 0)
    })
  )

  it.live(
    "a body of another length than its head announces is refused; of the same length, in one write",
    () =>
      Effect.gen(function* () {
        const writes = vi.fn()
        const bytes = yield* received((response) => {
          response.strictContentLength = true
          response.writeHead(200, "OK", { "content-length": "6" })
          assert.throws(() => response.end("other"), /Content-Length/i)
          const write = vi.spyOn(response.socket ?? response, "write")
          response.end("grüß", () => writes(write.mock.calls.length))
        })
        assert.strictEqual(Buffer.from(bytes).toString(), "grüß")
        assert.deepStrictEqual(writes.mock.calls, [[1]])
      })
  )

  it.live("responses of one turn, with a body or not modified, leave after all its requests were read", () =>
    Effect.gen(function* () {
      const events: Array<string> = []
      const respond = (response: ServerResponse) => {
        const isWhole = events.length > 0
        response.strictContentLength = isWhole
        response.on("finish", () => events.push("left"))
        response.writeHead(isWhole ? 200 : 304, isWhole ? { "content-length": 4 } : {})
        events.push("ended")
        if (isWhole) response.end("body")
        else response.end()
      }
      const port = yield* listening(respond)
      const clients = yield* Effect.forEach([1, 2, 3], () => connected(port))
      const answers = clients.map((client) => new Promise((resolve) => client.once("data", resolve)))
      for (const client of clients) client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
      yield* Effect.promise(() => Promise.all(answers))
      assert.deepStrictEqual(events, ["ended", "ended", "ended", "left", "left", "left"])
    }).pipe(Effect.scoped)
  )

  it.live("a response that waits leaves once after a second end, and never after its client left", () =>
    Effect.gen(function* () {
      const errors = vi.fn()
      const begin = (response: ServerResponse) => {
        response.on("error", errors).strictContentLength = true
        response.writeHead(200, { "content-length": 4 })
        response.end("body")
      }
      const twice = yield* received((response) => {
        begin(response)
        response.end()
      })
      assert.strictEqual(Buffer.from(twice).toString(), "body")
      const port = yield* listening((response) => {
        begin(response)
        response.socket?.destroy()
      })
      const client = yield* connected(port)
      client.resume().write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
      yield* Effect.callback<void>((resume) => void client.on("close", () => resume(Effect.void)))
      assert.strictEqual(client.bytesRead, 0)
      assert.deepStrictEqual(errors.mock.calls, [])
    }).pipe(Effect.scoped)
  )

  it.live("a response that waits is not lost if the bytes after its request are malformed", () =>
    Effect.gen(function* () {
      const server = makeNodeServer()
      const port = yield* listening((response) => {
        response.strictContentLength = true
        response.writeHead(200, { "content-length": 4 })
        response.end("body")
        server.emit("clientError", new Error("malformed"), response.req.socket)
      }, server)
      const client = yield* connected(port)
      client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
      const answer = yield* Effect.promise(() => client.setEncoding("utf8").toArray())
      assert.match(answer.join(""), /^HTTP\/1\.1 200 OK\r\n.*body/s)
    }).pipe(Effect.scoped)
  )

  /** Responds to pipelined requests with `last` after them, all in the turn in which the last request is read. */
  const pipelined = Effect.fnUntraced(function* (last: string) {
    const responses: Array<ServerResponse> = []
    const respond = (response: ServerResponse) => {
      response.strictContentLength = true
      response.writeHead(200, { "content-length": 4 })
      response.end("body")
    }
    const port = yield* listening((response) => {
      if (responses.push(response) > MOST_UNANSWERED) respond(response)
    }, makeNodeServer())
    const client = yield* connected(port)
    const answers = client.setEncoding("utf8").toArray()
    const requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(MOST_UNANSWERED + 1)
    yield* Effect.callback<void>((resume) => void client.end(requests + last, () => resume(Effect.void)))
    yield* eventually(
      Effect.sync(() => responses.length),
      (count) => count === MOST_UNANSWERED
    )
    for (const response of responses) respond(response)
    return (yield* Effect.promise(() => answers)).join("").match(/body/g)?.length
  }, Effect.scoped)

  it.live("no response that waits is lost if its client ends its side, or sends malformed bytes", () =>
    Effect.gen(function* () {
      for (const last of ["", "malformed\r\n\r\n"]) {
        assert.strictEqual(yield* pipelined(last), MOST_UNANSWERED + 1, last)
      }
    })
  )
})
