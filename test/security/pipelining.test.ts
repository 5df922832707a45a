import { once } from "node:events"
import { readFileSync } from "node:fs"
import type { IncomingMessage, RequestListener, Server } from "node:http"
import { connect, Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import * as fc from "fast-check"
import { HttpConnections } from "../../src/controlPlane/http/node/connectionLimit.ts"
import { makeNodeServer } from "../../src/controlPlane/http/node/nodeServer.ts"
import { boundPipelining, MOST_UNANSWERED } from "../../src/controlPlane/http/node/pipelining.ts"
import { eventually } from "../support/eventually.ts"
import { alone } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"

const listening = (listener: RequestListener) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = makeNodeServer()
      server.on("request", listener)
      await once(server.listen(0, "127.0.0.1"), "listening")
      return server
    }),
    (server) => Effect.sync(() => server.close() && server.closeAllConnections())
  )

const connected = (server: Server) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      return connect({ port, host: "127.0.0.1", allowHalfOpen: true }).on("error", () => {})
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

/** Everything that the server sends until it closes the connection. */
const received = (socket: Socket) =>
  Effect.promise(async () => {
    const chunks: Array<Buffer> = []
    socket.on("data", (chunk: Buffer) => chunks.push(chunk))
    // The server resets a connection to which the client still writes after the last response.
    await new Promise((ended) => socket.once("end", ended).once("close", ended))
    return Buffer.concat(chunks).toString()
  })

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`

const textOf = async (request: IncomingMessage) => {
  const chunks: Array<Buffer> = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

describe("pipelining: requests in progress are bounded per connection", () => {
  it.live("2,000 pipelined requests are answered in order", () =>
    Effect.gen(function* () {
      let inProgress = 0
      let most = 0
      const server = yield* listening((request, response) => {
        inProgress += 1
        most = Math.max(most, inProgress)
        response.once("close", () => {
          inProgress -= 1
        })
        setImmediate(() => response.end(`${request.url};`))
      })
      const socket = yield* connected(server)
      const paths = Array.from({ length: 2_000 }, (_, n) => `/${n}`)
      let text = ""
      socket.on("data", (chunk: Buffer) => {
        text += chunk.toString()
      })
      socket.write(paths.map(get).join(""))
      yield* eventually(
        Effect.sync(() => text),
        (all) => all.endsWith("/1999;")
      )
      assert.deepStrictEqual(text.match(/\/\d+(?=;)/g), paths)
      assert.isAtMost(most, MOST_UNANSWERED + 1)
    }).pipe(Effect.scoped)
  )

  it.live("the body of a request is read in the turn of its head, unless another request follows", () =>
    Effect.gen(function* () {
      const bodies: Array<string> = []
      const server = yield* listening((request, response) => {
        let when = "at once"
        setImmediate(() => {
          when = "later"
        })
        textOf(request).then((body) => {
          bodies.push(`${body} ${when}`)
          response.end()
        })
      })
      const socket = yield* connected(server)
      const post = (body: string) =>
        `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`
      socket.write(post("alone"))
      yield* Effect.promise(() => once(socket, "data"))
      socket.end(`${post("first")}${post("second")}`)
      yield* received(socket)
      assert.deepStrictEqual(bodies, ["alone at once", "first later", "second at once"])
    }).pipe(Effect.scoped)
  )

  it.live("the bytes of a body take no memory once they were passed on", () =>
    Effect.gen(function* () {
      const body = "0123456789abcdef".repeat(65_536)
      let kept = 0
      const server = yield* listening((request, response) => {
        textOf(request).then((text) => response.end(text === body ? "same" : "other"))
      })
      server.on("connection", (socket: Socket) => {
        socket.on("data", (chunk: Buffer) => {
          kept += chunk.length
        })
      })
      const socket = yield* connected(server)
      socket.end(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
      assert.match(yield* received(socket), /same/)
      // The last piece, and those that Node.js has divided, or that came while it paused the connection.
      assert.isAtMost(kept, body.length / 2)
    }).pipe(Effect.scoped)
  )

  it.live("responses that the client does not read are not buffered", () =>
    Effect.gen(function* () {
      const SIZE = 4 * 1024 * 1024
      let begun = 0
      const server = yield* listening((request, response) => {
        if (request.url === "/clock") return void response.end("tick")
        begun += 1
        response.end(Buffer.alloc(SIZE))
      })
      const socket = yield* connected(server)
      socket.pause().write(get("/large").repeat(50))
      yield* eventually(
        Effect.sync(() => begun),
        (count) => count > 0
      )
      // Round trips of another connection give time to begin all of them.
      const clock = yield* connected(server)
      for (let n = 0; n < 200; n += 1) {
        clock.write(get("/clock"))
        yield* Effect.promise(() => once(clock, "data"))
      }
      assert.isAtMost(begun, 3)
      let bytes = 0
      socket.on("data", (chunk: Buffer) => {
        bytes += chunk.length
      })
      socket.resume()
      yield* eventually(
        Effect.sync(() => bytes),
        (count) => count >= 50 * SIZE
      )
    }).pipe(Effect.scoped)
  )

  it.live("a connection closes with request 10,000, whose response announces the end", () =>
    Effect.gen(function* () {
      const server = yield* listening((_, response) => void response.end("."))
      const socket = yield* connected(server)
      socket.write(get("/").repeat(10_050))
      const text = yield* received(socket)
      const heads = text.split("HTTP/1.1 ").slice(1)
      assert.strictEqual(heads.length, 10_000)
      assert.isTrue(heads.every((head) => head.startsWith("200 OK\r\n")))
      assert.deepStrictEqual(
        heads.flatMap((head, n) => (/\r\nConnection: close\r\n/.test(head) ? [n] : [])),
        [9_999]
      )
    }).pipe(Effect.scoped)
  )
})

describe("pipelining: requests keep their bytes", () => {
  it.live("requests keep their bodies at any chunk boundaries", () =>
    Effect.gen(function* () {
      const seen: Array<string> = []
      const server = yield* listening((request, response) => {
        const n = seen.push("unread") - 1
        void textOf(request).then((body) => {
          seen[n] = `${request.method} ${body}`
          response.end()
        })
      })
      const bodies = fc.array(
        fc.constantFrom("\r\n\r\n", "a", "\r\n", "GET / HTTP/1.1\r\n\r\n", "b".repeat(700))
      )
      const sent = fc.record({
        form: fc.constantFrom("none", "length", "chunked"),
        body: bodies.map((parts) => parts.join(""))
      })
      const textOfRequest = ({ body, form }: { readonly body: string; readonly form: string }) =>
        form === "none"
          ? get("/")
          : form === "length"
            ? `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`
            : `POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${
                body === "" ? "" : `${body.length.toString(16)}\r\n${body}\r\n`
              }0\r\n\r\n`
      const requests = fc.array(sent, { minLength: 1, maxLength: 40 })
      const cuts = fc.array(fc.nat({ max: 2_000 }), { maxLength: 8 })
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(requests, cuts, async (all, at) => {
            seen.length = 0
            const text = all.map(textOfRequest).join("")
            await Effect.runPromise(
              Effect.gen(function* () {
                const socket = yield* connected(server)
                socket.setNoDelay(true)
                let from = 0
                for (const cut of [...at, text.length]) {
                  const to = Math.min(text.length, cut === text.length ? cut : from + cut)
                  yield* Effect.callback<void>((resume) => {
                    socket.write(text.slice(from, to), () => resume(Effect.void))
                  })
                  from = to
                }
                yield* eventually(
                  Effect.sync(() => seen),
                  (some) => some.length === all.length && !some.includes("unread")
                )
              }).pipe(Effect.scoped)
            )
            assert.deepStrictEqual(
              seen,
              all.map(({ body, form }) => (form === "none" ? "GET " : `POST ${body}`))
            )
          }),
          { numRuns: 60 }
        )
      )
    }).pipe(Effect.scoped)
  )

  it.live("bytes after an upgrade are passed to the new protocol", () =>
    Effect.gen(function* () {
      const server = yield* listening((_, response) => void response.end("."))
      let text = ""
      server.on("upgrade", (_, socket, head: Buffer) => {
        text += head.toString()
        // The client ends without reading the response before, which resets the connection.
        socket.on("error", () => {})
        socket.on("data", (chunk: Buffer) => {
          text += chunk.toString()
        })
      })
      const socket = yield* connected(server)
      const upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"
      const other = `one\r\n\r\ntwo${"\r\n\r\nthree".repeat(20)}`
      socket.write(`${get("/")}${upgrade}${other}`)
      yield* eventually(
        Effect.sync(() => text),
        (all) => all === other
      )
    }).pipe(Effect.scoped)
  )
})

describe("pipelining: a flood without a key", () => {
  it.live("a flood takes bounded memory, and other requests are answered meanwhile", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: alone })
      const memory = () =>
        Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${api.process.pid}/status`, "utf8"))?.[1]) / 1024
      assert.strictEqual((yield* api.request("GET", "/docs")).status, 200)
      const before = memory()
      const { hostname, port } = new URL(api.url)
      let bytes = 0
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          Array.from({ length: 50 }, () => {
            const socket = connect(Number(port), hostname).on("error", () => {})
            socket.on("data", (chunk: Buffer) => {
              bytes += chunk.length
            })
            socket.write(get("/docs").repeat(5_000))
            return socket
          })
        ),
        (sockets) => Effect.sync(() => sockets.forEach((socket) => void socket.destroy()))
      )
      yield* eventually(
        Effect.sync(() => bytes),
        (count) => count > 1_000_000
      )
      for (let n = 0; n < 10; n += 1) {
        assert.strictEqual((yield* api.request("GET", "/healthz")).status, 200)
      }
      assert.isBelow(memory() - before, 400)
    }).pipe(Effect.scoped)
  )
})

describe("pipelining: an HTTP server whose requests cannot be bounded", () => {
  it.live("the server destroys its connections and logs one ERROR", () => {
    const lines: Array<string> = []
    return Effect.gen(function* () {
      const server = makeNodeServer()
      yield* Layer.build(HttpConnections.layer(server))
      // The state after an upgrade of Node.js that has other listeners.
      server.removeAllListeners("connection")
      boundPipelining(server)
      const sockets = [new Socket(), new Socket()]
      for (const socket of sockets) server.emit("connection", socket)
      assert.isTrue(sockets.every(({ destroyed }) => destroyed))
      yield* eventually(
        Effect.sync(() => lines.length),
        (count) => count > 0
      )
      assert.strictEqual(lines.length, 1)
      assert.match(lines[0] ?? "", /level=ERROR .*all connections are refused/)
    }).pipe(
      Effect.scoped,
      Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => lines.push(line))]))
    )
  })
})
