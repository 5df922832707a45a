import { Context, type Duration, Effect, FiberSet, Latch, Layer } from "effect"
import { HttpClient } from "effect/http"
import { CircuitBreaker } from "effect/persistence"
import { Forbidden, InvalidRequest } from "../../../contract/domain/errors.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { transportOf } from "../../../contract/domain/transport.ts"
import type { RegistrationRequired } from "../../../contract/nodeApi/ControlPlane.ts"
import type { Daemon } from "../../../contract/nodeApi/Daemon.ts"
import { type ClientTls, connectTimeoutClient } from "../../../shared/net/connectTimeoutClient.ts"
import { Leadership } from "../../store/Leadership.ts"
import { DaemonClient } from "../DaemonClient.ts"
import { Fleet } from "../fleet/Fleet.ts"
import { NodeRegistry } from "../NodeRegistry.ts"
import { TokenSeal } from "../TokenSeal.ts"
import { makeNodeNetworks, type NodeNetworks } from "./nodeNetworks.ts"
import { makeRemoteDaemon, type RemoteTarget } from "./RemoteDaemon.ts"
import { makeReachabilityProbe } from "./reachabilityProbe.ts"
import { TOKEN_REFUSED } from "./remoteCall.ts"

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

/** The daemons on other machines, for {@link DaemonClient}. Any replica calls them while they are connected. */
export class RemoteDaemons extends Context.Service<
  RemoteDaemons,
  {
    /**
     * @error Forbidden the node is embedded in a service and must not register over HTTP
     * @error InvalidRequest the address is not allowed
     */
    check(node_id: NodeId, url: string): Effect.Effect<void, Forbidden | InvalidRequest>
    has(node_id: NodeId): boolean
    /**
     * Asks the nodes of the last run to register, unless another service has. Call this once daemons reach the
     * service: otherwise they notice the start at a heartbeat.
     */
    readonly recall: Effect.Effect<void>
    registered(node_id: NodeId): Effect.Effect<void>
    /**
     * Notes a heartbeat and sometimes probes the node. Returns the reason that it is unreachable, if any.
     * @error RegistrationRequired the node does not know the token of its last registration
     */
    onHeartbeat(node_id: NodeId): Effect.Effect<string | undefined, RegistrationRequired>
  }
