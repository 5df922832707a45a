import { once } from "node:events"
import { request } from "node:http"
import { request as tlsRequest } from "node:https"
import { connect, type Socket } from "node:net"
import { resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { connectionsWithin } from "../../src/controlPlane/http/node/connectionLimit.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeKey, startNode } from "../support/nodes.ts"
import { ServiceFailed, startService } from "../support/Service.ts"

const OPEN_FILES = 256
const FLOOD = 2 * OPEN_FILES
const tls = {
  MUSTER_TLS_CERT: resolve(import.meta.dirname, "../support/tls/cert.pem"),
  MUSTER_TLS_KEY: resolve(import.meta.dirname, "../support/tls/key.pem")
}

/** The status of a request on a new connection. */
const statusOf = (url: string) =>
  Effect.callback<number, ServiceFailed>((resume) => {
    const send = url.startsWith("https:") ? tlsRequest : request
    const sent = send(url, { agent: false, rejectUnauthorized: false }, (response) => {
      response.resume()
      resume(Effect.succeed(response.statusCode ?? 0))
    })
    sent.on("error", (error) => resume(Effect.fail(new ServiceFailed({ message: String(error) }))))
    sent.end()
    return Effect.sync(() => sent.destroy())
  })

/** Connections that send `bytes` and never close their side. */
const peers = (url: string, count: number, bytes = "") => {
  const { hostname, port } = new URL(url)
  return Effect.acquireRelease(
    Effect.sync(() =>
      Array.from({ length: count }, () => {
        const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true })
        socket.on("error", () => {}).resume()
        if (bytes !== "") socket.write(bytes)
        return socket
      })
    ),
    (sockets) => Effect.sync(() => sockets.forEach((socket: Socket) => void socket.destroy()))
  )
}

/** Asserts that a request on a new connection gets `status` while the peers stay connected. */
const answers = (url: string, status: number) =>
  eventually(
    Effect.result(Effect.timeout(statusOf(url), "2 seconds")),
    (result) => Result.isSuccess(result) && result.success === status
  )

describe("connections: silent peers", () => {
  it.live(
    "with twice as many silent peers as open files, the service answers new requests and keeps its streams",
    () =>
      Effect.gen(function* () {
        const api = yield* startService({ env: alone, openFiles: OPEN_FILES })
        const stream = yield* Effect.acquireRelease(
          Effect.sync(() =>
            request(`${api.url}/api/events`, { headers: { authorization: `Bearer ${api.key}` } }).end()
          ),
          (sent) => Effect.sync(() => sent.destroy())
        )
        const [response] = yield* Effect.promise(() => once(stream, "response"))
        let cut = false
        response.on("close", () => {
          cut = true
        })
        response.resume()
        yield* peers(api.url, FLOOD)
        yield* answers(`${api.url}/healthz`, 200)
        yield* eventually(Effect.sync(api.output), (text) =>
          /WARN.* connections dropped: \d+ are open/.test(text)
        )
        const metrics = (yield* api.request("GET", "/metrics")).text
        const open = Number(/^muster_http_connections(?:\{\})? (\d+)/m.exec(metrics)?.[1])
        assert.isAtMost(open, connectionsWithin(OPEN_FILES))
        assert.isAbove(Number(/^muster_http_connections_dropped_total\S* (\d+)/m.exec(metrics)?.[1]), 0)
        assert.isFalse(cut, "the stream was cut")
      }).pipe(Effect.scoped)
  )

  it.live("peers that begin no TLS handshake do not stop the service", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: { ...alone, ...tls }, openFiles: OPEN_FILES })
      yield* peers(api.url, FLOOD)
      yield* answers(`${api.url}/healthz`, 200)
    }).pipe(Effect.scoped)
  )

  it.live("silent peers do not stop a daemon", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: alone })
      const { key } = yield* nodeKey(api)
      const node = yield* startNode({ control: api.url, key, id: "crowded", openFiles: OPEN_FILES })
      yield* peers(node.url, FLOOD)
      yield* answers(`${node.url}/api/system`, 401)
      yield* eventually(Effect.sync(node.output), (text) => /WARN.* connections dropped/.test(text))
    }).pipe(Effect.scoped)
  )
})

describe("connections: a response before the end of the request closes the connection", () => {
  it.live("the connection closes although the peer never closes its side", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: alone, openFiles: OPEN_FILES })
      const open = Effect.map(api.request("GET", "/metrics"), ({ text }) =>
        Number(/^muster_http_connections(?:\{\})? (\d+)/m.exec(text)?.[1])
      )
      const sockets = yield* peers(api.url, 100, "garbage\r\n\r\n")
      yield* Effect.promise(() => Promise.all(sockets.map((socket) => once(socket, "end"))))
      yield* eventually(open, (count) => count < 10)
      assert.isTrue(sockets.every((socket) => socket.writable))
    }).pipe(Effect.scoped)
  )
})
