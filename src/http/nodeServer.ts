import { randomUUID } from "node:crypto"
import { createServer, type Server } from "node:http"
import type { Duplex } from "node:stream"
import { reasonPhrases } from "../domain/ApiError.ts"

const failures: Record<string, { readonly status: 408 | 413 | 431; readonly detail: string }> = {
  HPE_HEADER_OVERFLOW: { status: 431, detail: "the request's headers are too large" },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { status: 413, detail: "the request's chunk extensions are too large" },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, detail: "the request did not arrive in time" }
}

/**
 * What the HTTP parser refuses never becomes a request, so its error body is written here (decisions, section 1,
 * "Error body"). Malformed HTTP counts as 422, as all input does that cannot be read.
 */
const onClientError = (error: NodeJS.ErrnoException, socket: Duplex) => {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy()
    return
  }
  const { status, detail } = failures[error.code ?? ""] ?? {
    status: 422 as const,
    detail: "malformed HTTP request"
  }
  const request_id = randomUUID()
  const body = JSON.stringify({
    code: String(status),
    status: reasonPhrases[status],
    detail,
    hint: "Send a well-formed HTTP/1.1 request.",
    request_id
  })
  socket.end(
    `HTTP/1.1 ${status} ${reasonPhrases[status]}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${request_id}\r\nConnection: close\r\n\r\n${body}`
  )
}

/** The bare HTTP server: keep-alive beyond that of common load balancers (60 s), heads within 30 s. */
export const makeNodeServer = (): Server => {
  const server = createServer({ keepAliveTimeout: 75_000, headersTimeout: 30_000, requestTimeout: 120_000 })
  server.on("clientError", onClientError)
  return server
}