>()("muster/nodes/RemoteDaemons") {
  static readonly layerNoDeps = (options: RemoteDaemonsOptions = {}) =>
    Layer.effect(
      RemoteDaemons,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const fleet = yield* Fleet
        const leadership = yield* Leadership
        const registry = yield* NodeRegistry
        const seal = yield* TokenSeal
        const http = yield* HttpClient.HttpClient
        const breaker = yield* CircuitBreaker.CircuitBreaker
        const probe = yield* makeReachabilityProbe
        const networks = options.networks ?? makeNodeNetworks([])
        const requireTls = options.requireTls === true
        const fork = yield* FiberSet.makeRuntime<never, void, never>()
        const made = new Map<NodeId, Daemon>()
        const isPlain = (node_id: NodeId) => {
          const record = fleet.get(node_id)?.record
          return record?.embedded === false && transportOf(record.url) === "plain"
        }
        const plain = fleet.list.map(({ id }) => id).filter(isPlain)
        if (plain.length > 0) {
          yield* Effect.logWarning(
            requireTls
              ? `nodes are not called, because MUSTER_REQUIRE_TLS is true and their addresses are plain HTTP: ${plain.join(", ")}`
              : `nodes are called over plain HTTP, unencrypted: ${plain.join(", ")}. ${PLAIN_HINT}`
          )
        }

        const has = (node_id: NodeId) =>
          fleet.get(node_id)?.record?.embedded === false && !daemons.isAttached(node_id)
        const target = (node_id: NodeId) => {
          let opened: { readonly sealed: string; readonly token: string | undefined } | undefined
          return () => {
            const node = fleet.get(node_id)
            if (node?.connected !== true || node.record === undefined) return undefined
            if (requireTls && isPlain(node_id)) return undefined
            const { token: sealed, url } = node.record
            if (opened?.sealed !== sealed) opened = { sealed, token: seal.open(node_id, sealed) }
            return opened.token === undefined ? undefined : { url, token: opened.token }
          }
        }
        const recalled = leadership.isFirst
          ? [...fleet.nodes].flatMap((node) => {
              const { connected, record } = node
              if (connected || record === undefined || record.embedded || record.departed) return []
              const token = seal.open(record.id, record.token)
              if (token === undefined || (requireTls && isPlain(record.id))) return []
              fleet.expect(node, true)
              return [{ node, known: { url: record.url, token } }]
            })
          : []
        /** Waits until a node of the last run has registered or is no longer expected. */
        const expected = (node_id: NodeId) =>
          Effect.suspend(() => {
            const settled = Latch.makeUnsafe(false)
            return Effect.acquireUseRelease(
              Effect.sync(() =>
                fleet.watch((node) => {
                  if (node.id === node_id && !node.expected) settled.openUnsafe()
                })
              ),
              () => settled.await,
              (stop) => Effect.sync(stop)
            )
          })
        const make = (node_id: NodeId, recallOf?: RemoteTarget) =>
          makeRemoteDaemon({
            ...options,
            networks,
            node_id,
            target: recallOf === undefined ? target(node_id) : () => recallOf,
            expected: Effect.suspend(() =>
              fleet.get(node_id)?.expected === true
                ? Effect.asVoid(Effect.timeoutOption(expected(node_id), EXPECTED))
                : Effect.void
            ),
            refresh: registry.refresh(node_id).pipe(
              Effect.catch((error) => Effect.logDebug(`the record cannot be refreshed: ${error.detail}`)),
              Effect.annotateLogs({ node_id })
            ),
            onAnswered: probe.answered(node_id),
            onUnreachable: recallOf === undefined ? Effect.sync(() => probe.begin(node_id)) : Effect.void,
            http,
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

        return RemoteDaemons.of({
          check: Effect.fnUntraced(function* (node_id, url) {
            if (fleet.get(node_id)?.record?.embedded !== true && !daemons.isAttached(node_id)) {
              yield* networks.check(url)
              if (!requireTls || transportOf(url) !== "plain") return
              return yield* new InvalidRequest({
                detail: `body field url: expected https, because this service requires TLS, got ${url.slice(0, 100)}`,
                hint: PLAIN_HINT
              })
            }
            return yield* new Forbidden({
              detail: `node ${node_id} is part of this service`,
              hint: "Give the daemon an id of its own with MUSTER_NODE_ID."
            })
          }),
          has,
          recall: Effect.forEach(
            recalled,
            ({ known, node }) =>
              Effect.raceFirst(
                make(node.id, known).register.pipe(
                  Effect.andThen(expected(node.id)),
                  // A daemon that refuses the token or the route is up, and registers by itself.
                  Effect.catch((error) =>
                    error._tag === "NodeUnreachable" && error.reason !== TOKEN_REFUSED
                      ? Effect.logDebug(`the node does not respond: ${error.reason}`)
                      : expected(node.id)
                  )
                ),
                Effect.sleep(EXPECTED)
              ).pipe(
                Effect.ensuring(Effect.sync(() => fleet.expect(node, false))),
                Effect.annotateLogs({ node_id: node.id })
              ),
            { concurrency: RECALLS, discard: true }
          ),
          registered: Effect.fnUntraced(function* (node_id) {
            if (isPlain(node_id)) {
              const url = fleet.get(node_id)?.record?.url
              yield* Effect.logWarning(`the node is called over plain HTTP, unencrypted. ${PLAIN_HINT}`).pipe(
                Effect.annotateLogs({ node_id, url })
              )
            }
            probe.begin(node_id, { restart: true })
          }),
          onHeartbeat: probe.onHeartbeat
        })
      })
    )

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
