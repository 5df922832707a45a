import { randomUUID } from "node:crypto"
import { createServer, type IncomingMessage, type Server, type ServerOptions } from "node:http"
import { createServer as createTlsServer } from "node:https"
import type { Duplex } from "node:stream"
import type { TLSSocket } from "node:tls"
import { Effect, Queue } from "effect"
import { type ErrorStatus, errorBody, reasonPhrases } from "../../../contract/domain/ApiError.ts"
import type { Reloadable } from "../../../shared/work/Reloadable.ts"
import { boundArrival } from "./clients.ts"
import { boundPipelining, WholeResponse } from "./pipelining.ts"

/** Certificate and private key, in PEM. */
export interface TlsOptions {
  readonly cert: string
  readonly key: string
  /** Authorities in PEM; with it, a client needs a certificate of one of them. */
  readonly clientCa?: string
}

/** Timeout of a handshake and of a request's head. */
const HEAD_MILLIS = 10_000

/** Timeout of a stalled connection with a request in progress: longer than any handler, and streams send more often. */
const STALLED_MILLIS = 120_000
/** Time in which the peer closes its side after the last response. */
const LINGER_MILLIS = 1000
const MOST_REQUESTS = 10_000

const failures: Record<string, { readonly status: 408 | 413 | 431; readonly detail: string }> = {
  HPE_HEADER_OVERFLOW: { status: 431, detail: "the request's headers are too large" },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { status: 413, detail: "the request's chunk extensions are too large" },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, detail: "the request did not arrive in time" }
}

/** Writes a response with the error body for input that never becomes a request; ends the connection. */
const answer = (
  socket: Duplex,
  status: ErrorStatus,
  detail: string,
  hint: string,
  headers: Record<string, string> = {}
) => {
  const request_id = randomUUID()
  const body = JSON.stringify(errorBody(status, { detail, hint }, request_id))
  const lines = Object.entries({
    "Content-Type": "application/json",
    "Content-Length": String(Buffer.byteLength(body)),
    "X-Request-Id": request_id,
    "X-Content-Type-Options": "nosniff",
    Connection: "close",
    ...headers
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${reasonPhrases[status]}\r\n${lines.join("")}\r\n${body}`)
  // A peer that never closes its side would keep the connection open; one that still sends would miss the response.
  const timer = setTimeout(() => socket.destroy(), LINGER_MILLIS)
  socket.once("close", () => clearTimeout(timer))
}

/** Malformed HTTP is 422, like all input that cannot be read (spec 1.4). */
const onClientError = (error: NodeJS.ErrnoException, socket: Duplex, current: WholeResponse | undefined) => {
  // After the head of another response, this one would count as a part of it.
  const answering = current?.headersSent === true && !current.writableFinished
  if (error.code === "ECONNRESET" || !socket.writable || answering) {
    socket.destroy()
    return
  }
  const { status, detail } = failures[error.code ?? ""] ?? {
    status: 422 as const,
    detail: "malformed HTTP request"
  }
  answer(socket, status, detail, "Send a well-formed HTTP/1.1 request.")
}

/** The target of CONNECT is a host, not a path: the method is refused everywhere. */
const onConnect = (_: IncomingMessage, socket: Duplex) => {
  const allow = "GET, HEAD, POST, PATCH, DELETE, OPTIONS"
  socket.on("error", () => socket.destroy())
  answer(socket, 405, "CONNECT is not allowed", `Use ${allow}.`, { Allow: allow })
}

/** New connections use the newest certificate; open ones keep theirs. */
const createLiveTlsServer = (options: ServerOptions, tls: Reloadable<TlsOptions>) => {
  const context = ({ cert, clientCa, key }: TlsOptions) => ({
    cert,
    key,
    ...(clientCa === undefined ? {} : { ca: clientCa })
  })
  const first = tls.current()
  const server = createTlsServer({
    ...options,
    ...context(first),
    requestCert: first.clientCa !== undefined,
    rejectUnauthorized: true,
    handshakeTimeout: HEAD_MILLIS
  })
  tls.onChange((next) => server.setSecureContext(context(next)))
  return server
}

/**
 * Makes the HTTP server, whose keep-alive outlasts common load balancers' (60 s). Requests that Node.js would refuse
 * without the error body become requests or are answered here.
 */
export const makeNodeServer = (tls?: Reloadable<TlsOptions>): Server => {
  const options = {
    ServerResponse: WholeResponse,
    keepAliveTimeout: 75_000,
    headersTimeout: HEAD_MILLIS,
    connectionsCheckingInterval: 5000,
    // Bodies of files take any time: boundArrival has the bound of the others.
    requestTimeout: 0,
    requireHostHeader: false,
    // A request without a body emits no events of a stream: nothing listens for them.
    optimizeEmptyRequests: true
  }
  const server = tls === undefined ? createServer(options) : createLiveTlsServer(options, tls)
  server.maxRequestsPerSocket = MOST_REQUESTS
  server.timeout = STALLED_MILLIS
  const current = new WeakMap<Duplex, WholeResponse>()
  const track = (request: IncomingMessage, response: WholeResponse) => {
    current.set(request.socket, response)
    boundArrival(request, () => {
      const late = Object.assign(new Error("the request is late"), { code: "ERR_HTTP_REQUEST_TIMEOUT" })
      server.emit("clientError", late, request.socket)
    })
    // A connection that was busy when the server stopped listening would stay open and delay the stop.
    response.on("finish", () => {
      if (!server.listening) request.socket.end()
    })
  }
  server.on("request", track).on("checkContinue", track)
  server.on("checkExpectation", (request, response) => server.emit("request", request, response))
  const pipelining = boundPipelining(server)
  const secured = new WeakSet<Duplex>()
  server.on("secureConnection", (socket: Duplex) => secured.add(socket))
  server.on("clientError", (error, socket) => {
    // No response is possible before the end of the handshake.
    if (tls !== undefined && !secured.has(socket)) return socket.destroy()
    pipelining.discard(socket)
    onClientError(error, socket, current.get(socket))
  })
  server.on("connect", onConnect)
  return server
}

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
