/** WebSockets to a node: its consoles, and sessions of files. */

import type { lookup as systemLookup } from "node:dns"
import { isIP } from "node:net"
import { WebSocket } from "@effect/platform-node/NodeWS"
import { type Cause, Effect, Option, Queue, Schema, type Scope, Stream } from "effect"
import { IpNetwork } from "effect/net"
import { Conflict, InvalidRequest, NotFound } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { type DaemonError, NodeUnreachable } from "../../../contract/nodeApi/Daemon.ts"
import {
  type AddressPolicy,
  holdingIpv4,
  makeAddressPolicy,
  refusedConnection
} from "../../../shared/net/addressPolicy.ts"
import type { tlsNow } from "../../../shared/net/connectTimeoutClient.ts"
import { refusal } from "./remoteCall.ts"

export interface SocketOptions {
  readonly node_id: NodeId
  readonly url: string
  readonly token: string
  readonly tls: ReturnType<typeof tlsNow>
  readonly networks?: NodeNetworks
}

/** The time limit of a handshake, or of the response that refuses it, in ms. */
const HANDSHAKE = 10_000
/** Between two pings. A connection without a pong or message in between is dead. */
const PING_MILLIS = 15_000
const LONGEST_REFUSAL = 64 * 1024

const decodeRefusal = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Union([NotFound, Conflict])))

const socketUrl = (base: string, path: string) => `${base.replace(/^http/, "ws").replace(/\/+$/, "")}${path}`

const refusalOf = (text: string, node_id: NodeId): DaemonError =>
  Option.match(decodeRefusal(text), {
    onNone: () => new NodeUnreachable({ node_id }),
    onSome: (failure) => refusal(failure._tag === "NotFound" ? 404 : 409, failure)
  })

/**
 * Opens a WebSocket to a node until the scope ends. `listen` is called before the handshake. It ends with the node or
 * the connection, and has no deadline.
 * @param largest bytes of a message of the node
 */
export const openSocket = Effect.fnUntraced(function* (
  { networks, node_id, tls, token, url }: SocketOptions,
  path: string,
  largest: number,
  listen: (socket: WebSocket) => void
): Effect.fn.Return<{ readonly socket: WebSocket; readonly rested: () => void }, DaemonError, Scope.Scope> {
  const refused =
    networks === undefined
      ? undefined
      : refusedConnection(networks, new URL(url).hostname.replace(/^\[|\]$/g, ""))
  if (refused !== undefined) return yield* new NodeUnreachable({ node_id, reason: refused.message })
  const socket = yield* Effect.acquireRelease(
    Effect.try({
      try: () =>
        new WebSocket(socketUrl(url, path), {
          headers: { authorization: `Bearer ${token}` },
          handshakeTimeout: HANDSHAKE,
          maxPayload: largest,
          perMessageDeflate: false,
          followRedirects: false,
          // Masks protect proxies from scripts of browsers (RFC 6455, 10.3). Without, an SFTP upload takes a third less CPU.
          generateMask: (mask) => void mask.fill(0),
          ...(networks === undefined ? {} : { lookup: networks.lookup }),
          ...tls
        }),
      // An address that no WebSocket can have.
      catch: () => new NodeUnreachable({ node_id })
    }),
    (socket) =>
      Effect.sync(() => {
        socket.on("error", () => {})
        socket.terminate()
      })
  )
  let alive = true
  const rested = () => {
    alive = true
  }
  socket.on("pong", rested)
  listen(socket)

  yield* Effect.callback<void, DaemonError>((resume) => {
    socket.once("open", () => resume(Effect.void))
    socket.on("error", () => resume(Effect.fail(new NodeUnreachable({ node_id }))))
    socket.once("unexpected-response", (_, response) => {
      let text = ""
      response.setEncoding("utf8")
      response.on("data", (chunk: string) => {
        text += chunk
        if (text.length > LONGEST_REFUSAL) response.destroy()
      })
      response.on("close", () => resume(Effect.fail(refusalOf(text, node_id))))
    })
  }).pipe(
    Effect.timeoutOrElse({
      duration: HANDSHAKE,
      orElse: () => Effect.fail(new NodeUnreachable({ node_id }))
    })
  )
  yield* Effect.gen(function* () {
    yield* Effect.sleep(PING_MILLIS)
    if (socket.isPaused) return
    if (!alive) return socket.terminate()
    alive = false
    socket.ping()
  }).pipe(Effect.forever, Effect.forkScoped)
  return {
    socket,
    /** Called once a paused connection continues: no pong came while it rested. */
    rested
  }
})

