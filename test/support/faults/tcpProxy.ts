import { connect, createServer, type Socket } from "node:net"
import { Effect, type Scope } from "effect"
import type { Fault } from "./Fault.ts"

/** A proxy between a client and its server that can lose and delay bytes. */
export interface TcpProxy {
  readonly port: number
  /** A URL of the target, redirected through the proxy. */
  readonly through: (url: string) => string
  /** Resets every connection, new ones included. */
  readonly dropped: Fault
  /**
   * A black hole without errors: new connections are accepted, bytes are lost, and the end of a side is not passed on.
   * Healed: connections that have lost bytes are reset, the others continue.
   */
  readonly swallowed: Fault
  /** Delays bytes by that many milliseconds in each direction. */
  readonly delayed: (millis: number) => Fault
  /** Withholds the next chunk from the server that `isLast` accepts, and resets its connection; once. */
  readonly cutAt: (isLast: (chunk: Buffer) => boolean) => Effect.Effect<void>
  /** Whether `cutAt` has reset a connection. */
  readonly hasCut: () => boolean
}

interface Link {
  readonly reset: () => void
  /** Whether any bytes were lost. */
  readonly hasLost: () => boolean
}

/** @param target port of 127.0.0.1; a function if it changes */
export const tcpProxy = (target: number | (() => number)): Effect.Effect<TcpProxy, never, Scope.Scope> =>
  Effect.gen(function* () {
    const targetPort = typeof target === "number" ? () => target : target
    const links = new Set<Link>()
    let dropping = false
    let swallowing = false
    let delay = 0
    let isLast: ((chunk: Buffer) => boolean) | undefined
    let hasCut = false

    const cutsHere = (chunk: Buffer) => {
      if (isLast?.(chunk) !== true) return false
      isLast = undefined
      hasCut = true
      return true
    }

    const accept = (client: Socket) => {
      if (dropping) return client.on("error", () => {}).resetAndDestroy()
      // A connection accepted into the black hole has no upstream.
      let lost = swallowing
      const upstream = lost
        ? undefined
        : connect({ port: targetPort(), host: "127.0.0.1", allowHalfOpen: true })
      const link: Link = {
        hasLost: () => lost,
        reset: () => {
          links.delete(link)
          client.resetAndDestroy()
          upstream?.resetAndDestroy()
        }
      }
      links.add(link)

      const pass = (from: Socket, to: Socket | undefined, cuts: (chunk: Buffer) => boolean) => {
        /** Arrival time of the last chunk; later chunks never overtake it. */
        let arrival = 0
        const arrives = (act: () => void) => {
          const deliver = () => {
            if (swallowing) lost = true
            else act()
          }
          const now = performance.now()
          arrival = Math.max(now + delay, arrival)
          if (arrival <= now) deliver()
          else setTimeout(deliver, arrival - now)
        }
        from.on("data", (chunk: Buffer) => {
          if (cuts(chunk)) return link.reset()
          arrives(() => {
            if (to === undefined || to.destroyed || to.write(chunk)) return
            from.pause()
            to.once("drain", () => from.resume())
          })
        })
        from.on("end", () => arrives(() => to?.end()))
        from.on("error", () => arrives(link.reset))
        from.on("close", () => {
          if (client.destroyed && upstream?.destroyed !== false) links.delete(link)
        })
      }
      pass(client, upstream, () => false)
      if (upstream !== undefined) pass(upstream, client, cutsHere)
    }

    const resetAll = (which: (link: Link) => boolean) => {
      for (const link of [...links].filter(which)) link.reset()
    }
    const server = createServer({ allowHalfOpen: true }, accept)
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        resetAll(() => true)
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
      through: (url) => url.replace(/^(\w+:\/\/(?:[^/@]*@)?[^/:]+):\d+/, `$1:${port}`),
      dropped: {
        name: "connections are reset",
        inject: Effect.sync(() => {
          dropping = true
          resetAll(() => true)
        }),
        heal: Effect.sync(() => {
          dropping = false
        })
      },
      swallowed: {
        name: "connections lead nowhere",
        inject: Effect.sync(() => {
          swallowing = true
        }),
        heal: Effect.sync(() => {
          swallowing = false
          resetAll(({ hasLost }) => hasLost())
        })
      },
      delayed: (millis) => ({
        name: `connections are ${millis} ms slower in each direction`,
        inject: Effect.sync(() => {
          delay = millis
        }),
        heal: Effect.sync(() => {
          delay = 0
        })
      }),
      cutAt: (accepts) =>
        Effect.sync(() => {
          isLast = accepts
        }),
      hasCut: () => hasCut
    }
  })
