/** An HTTP client over kept connections that does not wait long for a new one. */
import { Agent as HttpAgent } from "node:http"
import { type AgentOptions, Agent as HttpsAgent } from "node:https"
import type { Duplex } from "node:stream"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { ByteSize, Effect, Layer } from "effect"
import { HttpClient, HttpIncomingMessage } from "effect/http"
import type { Reloadable } from "../../domain/Reloadable.ts"

/**
 * The system repeats a lost first packet after 1, 2, 4, 8 ... s: a call with a long deadline would find a network that
 * is back only at the next of them. One that begins anew finds it at once.
 */
const CONNECT_MILLIS = 3000

const limited = (socket: Duplex | null | undefined, connected: "connect" | "secureConnect") => {
  if (socket === null || socket === undefined) return socket
  const timer = setTimeout(
    () => socket.destroy(Object.assign(new Error("connecting took too long"), { code: "ETIMEDOUT" })),
    CONNECT_MILLIS
  )
  const done = () => clearTimeout(timer)
  socket.once(connected, done).once("close", done)
  return socket
}

class ImpatientHttpAgent extends HttpAgent {
  override createConnection(...args: Parameters<HttpAgent["createConnection"]>) {
    return limited(super.createConnection(...args), "connect")
  }
}

class ImpatientHttpsAgent extends HttpsAgent {
  override createConnection(...args: Parameters<HttpsAgent["createConnection"]>) {
    return limited(super.createConnection(...args), "secureConnect")
  }
}

const agent = <A extends HttpAgent>(make: () => A) =>
  Effect.acquireRelease(Effect.sync(make), (made) => Effect.sync(() => made.destroy()))

const LARGEST_REFUSAL = ByteSize.mebibytes(1)

/** A connection is free again only when its answer was read; one of an unexpected status nobody else reads. */
const readRefusals = HttpClient.transformResponse(
  Effect.tap((response) =>
    response.status >= 300
      ? Effect.ignore(Effect.provideService(response.text, HttpIncomingMessage.MaxBodySize, LARGEST_REFUSAL))
      : Effect.void
  )
)

/** `HttpClient` with connections of its own: kept alive, at most `connections` to one address. */
export const impatientClient = (options: {
  readonly connections: number
  /** Certificates in PEM that are trusted, in place of the system's. */
  readonly ca?: Reloadable<string>
}) => {
  const { ca, connections } = options
  const settings: AgentOptions = {
    keepAlive: true,
    maxSockets: connections,
    ...(ca === undefined ? {} : { ca: ca.current() })
  }
  const https = () => {
    const made = new ImpatientHttpsAgent(settings)
    ca?.onChange((next) => {
      made.options.ca = next
    })
    return made
  }
  return Layer.effect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, readRefusals)).pipe(
    Layer.provide(NodeHttpClient.layerNodeHttpNoAgent),
    Layer.provide(
      Layer.effect(
        NodeHttpClient.HttpAgent,
        Effect.all({
          http: agent(() => new ImpatientHttpAgent(settings)),
          https: agent(https)
        })
      )
    )
  )
}
