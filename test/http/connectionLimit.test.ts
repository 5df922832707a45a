import { EventEmitter } from "node:events"
import { createServer } from "node:http"
import { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpConnections } from "../../src/http/connectionLimit.ts"

const MOST = 20

/** A server whose connections come from addresses that this machine does not have; none has an end. */
const serverOf = Effect.gen(function* () {
  const server = createServer()
  yield* Layer.build(HttpConnections.layer(server, MOST))
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
    server.emit("request", { socket }, new EventEmitter())
    return socket
  }
  return { connect, busy }
})

describe("connections: one host does not hold all of them", () => {
  it.effect.each([
    { name: "an IPv4 address", address: () => "192.0.2.7" },
    { name: "the addresses of a /64", address: (at: number) => `2001:db8::${at}` },
    { name: "an IPv4 address, mapped into IPv6", address: () => "::ffff:192.0.2.7" }
  ])("$name with more than half gets no more, others do", ({ address }) =>
    Effect.gen(function* () {
      const { busy, connect } = yield* serverOf
      const own = Array.from({ length: 11 }, (_, at) => busy(address(at + 1)))
      const others = Array.from({ length: 7 }, (_, at) => busy(`198.51.100.${at}`))
      assert.isTrue(connect(address(100)).destroyed)
      assert.isFalse(connect("198.51.100.100").destroyed)
      assert.isTrue([...own, ...others].every((socket) => !socket.destroyed))
    }).pipe(Effect.scoped)
  )
})
