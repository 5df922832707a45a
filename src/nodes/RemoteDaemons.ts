import { Context, type Duration, Effect, Layer, Scope, Semaphore } from "effect"
import { HttpClient } from "effect/http"
import { CircuitBreaker } from "effect/persistence"
import { Forbidden } from "../domain/errors.ts"
import { DaemonClient } from "./DaemonClient.ts"
import { Fleet } from "./Fleet.ts"
import { impatientClient } from "./impatientClient.ts"
import { makeRemoteDaemon } from "./RemoteDaemon.ts"

export interface RemoteDaemonsOptions {
  /** Certificates in PEM that daemons' certificates are checked against, in place of the system's. */
  readonly ca?: string
  /** Of each call. Default 10 s. */
  readonly deadline?: Duration.Input
}

/** Consecutive calls to a node without an answer after which it is left alone for a while. */
const TRIPS_AFTER = 5
const OPEN_SECONDS = 5
/** Connections to one node: more than provisioning alone uses. */
const CONNECTIONS = 256

/** The daemons on other machines: reachable through {@link DaemonClient} from their registration on. */
export class RemoteDaemons extends Context.Service<
  RemoteDaemons,
  {
    /**
     * Makes the daemon of a node that registers over HTTP reachable, with the address and token of the last
     * registration, while the node is connected.
     *
     * @error Forbidden the node is the one in this process
     */
    attach(node_id: string): Effect.Effect<void, Forbidden>
    /** Fails where {@link attach} would; nothing else happens. */
    check(node_id: string): Effect.Effect<void, Forbidden>
    /** Whether the node has registered over HTTP. */
    has(node_id: string): boolean
  }
>()("muster/nodes/RemoteDaemons") {
  static readonly layerNoDeps = (options: RemoteDaemonsOptions = {}) =>
    Layer.effect(
      RemoteDaemons,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const fleet = yield* Fleet
        const http = yield* HttpClient.HttpClient
        const breaker = yield* CircuitBreaker.CircuitBreaker
        const scope = yield* Effect.scope
        const attached = new Set<string>()
        const one = yield* Semaphore.make(1)

        const target = (node_id: string) => () => {
          const node = fleet.get(node_id)
          return node?.connected === true && node.record !== undefined
            ? { url: node.record.url, token: node.record.token }
            : undefined
        }
        /**
         * The answer to its last registration did not reach it, or that of an earlier one did after it: from here on its
         * heartbeats are answered with "register first".
         */
        const renew = (node_id: string) => (token: string) =>
          Effect.suspend(() => {
            if (fleet.get(node_id)?.record?.token !== token) return Effect.void
            fleet.silence(node_id)
            return Effect.logWarning(
              `node ${node_id} does not accept the token of its last registration: it has to register again`
            )
          })
        const check = Effect.fnUntraced(function* (node_id: string) {
          if (attached.has(node_id)) return
          const other = yield* Effect.option(daemons.of(node_id))
          if (other._tag === "None") return
          return yield* new Forbidden({
            detail: `node ${node_id} is part of this service`,
            hint: "Give the daemon an id of its own with MUSTER_NODE_ID."
          })
        })
        const attach = Effect.fnUntraced(function* (node_id: string) {
          yield* check(node_id)
          if (attached.has(node_id)) return
          const daemon = makeRemoteDaemon({
            ...options,
            node_id,
            target: target(node_id),
            onTokenRefused: renew(node_id),
            http,
            breaker
          })
          yield* daemons.attach(node_id, daemon).pipe(Scope.provide(scope))
          attached.add(node_id)
        })
        return RemoteDaemons.of({
          attach: (node_id) => one.withPermit(attach(node_id)),
          check,
          has: (node_id) => attached.has(node_id)
        })
      })
    )

  static readonly layer = (options: RemoteDaemonsOptions = {}) =>
    RemoteDaemons.layerNoDeps(options).pipe(
      Layer.provide(
        impatientClient({
          connections: CONNECTIONS,
          ...(options.ca === undefined ? {} : { ca: options.ca })
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
