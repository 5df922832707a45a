/** An HTTP client with kept connections and a short timeout for new ones. */
import { Agent as HttpAgent } from "node:http"
import { type AgentOptions, Agent as HttpsAgent } from "node:https"
import type { Duplex } from "node:stream"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { ByteSize, Effect, Layer } from "effect"
import { HttpClient, HttpIncomingMessage } from "effect/http"
import type { Reloadable } from "../work/Reloadable.ts"
import { type AddressPolicy, refusedConnection } from "./addressPolicy.ts"

/** The system repeats a lost first packet after 1, 2, 4 ... s; a new connection finds a recovered network at once. */
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

/** Refuses the request if its address is refused; returns false for an allowed address or a name, looked up first. */
const refuses = (networks: AddressPolicy | undefined, [options, done]: Connect<HttpAgent>): boolean => {
  const refused = networks === undefined ? undefined : refusedConnection(networks, options.host)
  // A failed connection has no stream: the types of Node.js do not say so.
  if (refused !== undefined) done?.(refused, undefined as never)
  return refused !== undefined
}

/** Makes an agent refuse addresses, and give up connections that take too long; `connected`: the event of an open one. */
const limitedAgent = <A extends HttpAgent>(
  agent: A,
  connected: "connect" | "secureConnect",
  networks: AddressPolicy | undefined
): A => {
  const create = agent.createConnection.bind(agent)
  return Object.assign(agent, {
    createConnection: (...args: Connect<HttpAgent>) =>
      refuses(networks, args) ? null : limited(create(...args), connected)
  })
}

const agent = <A extends HttpAgent>(make: () => A) =>
  Effect.acquireRelease(Effect.sync(make), (made) => Effect.sync(() => made.destroy()))

const LARGEST_REFUSAL = ByteSize.kibibytes(64)

/** Reads responses with an unexpected status: a connection is free again once its response was read. */
const readRefusals = HttpClient.transformResponse(
  Effect.tap((response) =>
    response.status >= 300
      ? Effect.ignore(Effect.provideService(response.text, HttpIncomingMessage.MaxBodySize, LARGEST_REFUSAL))
      : Effect.void
  )
)

/** The certificates of both sides, in PEM. */
export interface ClientTls {
  /** Trusted certificates, instead of the system's. */
  readonly ca?: Reloadable<string>
  /** The certificate for a server that asks for one. */
  readonly certificate?: Reloadable<{ readonly cert: string; readonly key: string }>
}

export const tlsNow = ({ ca, certificate }: ClientTls) => {
  const { cert, key } = certificate?.current() ?? {}
  return {
    ...(ca === undefined ? {} : { ca: ca.current() }),
    ...(cert === undefined || key === undefined ? {} : { cert, key })
  }
}

/** An `HttpClient` with connections of its own: kept alive, at most `connections` per address. */
export const connectTimeoutClient = (
  options: ClientTls & {
    readonly connections: number
    /** The allowed addresses; default: all. */
    readonly networks?: AddressPolicy
    /** Path of a unix socket to connect to, in place of the host of an address. */
    readonly socketPath?: string
  }
) => {
  const { ca, certificate, connections, networks, socketPath } = options
  const settings: AgentOptions & { readonly socketPath?: string } = {
    keepAlive: true,
    maxSockets: connections,
    ...(networks === undefined ? {} : { lookup: networks.lookup }),
    ...(socketPath === undefined ? {} : { socketPath }),
    ...tlsNow(options)
  }
  const https = () => {
    const made = limitedAgent(new HttpsAgent(settings), "secureConnect", networks)
    const apply = () => void Object.assign(made.options, tlsNow(options))
    ca?.onChange(apply)
    certificate?.onChange(apply)
    return made
  }
  return Layer.effect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, readRefusals)).pipe(
    // Fresh: a shared layer would be built once, with the connections and the addresses of the first client.
    Layer.provide(Layer.fresh(NodeHttpClient.layerNodeHttpNoAgent)),
    Layer.provide(
      Layer.effect(
        NodeHttpClient.HttpAgent,
        Effect.all({
          http: agent(() => limitedAgent(new HttpAgent(settings), "connect", networks)),
          https: agent(https)
        })
      )
    )
  )
}
