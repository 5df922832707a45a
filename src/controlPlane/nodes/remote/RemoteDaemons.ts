import { Context, type Duration, Effect, FiberSet, Latch, Layer } from "effect"
import { CircuitBreaker } from "effect/persistence"
import { Forbidden, InvalidRequest } from "../../../contract/domain/errors.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { transportOf } from "../../../contract/domain/transport.ts"
import type { Daemon } from "../../../contract/nodeApi/Daemon.ts"
import { type ClientTls, connectTimeoutClient } from "../../../shared/net/connectTimeoutClient.ts"
import { Leadership } from "../../store/Leadership.ts"
import type { Seal } from "../../store/Seal.ts"
import { DaemonClient } from "../DaemonClient.ts"
import { Fleet, type FleetState, watchFleet } from "../fleet/Fleet.ts"
import { NodeRegistry } from "../NodeRegistry.ts"
import { TokenSeal } from "../nodeWrites.ts"
import { makeDaemonCalls, makeRemoteDaemon, type RemoteTarget } from "./RemoteDaemon.ts"
import { makeReachabilityProbe } from "./reachabilityProbe.ts"
import { TOKEN_REFUSED } from "./remoteCall.ts"
import { makeNodeNetworks, type NodeNetworks } from "./remoteSocket.ts"

export interface RemoteDaemonsOptions extends ClientTls {
  /** Whether nodes with plain HTTP beyond loopback are refused and not called. */
  readonly requireTls?: boolean
  /** Timeout of each call. Default 10 s. */
  readonly deadline?: Duration.Input
  /** Networks of the nodes. Default: all but link-local addresses. */
  readonly networks?: NodeNetworks
}

const PLAIN_HINT = "Set MUSTER_NODE_TLS_CERT and MUSTER_NODE_TLS_KEY of the node"

/** Consecutive calls without an answer that open the circuit of a node. */
const TRIPS_AFTER = 5
const OPEN_SECONDS = 5
/** The longest time for which requests wait for a node of the last run. */
const EXPECTED = "5 seconds"
const RECALLS = 64
/** Connections to one node: more than the provisioner uses. */
const CONNECTIONS = 256

/** Returns a function that opens the token of a node's record once per token. */
const openedToken = (seal: Seal, node_id: NodeId) => {
  let opened: { readonly sealed: string; readonly token: string | undefined } | undefined
  return (sealed: string) => {
    if (opened?.sealed !== sealed) opened = { sealed, token: seal.open(node_id, sealed) }
    return opened.token
  }
}

/** Waits until a node of the last run has registered or is no longer expected. */
const settled = (fleet: FleetState, node_id: NodeId) =>
  Effect.gen(function* () {
    const settled = Latch.makeUnsafe(false)
    yield* watchFleet(fleet, (node) => {
      if (node.id === node_id && !node.expected) settled.openUnsafe()
    })
    yield* settled.await
  }).pipe(Effect.scoped)

const isPlain = (fleet: FleetState, node_id: NodeId) => {
  const record = fleet.get(node_id)?.record
  return record?.embedded === false && transportOf(record.url) === "plain"
}

