import type { IncomingMessage, Server, ServerResponse } from "node:http"
import { Server as NetServer, type Socket } from "node:net"
import { Server as TlsServer } from "node:tls"
import { Effect } from "effect"
import { removeFrom } from "./pipelining.ts"

/** The connections of a server for a stop that cuts off no client. */
export interface Connections {
  /** Ends each connection with its next response, which has `Connection: close`. */
  readonly closeIdle: Effect.Effect<void>
  readonly stopListening: Effect.Effect<void>
  /** Ends the connections without a request in progress. */
  readonly endIdle: Effect.Effect<void>
  /** Ends the connections without any request. */
  readonly endUnused: Effect.Effect<void>
  readonly destroyAll: Effect.Effect<void>
  readonly open: Effect.Effect<number>
  readonly closed: Effect.Effect<void>
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

export const connectionsOf = (server: Server): Connections => {
  /** Incomplete responses, unset until the first request. */
  const sockets = new Map<Socket, Array<ServerResponse> | undefined>()
  const waiting = new Set<() => void>()
  let lettingGo = false

  const responsesOf = (socket: Socket): Array<ServerResponse> => {
    const known = sockets.get(socket)
    if (known !== undefined) return known
    const responses: Array<ServerResponse> = []
    // A closed connection has none.
    if (sockets.has(socket)) sockets.set(socket, responses)
    return responses
  }

  server.on(server instanceof TlsServer ? "secureConnection" : "connection", (socket: Socket) => {
    sockets.set(socket, undefined)
    socket.once("close", () => {
      sockets.delete(socket)
      if (sockets.size === 0) for (const done of waiting) done()
    })
  })
  server.on("upgrade", ({ socket }) => void responsesOf(socket))
  // Before the handler that writes the head.
  for (const event of ["request", "checkContinue"] as const) {
    server.prependListener(event, (request: IncomingMessage, response: ServerResponse) => {
      if (lettingGo) response.shouldKeepAlive = false
      const responses = responsesOf(request.socket)
      responses.push(response)
      response.on("close", () => removeFrom(responses, response))
    })
  }

  return {
    closeIdle: Effect.sync(() => {
      lettingGo = true
      for (const responses of sockets.values())
        for (const response of responses ?? []) response.shouldKeepAlive = false
    }),
    // The server's own `close` would end idle connections at once, although a request may be in transit on them.
    stopListening: afterReads(() => void NetServer.prototype.close.call(server)),
    endIdle: afterReads(() => server.closeIdleConnections()),
    endUnused: afterReads(() => {
      for (const [socket, responses] of sockets) if (responses === undefined) socket.destroy()
    }),
    destroyAll: Effect.sync(() => {
      for (const socket of sockets.keys()) socket.destroy()
    }),
    open: Effect.sync(() => sockets.size),
    closed: Effect.callback<void>((resume) => {
      if (sockets.size === 0) return resume(Effect.void)
      const done = () => resume(Effect.void)
      waiting.add(done)
      return Effect.sync(() => waiting.delete(done))
    })
  }
}
