/** Stands between a client and its server, and can lose what they say. */
import { connect, createServer, type Socket } from "node:net"
import { Effect, type Scope } from "effect"

export interface TcpProxy {
  readonly port: number
  /**
   * From now on a chunk of the server's that `isLast` accepts is kept back, and its connection is cut; once.
   */
  readonly cutAt: (isLast: (chunk: Buffer) => boolean) => Effect.Effect<void>
  /** Whether the cut was made. */
  readonly hasCut: () => boolean
}

export const tcpProxy = (target: number): Effect.Effect<TcpProxy, never, Scope.Scope> =>
  Effect.gen(function* () {
    const sockets = new Set<Socket>()
    let isLast: ((chunk: Buffer) => boolean) | undefined
    let hasCut = false
    const server = createServer((client) => {
      const upstream = connect(target, "127.0.0.1")
      const end = () => {
        client.destroy()
        upstream.destroy()
      }
      for (const socket of [client, upstream]) {
        sockets.add(socket)
        socket.on("error", end)
        socket.on("close", end)
      }
      client.on("data", (chunk) => upstream.write(chunk))
      upstream.on("data", (chunk: Buffer) => {
        if (isLast?.(chunk) !== true) return client.write(chunk)
        isLast = undefined
        hasCut = true
        end()
      })
    })
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const socket of sockets) socket.destroy()
        server.close()
      })
    )
    const port = yield* Effect.callback<number>((resume) => {
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        resume(Effect.succeed(typeof address === "object" ? (address?.port ?? 0) : 0))
      })
    })
    return {
      port,
      hasCut: () => hasCut,
      cutAt: (accepts) =>
        Effect.sync(() => {
          isLast = accepts
        })
    }
  })
