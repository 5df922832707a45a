import { EventEmitter } from "node:events"
import { createServer } from "node:http"
import { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { IpNetwork } from "effect/net"
import { ONLY_READ } from "../../../../src/controlPlane/http/node/clients.ts"
import { HttpConnections } from "../../../../src/controlPlane/http/node/connectionLimit.ts"

const MOST = 20

const proxies = [IpNetwork.fromStringUnsafe("10.0.0.0/8")]

/** A server with connections from arbitrary remote addresses; none of them ends. */
const serverOf = Effect.gen(function* () {
  const server = createServer()
  yield* Layer.build(HttpConnections.layer(server, { maximum: MOST, proxies }))
  const sockets: Array<Socket> = []
  yield* Effect.addFinalizer(() => Effect.sync(() => sockets.forEach((socket) => void socket.destroy())))
  const connect = (address: string) => {
    const socket = Object.defineProperties(new Socket(), {
      remoteAddress: { value: address },
      remotePort: { value: sockets.length + 1024 }
    })
    sockets.push(socket)
    server.emit("connection", socket)
    return socket
  }
  /** A connection with a request in progress. */
  const busy = (address: string) => {
    const socket = connect(address)
    const response = new EventEmitter()
    server.emit("request", { socket }, response)
    return Object.assign(socket, { response })
  }
  return { connect, busy }
})

describe("connections: limit for one host", () => {
  it.effect.each([
    { name: "an IPv4 address", address: () => "192.0.2.7" },
    { name: "the addresses of a /64", address: (at: number) => `2001:db8::${at}` },
    { name: "an IPv4 address, mapped into IPv6", address: () => "::ffff:192.0.2.7" }
  ])("$name with half of the connections gets no more; others do", ({ address }) =>
    Effect.gen(function* () {
      const { busy, connect } = yield* serverOf
      const own = Array.from({ length: 10 }, (_, at) => busy(address(at + 1)))
      assert.isTrue(connect(address(100)).destroyed)
      const others = Array.from({ length: 8 }, (_, at) => busy(`198.51.100.${at}`))
      assert.isTrue(connect(address(101)).destroyed)
      assert.isFalse(connect("198.51.100.100").destroyed)
      assert.isTrue([...own, ...others].every((socket) => !socket.destroyed))
    }).pipe(Effect.scoped)
  )

  it.effect.each(["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.7"])(
    "%s, a shared address, may hold more than half of the connections",
    (address) =>
      Effect.gen(function* () {
        const { busy } = yield* serverOf
        const sockets = Array.from({ length: 18 }, () => busy(address))
        assert.isTrue(sockets.every((socket) => !socket.destroyed))
      }).pipe(Effect.scoped)
  )

  it.effect("two hosts whose peers only read public answers give way to a third", () =>
    Effect.gen(function* () {
      const { busy } = yield* serverOf
      const slow = Array.from({ length: 18 }, (_, at) => busy(`192.0.2.${at % 2}`))
      for (const { response } of slow) response.emit(ONLY_READ)
      const others = Array.from({ length: 8 }, (_, at) => busy(`198.51.100.${at}`))
      assert.isTrue(others.every((socket) => !socket.destroyed))
      assert.strictEqual(slow.filter((socket) => socket.destroyed).length, others.length)
      // All of them have closed by now, and each counts once.
      for (const { response } of slow) response.emit("close")
      const [, , ...more] = Array.from({ length: 10 }, (_, at) => busy(`203.0.113.${at}`))
      assert.isTrue(more.every((socket) => !socket.destroyed))
      assert.isTrue(others.every((socket) => !socket.destroyed))
    }).pipe(Effect.scoped)
  )

  it.effect("a new connection of a host that holds half replaces an idle connection of that host", () =>
    Effect.gen(function* () {
      const { busy } = yield* serverOf
      const other = busy("198.51.100.1")
      other.response.emit("close")
      const own = Array.from({ length: 10 }, () => busy("192.0.2.7"))
      own[3]?.response.emit("close")
      assert.isFalse(busy("192.0.2.7").destroyed)
      assert.deepStrictEqual(
        own.flatMap((socket, at) => (socket.destroyed ? [at] : [])),
        [3]
      )
      assert.isFalse(other.destroyed)
    }).pipe(Effect.scoped)
  )
})
