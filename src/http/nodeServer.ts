import { randomUUID } from "node:crypto"
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse
} from "node:http"
import { createServer as createTlsServer } from "node:https"
import type { Duplex } from "node:stream"
import { type ErrorStatus, reasonPhrases } from "../domain/ApiError.ts"
import type { Reloadable } from "../domain/Reloadable.ts"
import { boundPipelining } from "./pipelining.ts"

/** Certificate and private key, in PEM. */
export interface TlsOptions {
  readonly cert: string
  readonly key: string
  /** Authorities in PEM; with it, a client needs a certificate of one of them. */
  readonly clientCa?: string
}

/** How long a handshake and the head of a request may take. */
const HEAD_MILLIS = 10_000

/** How long a connection may stand still while a request is in progress: streams send something more often. */
const STALLED_MILLIS = 60_000
/** How long the peer may take to close its side after the last answer. */
const LINGER_MILLIS = 1000
/** Requests after which a connection is closed. */
const MOST_REQUESTS = 10_000

const failures: Record<string, { readonly status: 408 | 413 | 431; readonly detail: string }> = {
  HPE_HEADER_OVERFLOW: { status: 431, detail: "the request's headers are too large" },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { status: 413, detail: "the request's chunk extensions are too large" },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, detail: "the request did not arrive in time" }
}

/** An answer with the error body for what never becomes a request of the service; ends the connection. */
const answer = (
  socket: Duplex,
  status: ErrorStatus,
  detail: string,
  hint: string,
  headers: Record<string, string> = {}
) => {
  const request_id = randomUUID()
  const body = JSON.stringify({
    code: String(status),
    status: reasonPhrases[status],
    detail,
    hint,
    request_id
  })
  const lines = Object.entries({
    "Content-Type": "application/json",
    "Content-Length": String(Buffer.byteLength(body)),
    "X-Request-Id": request_id,
    "X-Content-Type-Options": "nosniff",
    Connection: "close",
    ...headers
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${reasonPhrases[status]}\r\n${lines.join("")}\r\n${body}`)
  // A peer that never closes its side would keep the connection open; one that still sends would miss the answer.
  const timer = setTimeout(() => socket.destroy(), LINGER_MILLIS)
  socket.once("close", () => clearTimeout(timer))
}

/**
 * What the HTTP parser refuses never becomes a request, so its error body is written here (decisions, section 1,
 * "Error body"). Malformed HTTP counts as 422, as all input does that cannot be read.
 */
const onClientError = (error: NodeJS.ErrnoException, socket: Duplex, current: ServerResponse | undefined) => {
  // Behind the head of another answer this one would be taken for a part of it.
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

/** A target of CONNECT is a host, not a path: the method is refused wherever it goes. */
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
 * The bare HTTP server: keep-alive beyond that of common load balancers (60 s), heads within 10 s. What Node.js would
 * refuse without the error body comes through as a request (no Host, unknown expectations) or is answered here.
 */
export const makeNodeServer = (tls?: Reloadable<TlsOptions>): Server => {
  const options = {
    keepAliveTimeout: 75_000,
    headersTimeout: HEAD_MILLIS,
    connectionsCheckingInterval: 5000,
    requestTimeout: 120_000,
    requireHostHeader: false
  }
  const server = tls === undefined ? createServer(options) : createLiveTlsServer(options, tls)
  server.maxRequestsPerSocket = MOST_REQUESTS
  server.timeout = STALLED_MILLIS
  const current = new WeakMap<Duplex, ServerResponse>()
  const track = (request: IncomingMessage, response: ServerResponse) => {
    current.set(request.socket, response)
    // A connection that was busy when the server stopped listening would stay open, idle, and hold up the stop.
    response.once("finish", () => {
      if (!server.listening) request.socket.end()
    })
  }
  server.on("request", track).on("checkContinue", track)
  server.on("checkExpectation", (request, response) => server.emit("request", request, response))
  const pipelining = boundPipelining(server)
  const secured = new WeakSet<Duplex>()
  server.on("secureConnection", (socket: Duplex) => secured.add(socket))
  server.on("clientError", (error, socket) => {
    // Nothing can be said before the handshake is done.
    if (tls !== undefined && !secured.has(socket)) return socket.destroy()
    pipelining.discard(socket)
    onClientError(error, socket, current.get(socket))
  })
  server.on("connect", onConnect)
  return server
}
