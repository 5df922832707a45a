import type { Server } from "node:http"
import type { TLSSocket } from "node:tls"
import { Effect, Queue } from "effect"

const PAUSE = "1 minute"

/** Returns nothing if the handshake failed for another reason. */
const reasonOf = (error: NodeJS.ErrnoException, socket: TLSSocket): string | undefined => {
  if (error.code === "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE") return "no certificate"
  // Declared as an error, but it is a code.
  const code: unknown = socket.authorizationError
  return code === undefined || code === null ? undefined : String(code)
}

/** Logs connections that were refused for their client certificate: the first at once, later ones once a minute. */
export const logRefusedHandshakes = Effect.fnUntraced(function* (server: Server) {
  const due = yield* Queue.sliding<void>(1)
  let refused = 0
  let last = { reason: "", address: "" }
  const note = (error: Error, socket: TLSSocket) => {
    const reason = reasonOf(error, socket)
    if (reason === undefined) return
    refused += 1
    last = { reason, address: socket.remoteAddress ?? "an address that is gone" }
    Queue.offerUnsafe(due, undefined)
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => server.on("tlsClientError", note)),
    () => Effect.sync(() => server.off("tlsClientError", note))
  )
  yield* Effect.gen(function* () {
    yield* Queue.take(due)
    const count = refused
    refused = 0
    yield* Effect.logWarning(
      `connections refused: the client certificate is not of an authority in MUSTER_NODE_CLIENT_CA (${last.reason})`
    ).pipe(Effect.annotateLogs({ connections: count, last_address: last.address }))
    yield* Effect.sleep(PAUSE)
  }).pipe(Effect.forever, Effect.forkScoped)
})