/** In bytes: longer than a line of a daemon, at most 8 KiB before its bytes become text. */
const LONGEST_LINE = 64 * 1024
/** Characters of lines that wait to be sent. The connection pauses above this. */
const WAITING = 256 * 1024

/**
 * The console of a remote server over WebSocket, subscribed once this returns. It ends with the server or the
 * connection and has no deadline: the client ends it.
 */
export const openConsole = Effect.fnUntraced(function* (
  options: SocketOptions,
  id: ServerId
): Effect.fn.Return<Stream.Stream<string>, DaemonError, Scope.Scope> {
  const lines = yield* Queue.unbounded<string, Cause.Done>()
  let waiting = 0
  const path = `/api/servers/${encodeURIComponent(id)}/console`
  const { rested, socket } = yield* openSocket(options, path, LONGEST_LINE, (socket) => {
    socket.on("message", (data, isBinary) => {
      if (isBinary) return
      const line = String(data)
      waiting += line.length + 1
      Queue.offerUnsafe(lines, line)
      if (waiting > WAITING) socket.pause()
    })
    socket.on("close", () => Queue.endUnsafe(lines))
  })
  const taken = <A extends ReadonlyArray<string>>(batch: A): A => {
    for (const line of batch) waiting -= line.length + 1
    if (!socket.isPaused || waiting > WAITING) return batch
    rested()
    socket.resume()
    return batch
  }
  return Stream.mapArray(Stream.fromQueue(lines), taken)
})

/** Refused unless the setting lists them, like {@link metadata}: clouds return the host's credentials there. */
const linkLocal = ["169.254.0.0/16", "fe80::/10"].map(IpNetwork.fromStringUnsafe)
const ownHost = IpNetwork.fromStringUnsafe("::1/128")
const metadata = ["fd00:ec2::254/128", "100.100.100.200/32", "192.0.0.192/32"].map(IpNetwork.fromStringUnsafe)

/** The allowed addresses of nodes: the control plane calls the address of a registration. */
export interface NodeNetworks extends AddressPolicy {
  /** @error InvalidRequest the host of this URL has no allowed address */
  check(url: string): Effect.Effect<void, InvalidRequest>
}

/** @param networks allowed networks; none allows all but link-local addresses and metadata services of clouds */
export const makeNodeNetworks = (
  networks: ReadonlyArray<IpNetwork.IpNetwork>,
  resolve?: typeof systemLookup
): NodeNetworks => {
  const policy = makeAddressPolicy((isIn, host) => {
    if (networks.some(isIn)) return undefined
    if (linkLocal.some(isIn))
      return `${host} is a link-local address, which MUSTER_NODE_NETWORKS does not list`
    if (metadata.some(isIn))
      return `${host} is the address of a cloud's metadata service, which MUSTER_NODE_NETWORKS does not list`
    if (!isIn(ownHost) && holdingIpv4.some(isIn))
      return `${host} holds an IPv4 address, and MUSTER_NODE_NETWORKS does not list it`
    return networks.length === 0 ? undefined : `${host} is in no network of MUSTER_NODE_NETWORKS`
  }, resolve)
  const check = Effect.fnUntraced(function* (url: string) {
    const host = new URL(url).hostname.replace(/^\[(.*)\]$/, "$1")
    // A name that is not known now may be known when the node is called.
    const addresses = isIP(host) === 0 ? yield* policy.addressesOf(host) : [host]
    const refusals = addresses.flatMap((address) => policy.refusal(address) ?? [])
    const [why] = refusals
    if (why === undefined || refusals.length < addresses.length) return
    return yield* new InvalidRequest({
      detail: `body field url: nodes may not be at ${url.slice(0, 100)}: ${why}`,
      hint: "Set MUSTER_NODE_URL of the node to an address in a listed network, or add its network to MUSTER_NODE_NETWORKS of the service."
    })
  })
  return { ...policy, check }
}
