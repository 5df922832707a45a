import { readFileSync } from "node:fs"
import type { IncomingMessage, Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Context, Effect, Latch, Layer } from "effect"
import { IpNetwork } from "effect/net"
import { LIMITS, openFilesIn } from "../../../shared/observability/openFiles.ts"
import { Tally } from "../../../shared/work/Tally.ts"
import { canonicalAddress, countedAddress } from "./clientAddress.ts"
import { UNGATED } from "./pipelining.ts"
import { ONLY_READ } from "./strangers.ts"

/** The limit of open files on a system that does not report it. */
const USUAL_OPEN_FILES = 10_240
/** Files that stay free for the database, servers and calls: at least this number, and this part of the limit. */
const RESERVE = 64
const RESERVED_PART = 0.2
/** The part of the connections above which new ones replace unused ones. */
const CROWDED_PART = 0.9
/** Programs of this host share these addresses, as the clients of a proxy share the proxy's. */
const loopback = ["127.0.0.0/8", "::1/128"].map(IpNetwork.fromStringUnsafe)
const GATHER = "1 second"
const PAUSE = "59 seconds"

/** Returns the limit of open files, which Node.js has raised as far as possible. */
const openFileLimit = (): number => {
  try {
    return openFilesIn(readFileSync(LIMITS, "utf8")) ?? USUAL_OPEN_FILES
  } catch {
    return USUAL_OPEN_FILES
  }
}

/** Returns the number of connections within a limit of open files. */
export const connectionsWithin = (openFiles: number): number =>
  Math.max(1, Math.floor(openFiles - Math.max(RESERVE, openFiles * RESERVED_PART)))

interface Connection {
  readonly address: string
  socket: Socket
  requests: number
}

const portKey = (socket: Socket) => `${socket.remoteAddress} ${socket.remotePort}`

/** The connections of an HTTP server, bounded by the open files. */
export class HttpConnections extends Context.Service<
  HttpConnections,
  {
    readonly open: () => number
    readonly dropped: () => number
  }
>()("muster/http/HttpConnections") {
  /**
   * Near the limit, a new connection replaces one without a request, else the longest idle one. One address (of IPv6:
   * a /64) gets at most half of all connections, except loopback and `proxies`. Build this before the server listens.
   */
  static readonly layer = (
    server: Server,
    {
      maximum = connectionsWithin(openFileLimit()),
      proxies = []
    }: { readonly maximum?: number; readonly proxies?: ReadonlyArray<IpNetwork.IpNetwork> } = {}
  ) =>
    Layer.effect(
      HttpConnections,
      Effect.gen(function* () {
        const some = Latch.makeUnsafe(false)
        const ungated = Latch.makeUnsafe(false)
        server.once(UNGATED, () => ungated.openUnsafe())
        yield* ungated.await.pipe(
          Effect.andThen(
            Effect.logError(
              `all connections are refused: this Node.js (${process.version}) has another HTTP server than Muster knows. Start Muster with the Node.js of its release`
            )
          ),
          Effect.forkScoped
        )
        const limited = limitConnections(server, maximum, [...loopback, ...proxies], () => some.openUnsafe())
        let reported = 0
        yield* Effect.gen(function* () {
          yield* some.await
          // A flood is one line.
          yield* Effect.sleep(GATHER)
          some.closeUnsafe()
          const dropped = limited.dropped()
          yield* Effect.logWarning(
            `${dropped - reported} connections dropped: ${limited.open()} are open, and the limit of open files allows ${maximum}`
          )
          reported = dropped
          yield* Effect.sleep(PAUSE)
        }).pipe(Effect.forever, Effect.forkScoped)
        return HttpConnections.of(limited)
      })
    )
}

const isShared = (text: string, networks: ReadonlyArray<IpNetwork.IpNetwork>): boolean => {
  const address = canonicalAddress(text)
  return address !== undefined && networks.some((network) => IpNetwork.contains(network, address))
}

const firstAt = (connections: Iterable<Connection>, address: string): Connection | undefined => {
  for (const connection of connections) if (connection.address === address) return connection
  return undefined
}

const limitConnections = (
  server: Server,
  maximum: number,
  shared: ReadonlyArray<IpNetwork.IpNetwork>,
  onDropped: () => void
) => {
  const crowded = Math.floor(maximum * CROWDED_PART)
  const all = new Map<Socket, Connection>()
  const byAddress = new Tally<string>()
  /** By port of the peer: the socket of a TLS connection changes with its handshake. */
  const handshakes = new Map<string, Connection>()
  /** Connections without any request; oldest first. */
  const unused = new Set<Connection>()
  /** Connections without a request in progress; the longest idle first. */
  const idle = new Set<Connection>()
  let dropped = 0

  const forget = (connection: Connection) => {
    if (!all.delete(connection.socket)) return
    unused.delete(connection)
    idle.delete(connection)
    byAddress.remove(connection.address)
  }
  const count = () => {
    dropped += 1
    onDropped()
  }
  const drop = (connection: Connection) => {
    forget(connection)
    connection.socket.destroy()
    count()
  }
  const makeRoom = (fresh: Connection) => {
    const [oldest] = unused
    const [longest] = idle
    const victim = oldest ?? longest
    if (victim !== undefined) drop(victim)
    else if (holdsHalf(fresh)) drop(fresh)
  }
  const holdsHalf = ({ address }: Connection) => byAddress.of(address) * 2 > maximum
  const replaceOwn = (fresh: Connection) => {
    drop(firstAt(unused, fresh.address) ?? firstAt(idle, fresh.address) ?? fresh)
  }

  server.maxConnections = maximum
  server.on("drop", count)
  server.prependListener("connection", (socket: Socket) => {
    const connection: Connection = {
      address: countedAddress(socket.remoteAddress ?? ""),
      socket,
      requests: 0
    }
    const key = portKey(socket)
    all.set(socket, connection)
    byAddress.add(connection.address)
    handshakes.set(key, connection)
    socket.once("close", () => {
      if (handshakes.get(key) === connection) handshakes.delete(key)
      forget(connection)
    })
    if (holdsHalf(connection) && !isShared(socket.remoteAddress ?? "", shared)) replaceOwn(connection)
    else if (all.size > crowded) makeRoom(connection)
    if (all.has(socket)) unused.add(connection)
  })
  server.prependListener("secureConnection", (socket: Socket) => {
    const connection = handshakes.get(portKey(socket))
    if (connection === undefined || !all.delete(connection.socket)) return
    connection.socket = socket
    all.set(socket, connection)
    socket.once("close", () => forget(connection))
  })
  const begin = (request: IncomingMessage) => {
    const connection = all.get(request.socket)
    if (connection === undefined) return undefined
    unused.delete(connection)
    idle.delete(connection)
    connection.requests += 1
    return connection
  }
  for (const event of ["request", "checkContinue"] as const) {
    server.prependListener(event, (request: IncomingMessage, response: ServerResponse) => {
      const connection = begin(request)
      if (connection === undefined) return
      let done = false
      const end = () => {
        if (done) return
        done = true
        connection.requests -= 1
        if (connection.requests === 0 && all.has(connection.socket)) idle.add(connection)
      }
      response.on("close", end).on(ONLY_READ, end)
    })
  }
  for (const event of ["upgrade", "connect"] as const) server.prependListener(event, begin)

  return { open: () => all.size, dropped: () => dropped }
}
