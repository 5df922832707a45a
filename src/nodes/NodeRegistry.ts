import { randomBytes } from "node:crypto"
import { Clock, Context, Duration, Effect, Layer, PubSub, Semaphore, Stream } from "effect"
import { RegistrationRequired } from "../api/ControlPlane.ts"
import { Conflict, type InvalidRequest, NotFound, type Unavailable } from "../domain/errors.ts"
import type { Node, NodeDetail } from "../domain/Node.ts"
import type { Heartbeat, Registration } from "../domain/NodeMessages.ts"
import type { HostInfo } from "../domain/SystemInfo.ts"
import { NodeRepo } from "../store/NodeRepo.ts"
import { Store } from "../store/Store.ts"
import { Fleet } from "./Fleet.ts"
import { nodeDetail } from "./FleetNode.ts"
import { registered } from "./registration.ts"
import { makeSilence } from "./silence.ts"

/** Random bytes of a token. */
const TOKEN_BYTES = 32

/** A node came (again), went silent for 30 s, or has been gone for `node_lost_after`. */
export interface NodeChange {
  readonly node_id: string
  readonly kind: "connected" | "lost" | "given-up"
}

export interface NodeRegistryOptions {
  /** Without a sign of life for this long a node is not connected; default 30 s. */
  readonly heartbeat_timeout?: Duration.Input
  /** Without a sign of life for this long a node is given up; default 10 min. */
  readonly node_lost_after?: Duration.Input
}

/**
 * The nodes that servers can be placed on, and whether they live (node-protocol; decisions, section 2).
 * Reads touch memory only.
 */
export class NodeRegistry extends Context.Service<
  NodeRegistry,
  {
    /** Known nodes, by name, then id (contract 4.2). One that said good-bye and owns no servers is none of them. */
    readonly list: Effect.Effect<ReadonlyArray<Node>>
    get(id: string): Effect.Effect<NodeDetail, NotFound>
    /** Host information of the node's last registration. */
    system(id: string): Effect.Effect<HostInfo, NotFound>
    /** Display name; the id itself for a node that is not known any more. */
    nameOf(id: string): string
    isConnected(id: string): boolean
    /**
     * A daemon makes itself known; answers the token that the daemon is to be called with. Another boot of the node
     * is replaced; whether it is drained stays.
     *
     * @error InvalidRequest the registration cannot be: an id, address or range of ports that is none
     */
    register(
      registration: Registration
    ): Effect.Effect<{ readonly token: string }, InvalidRequest | Unavailable>
    /** A sign of life. One of a node that is not connected fails: it is to register, and say what it has. */
    heartbeat(id: string, heartbeat: Heartbeat): Effect.Effect<void, RegistrationRequired>
    /** Fails unless `boot_id` is that of the node's last registration. */
    checkBoot(id: string, boot_id: string): Effect.Effect<void, RegistrationRequired>
    /**
     * The node may not speak for itself any more: not connected at once, whatever it was called with is forgotten, and
     * `lost` when it has not registered again within the heartbeat timeout.
     */
    expel(id: string): Effect.Effect<void>
    /** Good-bye: not connected at once, and `lost` when it has not come back within the heartbeat timeout. */
    disconnect(id: string, boot_id: string): Effect.Effect<void, RegistrationRequired | Unavailable>
    setDrained(id: string, drained: boolean): Effect.Effect<NodeDetail, NotFound | Unavailable>
    /** Forgets a node. @error Conflict it owns servers */
    remove(id: string): Effect.Effect<void, NotFound | Conflict | Unavailable>
    /** Changes from now on, each exactly once, subscribed when the stream starts. */
    readonly changes: Stream.Stream<NodeChange>
  }
