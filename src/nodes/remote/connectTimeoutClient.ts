/** An HTTP client over kept connections that does not wait long for a new one. */
import { Agent as HttpAgent } from "node:http"
import { type AgentOptions, Agent as HttpsAgent } from "node:https"
import type { Duplex } from "node:stream"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { ByteSize, Effect, Layer } from "effect"
import { HttpClient, HttpIncomingMessage } from "effect/http"
import type { Reloadable } from "../../domain/Reloadable.ts"
import { type NodeNetworks, refusedConnection } from "./nodeNetworks.ts"

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

type Connect<A extends HttpAgent> = Parameters<A["createConnection"]>

/** Tells the request that its address is refused; false: the address is allowed, or a name, which is looked up first. */
const refuses = (networks: NodeNetworks | undefined, [options, done]: Connect<HttpAgent>): boolean => {
  const refused = networks === undefined ? undefined : refusedConnection(networks, options.host)
  // A failed connection has no stream: the types of Node.js do not say so.
  if (refused !== undefined) done?.(refused, undefined as never)
  return refused !== undefined
}

class ImpatientHttpAgent extends HttpAgent {
  private readonly networks: NodeNetworks | undefined
  constructor(options: AgentOptions, networks: NodeNetworks | undefined) {
    super(options)
    this.networks = networks
  }
  override createConnection(...args: Connect<HttpAgent>) {
    return refuses(this.networks, args) ? null : limited(super.createConnection(...args), "connect")
  }
}

class ImpatientHttpsAgent extends HttpsAgent {
  private readonly networks: NodeNetworks | undefined
  constructor(options: AgentOptions, networks: NodeNetworks | undefined) {
    super(options)
    this.networks = networks
  }
  override createConnection(...args: Connect<HttpsAgent>) {
    return refuses(this.networks, args) ? null : limited(super.createConnection(...args), "secureConnect")
  }
}

const agent = <A extends HttpAgent>(make: () => A) =>
  Effect.acquireRelease(Effect.sync(make), (made) => Effect.sync(() => made.destroy()))

const LARGEST_REFUSAL = ByteSize.kibibytes(64)

/** A connection is free again only when its answer was read; one of an unexpected status nobody else reads. */
const readRefusals = HttpClient.transformResponse(
  Effect.tap((response) =>
    response.status >= 300
      ? Effect.ignore(Effect.provideService(response.text, HttpIncomingMessage.MaxBodySize, LARGEST_REFUSAL))
      : Effect.void
  )
)

/** How the other side is checked, and what is presented to it. In PEM. */
export interface NodeTls {
  /** Certificates that are trusted, in place of the system's. */
  readonly ca?: Reloadable<string>
  /** What is presented where the other side asks for a certificate. */
  readonly certificate?: Reloadable<{ readonly cert: string; readonly key: string }>
}

/** As Node's TLS wants it. */
export const tlsNow = ({ ca, certificate }: NodeTls) => {
  const { cert, key } = certificate?.current() ?? {}
  return {
    ...(ca === undefined ? {} : { ca: ca.current() }),
    ...(cert === undefined || key === undefined ? {} : { cert, key })
  }
}

/** `HttpClient` with connections of its own: kept alive, at most `connections` to one address. */
export const connectTimeoutClient = (
  options: NodeTls & {
    readonly connections: number
    /** The addresses that are called; absent: any. */
    readonly networks?: NodeNetworks
  }
) => {
  const { ca, certificate, connections, networks } = options
  const settings: AgentOptions = {
    keepAlive: true,
    maxSockets: connections,
    ...(networks === undefined ? {} : { lookup: networks.lookup }),
    ...tlsNow(options)
  }
  const https = () => {
    const made = new ImpatientHttpsAgent(settings, networks)
    const apply = () => void Object.assign(made.options, tlsNow(options))
    ca?.onChange(apply)
    certificate?.onChange(apply)
    return made
  }
  return Layer.effect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, readRefusals)).pipe(
    Layer.provide(NodeHttpClient.layerNodeHttpNoAgent),
    Layer.provide(
      Layer.effect(
        NodeHttpClient.HttpAgent,
        Effect.all({
          http: agent(() => new ImpatientHttpAgent(settings, networks)),
          https: agent(https)
        })
      )
    )
  )
}
