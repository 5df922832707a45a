/** Ports without a listener. */
import { createSocket } from "node:dgram"
import { createServer } from "node:net"
import { Effect } from "effect"
import { ServiceFailed } from "./Service.ts"

/** Whether a server can listen on the port of 127.0.0.1. */
export const isFree = (port: number): Effect.Effect<boolean> =>
  Effect.callback<boolean>((resume) => {
    const server = createServer()
    server.once("error", () => resume(Effect.succeed(false)))
    server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(true))))
  })

/** Holds a port as another program of the host, until the scope ends. */
export const portHeld = (ip: string, port: number, protocol: "TCP" | "UDP") =>
  Effect.acquireRelease(
    Effect.callback<{ close(): unknown }, ServiceFailed>((resume) => {
      const failed = (error: Error) =>
        resume(Effect.fail(new ServiceFailed({ message: `${ip} ${port} ${protocol}: ${error.message}` })))
      if (protocol === "UDP") {
        const socket = createSocket(ip.includes(":") ? "udp6" : "udp4")
        socket.once("error", failed)
        socket.bind(port, ip, () => resume(Effect.succeed(socket)))
      } else {
        const server = createServer().once("error", failed)
        server.listen(port, ip, () => resume(Effect.succeed(server)))
      }
    }),
    (held) => Effect.sync(() => held.close())
  )

/** Returns the first of `count` consecutive free ports, below the ephemeral range. */
export const freePorts = Effect.fnUntraced(function* (count: number) {
  for (let attempt = 0; attempt < 50; attempt++) {
    const first = 20_000 + Math.floor(Math.random() * 5_000)
    const ports = Array.from({ length: count }, (_, index) => first + index)
    if ((yield* Effect.forEach(ports, isFree)).every((free) => free)) return first
  }
  return yield* new ServiceFailed({ message: `no ${count} free ports in a row` })
})

/** The setting for an embedded node with `count` free ports. */
export const freeAllocations = (count: number) =>
  Effect.map(freePorts(count), (first) => ({
    MUSTER_EMBEDDED_ALLOCATIONS: `127.0.0.1:${first}-${first + count - 1}`
  }))
