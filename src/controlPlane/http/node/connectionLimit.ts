import { readFileSync } from "node:fs"
import type { IncomingMessage, Server, ServerResponse } from "node:http"
import { Server as NetServer, type Socket } from "node:net"
import { Context, Effect, Latch, Layer } from "effect"
import { IpNetwork } from "effect/net"
import { LIMITS, openFilesIn } from "../../../shared/observability/observations.ts"
import { Tally } from "../../../shared/work/Tally.ts"
import { canonicalAddress, countedAddress, ONLY_READ } from "./clients.ts"
import { removeFrom, UNGATED } from "./pipelining.ts"

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
  /** Responses in progress; to a peer without a key, until they are written. */
  readonly responses: Array<ServerResponse>
  isUpgraded: boolean
}

const portKey = (socket: Socket) => `${socket.remoteAddress} ${socket.remotePort}`

const isShared = (text: string, networks: ReadonlyArray<IpNetwork.IpNetwork>): boolean => {
  const address = canonicalAddress(text)
  return address !== undefined && networks.some((network) => IpNetwork.contains(network, address))
}

const firstAt = (connections: Iterable<Connection>, address: string): Connection | undefined => {
  for (const connection of connections) if (connection.address === address) return connection
  return undefined
}

/** The connections of a server: near the limit, a new one replaces one that is unused or idle. */
const makeTable = (maximum: number, shared: ReadonlyArray<IpNetwork.IpNetwork>, onDropped: () => void) => {
  const crowded = Math.floor(maximum * CROWDED_PART)
  const all = new Map<Socket, Connection>()
  const byAddress = new Tally<string>()
  /** Connections without any request; oldest first. */
  const unused = new Set<Connection>()
  /** Connections without a request in progress; the longest idle first. */
  const idle = new Set<Connection>()
  /** Called once no connection is open. */
  const waiting = new Set<() => void>()
  let dropped = 0

  const forget = (connection: Connection) => {
    if (!all.delete(connection.socket)) return
    unused.delete(connection)
    idle.delete(connection)
    byAddress.remove(connection.address)
    if (all.size === 0) for (const done of waiting) done()
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
  const holdsHalf = ({ address }: Connection) => byAddress.of(address) * 2 > maximum
  const makeRoom = (fresh: Connection) => {
    const [oldest] = unused
    const [longest] = idle
    const victim = oldest ?? longest
    if (victim !== undefined) drop(victim)
    else if (holdsHalf(fresh)) drop(fresh)
  }
  const add = (socket: Socket): Connection => {
    const connection: Connection = {
      address: countedAddress(socket.remoteAddress ?? ""),
      socket,
      responses: [],
      isUpgraded: false
    }
    all.set(socket, connection)
    byAddress.add(connection.address)
    if (holdsHalf(connection) && !isShared(socket.remoteAddress ?? "", shared)) {
      drop(firstAt(unused, connection.address) ?? firstAt(idle, connection.address) ?? connection)
    } else if (all.size > crowded) makeRoom(connection)
    if (all.has(socket)) unused.add(connection)
    return connection
  }
  const begin = ({ socket }: IncomingMessage): Connection | undefined => {
    const connection = all.get(socket)
    if (connection === undefined) return undefined
    unused.delete(connection)
    idle.delete(connection)
    return connection
  }
  const end = (connection: Connection, response: ServerResponse) => {
    removeFrom(connection.responses, response)
    const isIdle = connection.responses.length === 0 && !connection.isUpgraded
    if (isIdle && all.has(connection.socket)) idle.add(connection)
  }
  const replace = (connection: Connection, socket: Socket) => {
    if (!all.delete(connection.socket)) return
    connection.socket = socket
    all.set(socket, connection)
  }
  const closed = Effect.callback<void>((resume) => {
    if (all.size === 0) return resume(Effect.void)
    const done = () => resume(Effect.void)
    waiting.add(done)
    return Effect.sync(() => waiting.delete(done))
  })
  return { all, unused, dropped: () => dropped, count, add, begin, end, forget, replace, closed }
}

/** Acts after arrived requests are read: after a pause, a timer of Node.js would cut off clients. */
const afterReads = (act: () => void): Effect.Effect<void> =>
  Effect.callback((resume) => {
    const immediate = setImmediate(() => {
      act()
      resume(Effect.void)
    })
    return Effect.sync(() => clearImmediate(immediate))
  })

const trackConnections = (server: Server, table: ReturnType<typeof makeTable>) => {
  const { all, unused } = table
  /** By port of the peer: the socket of a TLS connection changes with its handshake. */
  const handshakes = new Map<string, Connection>()
  let isClosing = false

  const track = (socket: Socket): Connection => {
    const connection = table.add(socket)
    socket.once("close", () => table.forget(connection))
    return connection
  }
  server.on("drop", table.count)
  server.prependListener("connection", (socket: Socket) => {
    const connection = track(socket)
    const key = portKey(socket)
    handshakes.set(key, connection)
    socket.once("close", () => {
      if (handshakes.get(key) === connection) handshakes.delete(key)
    })
  })
  server.prependListener("secureConnection", (socket: Socket) => {
    const connection = handshakes.get(portKey(socket))
    // One over the unix socket begins here.
    if (connection === undefined) return void track(socket)
    table.replace(connection, socket)
    socket.once("close", () => table.forget(connection))
  })
  for (const event of ["request", "checkContinue"] as const) {
    // Before the handler that writes the head.
    server.prependListener(event, (request: IncomingMessage, response: ServerResponse) => {
      if (isClosing) response.shouldKeepAlive = false
      const connection = table.begin(request)
      if (connection === undefined) return
      connection.responses.push(response)
      const end = () => {
        if (connection.responses.includes(response)) table.end(connection, response)
      }
      response.on("close", end).on(ONLY_READ, end)
    })
  }
  for (const event of ["upgrade", "connect"] as const) {
    server.prependListener(event, (request: IncomingMessage) => {
      const connection = table.begin(request)
      if (connection !== undefined) connection.isUpgraded = true
    })
  }

  return {
    open: () => all.size,
    dropped: table.dropped,
    /** Ends each connection with its next response, which has `Connection: close`. */
    closeIdle: Effect.sync(() => {
      isClosing = true
      for (const { responses } of all.values())
        for (const response of responses) response.shouldKeepAlive = false
    }),
    // The server's own `close` would end idle connections at once, although a request may be in transit on them.
    stopListening: afterReads(() => void NetServer.prototype.close.call(server)),
    /** Ends the connections without a request in progress. */
    endIdle: afterReads(() => server.closeIdleConnections()),
    /** Ends the connections without any request. */
    endUnused: afterReads(() => {
      for (const { socket } of unused) socket.destroy()
    }),
    destroyAll: Effect.sync(() => {
      for (const socket of all.keys()) socket.destroy()
    }),
    /** Waits until no connection is open. */
    closed: table.closed
  }
}

const make = Effect.fnUntraced(function* (
  server: Server,
  maximum: number,
  proxies: ReadonlyArray<IpNetwork.IpNetwork>
) {
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
  server.maxConnections = maximum
  const table = makeTable(maximum, [...loopback, ...proxies], () => some.openUnsafe())
  const connections = trackConnections(server, table)
  let reported = 0
  yield* Effect.gen(function* () {
    yield* some.await
    // A flood is one line.
    yield* Effect.sleep(GATHER)
    some.closeUnsafe()
    const dropped = connections.dropped()
    yield* Effect.logWarning(
      `${dropped - reported} connections dropped: ${connections.open()} are open, and the limit of open files allows ${maximum}`
    )
    reported = dropped
    yield* Effect.sleep(PAUSE)
  }).pipe(Effect.forever, Effect.forkScoped)
  return connections
})

/** The connections of an HTTP server, bounded by the open files, and their end. */
export class HttpConnections extends Context.Service<
  HttpConnections,
  Effect.Success<ReturnType<typeof make>>
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
  ) => Layer.effect(HttpConnections, make(server, maximum, proxies))
}