>()("muster/nodes/NodeRegistry") {
  /** Nodes of earlier runs are known from the start, and connected once they have registered. */
  static readonly layer = (options: NodeRegistryOptions = {}) =>
    Layer.effect(
      NodeRegistry,
      Effect.gen(function* () {
        const fleet = yield* Fleet
        const repo = yield* NodeRepo
        const store = yield* Store
        const hub = yield* PubSub.unbounded<NodeChange>()
        // Unbounded: nothing is dropped and nobody waits.
        const publish = (change: NodeChange) => void PubSub.publishUnsafe(hub, change)

        for (const record of yield* store.read(repo.all)) fleet.put(record, false)
        const silence = yield* makeSilence({
          lost_after: Duration.fromInputUnsafe(options.heartbeat_timeout ?? "30 seconds"),
          given_up_after: Duration.fromInputUnsafe(options.node_lost_after ?? "10 minutes"),
          initial: [...fleet.nodes].map((node) => node.id),
          onExpiry: (change) => {
            fleet.silence(change.node_id)
            publish(change)
          }
        })

        /** Writes about one node wait for each other, so that memory follows the order of the commits. */
        const locks = new Map<string, Semaphore.Semaphore>()
        const exclusively = (id: string) => {
          const lock = locks.get(id) ?? Semaphore.makeUnsafe(1)
          locks.set(id, lock)
          // A write that is under way is waited for: memory must follow it.
          return <A, E, R>(effect: Effect.Effect<A, E, R>) => lock.withPermit(Effect.uninterruptible(effect))
        }

        const known = Effect.fnUntraced(function* (id: string) {
          const node = fleet.get(id)
          const record = node?.listed
          if (node === undefined || record === undefined) return yield* NotFound.node(id)
          return { node, record }
        })
        const knownBoot = Effect.fnUntraced(function* (id: string, boot_id: string) {
          const node = fleet.get(id)
          const record = node?.record
          if (node === undefined || record?.boot_id !== boot_id) {
            return yield* new RegistrationRequired({ node_id: id })
          }
          return { node, record }
        })
        const nowText = Effect.map(Clock.currentTimeMillis, (now) => new Date(now).toISOString())

        const get = Effect.fn("NodeRegistry.get")(function* (id: string) {
          const { node, record } = yield* known(id)
          return nodeDetail(node, record)
        })

        const register = Effect.fn("NodeRegistry.register")(function* (registration: Registration) {
          const fresh = yield* Effect.fromResult(registered(registration))
          const commit = Effect.gen(function* () {
            const token = randomBytes(TOKEN_BYTES).toString("base64url")
            const drained = fleet.get(fresh.id)?.record?.drained ?? false
            const last_seen_at = yield* nowText
            const record = { ...fresh, token, drained, last_seen_at }
            yield* store.write(repo.save(record))
            silence.hear(record.id)
            fleet.put(record, true)
            publish({ node_id: record.id, kind: "connected" })
            return { token }
          })
          return yield* exclusively(fresh.id)(commit)
        })

        const heartbeat = Effect.fnUntraced(function* (id: string, beat: Heartbeat) {
          const { boot_id, load, memory_used_bytes, disk_used_bytes } = beat
          const at = yield* nowText
          const { node } = yield* knownBoot(id, boot_id)
          if (!node.connected) return yield* new RegistrationRequired({ node_id: id })
          silence.hear(id)
          fleet.hear(node, at, { load, memory_bytes: memory_used_bytes, disk_bytes: disk_used_bytes })
        })

        const expel = Effect.fn("NodeRegistry.expel")(function* (id: string) {
          const commit = Effect.sync(() => {
            const node = fleet.get(id)
            if (node?.connected === true && node.record !== undefined) {
              fleet.put({ ...node.record, token: "" }, false)
            }
          })
          yield* exclusively(id)(commit)
        })

        const disconnect = Effect.fn("NodeRegistry.disconnect")(function* (id: string, boot_id: string) {
          yield* knownBoot(id, boot_id)
          const commit = Effect.gen(function* () {
            const { record } = yield* knownBoot(id, boot_id)
            const last_seen_at = yield* nowText
            yield* store.write(repo.setDeparted(id, true))
            silence.hear(id)
            fleet.put({ ...record, departed: true, last_seen_at }, false)
          })
          yield* exclusively(id)(commit)
        })

        const setDrained = Effect.fn("NodeRegistry.setDrained")(function* (id: string, drained: boolean) {
          yield* known(id)
          const commit = Effect.gen(function* () {
            yield* known(id)
            yield* store.write(repo.setDrained(id, drained))
            fleet.drain(id, drained)
            return yield* get(id)
          })
          return yield* exclusively(id)(commit)
        })

        const remove = Effect.fn("NodeRegistry.remove")(function* (id: string) {
          yield* known(id)
          const commit = Effect.gen(function* () {
            const { node, record } = yield* known(id)
            const { connected, servers } = node
            if (servers > 0) {
              return yield* new Conflict({
                detail: `node owns ${servers === 1 ? "a server" : `${servers} servers`}: ${id}`,
                hint: "Delete its servers first; GET /api/servers lists them."
              })
            }
            // Taken out first: from here on nothing is placed there.
            fleet.forget(id)
            yield* store
              .write(repo.remove(id))
              .pipe(Effect.onError(() => Effect.sync(() => fleet.put(record, connected))))
            silence.forget(id)
          })
          yield* exclusively(id)(commit)
        })

        return NodeRegistry.of({
          list: Effect.sync(() => fleet.list),
          get,
          system: (id) => Effect.map(known(id), ({ record }) => record.system),
          nameOf: (id) => fleet.get(id)?.record?.name ?? id,
          isConnected: (id) => fleet.get(id)?.connected ?? false,
          register,
          heartbeat,
          expel,
          checkBoot: (id, boot_id) => Effect.asVoid(knownBoot(id, boot_id)),
          disconnect,
          setDrained,
          remove,
          changes: Stream.fromPubSub(hub)
        })
      })
    )
}