/** The daemons on other machines, for {@link DaemonClient}. Any replica calls them while they are connected. */
export class RemoteDaemons extends Context.Service<RemoteDaemons>()("muster/nodes/RemoteDaemons", {
  make: Effect.fnUntraced(function* (options: RemoteDaemonsOptions = {}) {
    const daemons = yield* DaemonClient
    const fleet = yield* Fleet
    const leadership = yield* Leadership
    const registry = yield* NodeRegistry
    const seal = yield* TokenSeal
    const client = yield* makeDaemonCalls
    const breaker = yield* CircuitBreaker.CircuitBreaker
    const probe = yield* makeReachabilityProbe
    const networks = options.networks ?? makeNodeNetworks([])
    const requireTls = options.requireTls === true
    const fork = yield* FiberSet.makeRuntime<never, void, never>()
    const made = new Map<NodeId, Daemon>()
    const plain = fleet.list.map(({ id }) => id).filter((id) => isPlain(fleet, id))
    if (plain.length > 0) {
      yield* Effect.logWarning(
        requireTls
          ? `nodes are not called, because MUSTER_REQUIRE_TLS is true and their addresses are plain HTTP: ${plain.join(", ")}`
          : `nodes are called over plain HTTP, unencrypted: ${plain.join(", ")}. ${PLAIN_HINT}`
      )
    }

    const has = (node_id: NodeId): boolean =>
      fleet.get(node_id)?.record?.embedded === false && !daemons.isAttached(node_id)
    const mayCall = (node_id: NodeId) => !(requireTls && isPlain(fleet, node_id))
    const target = (node_id: NodeId) => {
      const tokenOf = openedToken(seal, node_id)
      return () => {
        const node = fleet.get(node_id)
        if (node?.connected !== true || node.record === undefined || !mayCall(node_id)) return undefined
        const token = tokenOf(node.record.token)
        return token === undefined ? undefined : { url: node.record.url, token }
      }
    }
    const recalled = [...(leadership.isFirst ? fleet.nodes : [])].flatMap((node) => {
      const { connected, record } = node
      if (connected || record === undefined || record.embedded || record.departed) return []
      const token = seal.open(record.id, record.token)
      if (token === undefined || !mayCall(record.id)) return []
      fleet.expect(node, true)
      return [{ node, known: { url: record.url, token } }]
    })
    const make = (node_id: NodeId, recallOf?: RemoteTarget) =>
      makeRemoteDaemon({
        ...options,
        networks,
        node_id,
        target: recallOf === undefined ? target(node_id) : () => recallOf,
        expected: Effect.suspend(() =>
          fleet.get(node_id)?.expected === true
            ? Effect.asVoid(Effect.timeoutOption(settled(fleet, node_id), EXPECTED))
            : Effect.void
        ),
        refresh: registry.refresh(node_id).pipe(
          Effect.catch((error) => Effect.logDebug(`the record cannot be refreshed: ${error.detail}`)),
          Effect.annotateLogs({ node_id })
        ),
        onAnswered: probe.answered(node_id),
        onUnreachable: recallOf === undefined ? Effect.sync(() => probe.begin(node_id)) : Effect.void,
        client,
        breaker,
        fork
      })
    yield* daemons.elsewhere((node_id) => {
      if (!has(node_id)) {
        made.delete(node_id)
        return undefined
      }
      const daemon = made.get(node_id) ?? make(node_id)
      made.set(node_id, daemon)
      return daemon
    })

    return {
      /**
       * @error Forbidden the node is embedded in a service and must not register over HTTP
       * @error InvalidRequest the address is not allowed
       */
      check: Effect.fnUntraced(function* (node_id: NodeId, url: string) {
        if (fleet.get(node_id)?.record?.embedded === true || daemons.isAttached(node_id)) {
          return yield* new Forbidden({
            detail: `node ${node_id} is part of this service`,
            hint: "Give the daemon an id of its own with MUSTER_NODE_ID."
          })
        }
        yield* networks.check(url)
        if (!requireTls || transportOf(url) !== "plain") return
        return yield* new InvalidRequest({
          detail: `body field url: expected https, because this service requires TLS, got ${url.slice(0, 100)}`,
          hint: PLAIN_HINT
        })
      }),
      has,
      /**
       * Asks the nodes of the last run to register, unless another service has. Call this once daemons reach the
       * service: otherwise they notice the start at a heartbeat.
       */
      recall: Effect.forEach(
        recalled,
        ({ known, node }) =>
          make(node.id, known).register.pipe(
            Effect.andThen(settled(fleet, node.id)),
            // A daemon that refuses the token or the route is up, and registers by itself.
            Effect.catch((error) =>
              error._tag === "NodeUnreachable" && error.reason !== TOKEN_REFUSED
                ? Effect.logDebug(`the node does not respond: ${error.reason}`)
                : settled(fleet, node.id)
            ),
            Effect.raceFirst(Effect.sleep(EXPECTED)),
            Effect.ensuring(Effect.sync(() => fleet.expect(node, false))),
            Effect.annotateLogs({ node_id: node.id })
          ),
        { concurrency: RECALLS, discard: true }
      ),
      registered: Effect.fnUntraced(function* (node_id: NodeId) {
        if (isPlain(fleet, node_id)) {
          const url = fleet.get(node_id)?.record?.url
          yield* Effect.logWarning(`the node is called over plain HTTP, unencrypted. ${PLAIN_HINT}`).pipe(
            Effect.annotateLogs({ node_id, url })
          )
        }
        probe.begin(node_id, { restart: true })
      }),
      /**
       * Notes a heartbeat and sometimes probes the node. Returns the reason that it is unreachable, if any.
       * @error RegistrationRequired the node does not know the token of its last registration
       */
      onHeartbeat: probe.onHeartbeat
    }
  })
}) {
  static readonly layerNoDeps = (...options: Parameters<typeof RemoteDaemons.make>) =>
    Layer.effect(RemoteDaemons, RemoteDaemons.make(...options))

  static readonly layer = (options: RemoteDaemonsOptions = {}) =>
    RemoteDaemons.layerNoDeps(options).pipe(
      Layer.provide(
        connectTimeoutClient({
          ...options,
          connections: CONNECTIONS,
          networks: options.networks ?? makeNodeNetworks([])
        })
      ),
      Layer.provide(
        CircuitBreaker.layer({
          tripPolicy: CircuitBreaker.consecutive(TRIPS_AFTER),
          openDuration: `${OPEN_SECONDS} seconds`
        })
      ),
      Layer.provide(CircuitBreaker.layerStoreMemory())
    )
}
