import { randomBytes } from "node:crypto"
import { Clock, Context, Duration, Effect, Layer, PubSub, Stream } from "effect"
import { RegistrationRequired } from "../api/ControlPlane.ts"
import { Conflict, DatabaseFull, type InvalidRequest, NotFound, type Unavailable } from "../domain/errors.ts"
import type { Node, NodeDetail } from "../domain/Node.ts"
import type { Heartbeat, Registration } from "../domain/NodeMessages.ts"
import type { HostInfo } from "../domain/SystemInfo.ts"
import { mayUseReserve } from "../store/disk/DatabaseDisk.ts"
import { Freshness } from "../store/journal/Freshness.ts"
import { Leadership } from "../store/Leadership.ts"
import { type NodeRecord, NodeRepo } from "../store/repos/NodeRepo.ts"
import { Store } from "../store/Store.ts"
import { DaemonClient } from "./DaemonClient.ts"
import { Fleet } from "./fleet/Fleet.ts"
import { nodeDetail } from "./fleet/FleetNode.ts"
import { appendNodeChanged, appendReachabilityChanged, followNodeChanges } from "./fleet/nodeChangeFeed.ts"
import { nodeNotFound } from "./nodeNotFound.ts"
import { makeFailureDetector } from "./presence/failureDetector.ts"
import { shareHeartbeats } from "./presence/SharedHeartbeats.ts"
import { registered, sharedPorts } from "./registration.ts"
import { TokenSeal } from "./TokenSeal.ts"

/** Random bytes of a token. */
const TOKEN_BYTES = 32

/** Looks at what other replicas have heard: this often, and so many within the heartbeat timeout at least. */
const LOOK_MILLIS = 2_000
const LOOKS = 10
/** Where there are none, what is heard is written for `muster keys list` and the next start only. */
const NOTED_MILLIS = 60_000

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
  /** After so long a node registers again, and gets another token; default 24 h. */
  readonly token_lifetime?: Duration.Input
}

/**
 * The nodes that servers can be placed on, and whether they live (node-protocol; decisions, section 2). Reads touch
 * memory only. What changes is decided on the records, by any replica, and memory follows the journal: every replica has
 * the same nodes.
 */
export class NodeRegistry extends Context.Service<
  NodeRegistry,
  {
    /** Known nodes, by name, then id (contract 4.2). One that said good-bye and owns no servers is none of them. */
    readonly list: Effect.Effect<ReadonlyArray<Node>>
    /** The same nodes in the same order, each as {@link get} has it. */
    readonly details: Effect.Effect<ReadonlyArray<NodeDetail>>
    get(id: string): Effect.Effect<NodeDetail, NotFound>
    /** Host information of the node's last registration. */
    system(id: string): Effect.Effect<HostInfo, NotFound>
    /** Display name; the id itself for a node that is not known any more. */
    nameOf(id: string): string
    /** Whether it is heard, and so has what it was told before; it may be that it cannot be called. */
    isConnected(id: string): boolean
    /** Fails where a registration cannot be: an id, address or range of ports that is none, too few signs of life. */
    check(registration: Registration): Effect.Effect<void, InvalidRequest>
    /**
     * A daemon makes itself known; answers the token that the daemon is to be called with. Another boot of the node
     * is replaced; whether it is drained stays.
     *
     * @error InvalidRequest as {@link check}
     */
    register(
      registration: Registration
    ): Effect.Effect<{ readonly token: string }, InvalidRequest | Unavailable>
    /**
     * A sign of life, answered from memory unless memory may be behind. One of a node that is not connected fails: it is
     * to register, and say what it has. So does one of a node whose token is as old as a token may be, or cannot be read
     * with the secret of this service: the sign of life counts, and the node gets another token.
     */
    heartbeat(id: string, heartbeat: Heartbeat): Effect.Effect<void, RegistrationRequired | Unavailable>
    /**
     * Returns the boot of the node's last registration. Fails unless it is `boot_id`, if that is given.
     */
    checkBoot(id: string, boot_id?: string): Effect.Effect<string, RegistrationRequired | Unavailable>
    /**
     * The registration whose record has `token` counts no more, unless there was another since: not connected at
     * once, whatever the node was called with is forgotten, and `lost` when it has not registered again within the
     * heartbeat timeout; with `lost` at once, since nothing more can be heard of it.
     */
    revoke(id: string, token: string, options?: { readonly lost: boolean }): Effect.Effect<void, Unavailable>
    /**
     * What calling the node of this registration has come to: why it cannot be called, null where it can. Answers
     * whether that is another than before.
     */
    setUnreachable(id: string, token: string, unreachable: string | null): Effect.Effect<boolean, Unavailable>
    /** Makes sure that memory is not behind with a node, where other replicas may have changed it. */
    refresh(id: string): Effect.Effect<void, Unavailable>
    /** Good-bye: not connected at once, and `lost` when it has not come back within the heartbeat timeout. */
    disconnect(id: string, boot_id: string): Effect.Effect<void, RegistrationRequired | Unavailable>
    setDrained(id: string, drained: boolean): Effect.Effect<NodeDetail, NotFound | Unavailable>
    /** Forgets a node. @error Conflict it owns servers */
    remove(id: string): Effect.Effect<void, NotFound | Conflict | Unavailable>
    /** Changes from now on, on every replica each exactly once, subscribed when the stream starts. */
    readonly changes: Stream.Stream<NodeChange>
  }
>()("muster/nodes/NodeRegistry") {
  /**
   * Nodes of earlier runs are known from the start. Where no other service runs on the database they are connected once
   * they have registered.
   */
  static readonly layer = (options: NodeRegistryOptions = {}) =>
    Layer.effect(
      NodeRegistry,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const leadership = yield* Leadership
        const fleet = yield* Fleet
        const freshness = yield* Freshness
        const repo = yield* NodeRepo
        const store = yield* Store
        const hub = yield* PubSub.unbounded<NodeChange>()
        const lost_after = Duration.fromInputUnsafe(options.heartbeat_timeout ?? "30 seconds")
        const seal = yield* TokenSeal
        const token_lifetime = Duration.toMillis(
          Duration.fromInputUnsafe(options.token_lifetime ?? "24 hours")
        )
        const given_up_after = Duration.fromInputUnsafe(options.node_lost_after ?? "10 minutes")

        // A database that was restored has what nodes had at its backup: they are to say what they have now.
        const beginAnew = Effect.flatMap(repo.resetConnections, (ids) =>
          Effect.forEach(leadership.isSingle ? [] : ids, (id) => appendNodeChanged(id, "expelled"), {
            discard: true
          })
        )
        if (leadership.isFirst) {
          yield* mayUseReserve(store.write(beginAnew)).pipe(
            Effect.catchIf(
              (error) => error instanceof DatabaseFull,
              (error) =>
                Effect.logWarning(`nodes of the last run count as connected for now: ${error.detail}`)
            )
          )
        }
        let silence: Effect.Success<ReturnType<typeof makeFailureDetector>> | undefined
        const refresh = yield* followNodeChanges({
          onRecord: (id, record) => {
            const before = fleet.get(id)?.record
            if (record === undefined) silence?.forget(id)
            else if (
              (record.token !== before?.token && record.connected) ||
              record.departed !== before?.departed
            ) {
              silence?.record(id)
            }
          },
          onChange: ({ kind, node_id }) => {
            // Unbounded: nothing is dropped and nobody waits.
            if (kind === "connected" || kind === "lost" || kind === "given-up") {
              PubSub.publishUnsafe(hub, { node_id, kind })
            }
          }
        })
        const shared = yield* shareHeartbeats({
          others: !leadership.isSingle,
          every: Duration.millis(
            leadership.isSingle ? NOTED_MILLIS : Math.min(LOOK_MILLIS, Duration.toMillis(lost_after) / LOOKS)
          ),
          // What this process has written itself is no sign of life.
          onHeard: (id) => (leadership.isSingle ? undefined : silence?.record(id)),
          onLooked: (millis) => silence?.advance(millis)
        })
        silence = yield* makeFailureDetector({ lost_after, given_up_after, beats: (id) => shared.beats(id) })

        const known = Effect.fnUntraced(function* (id: string) {
          const node = fleet.get(id)
          const record = node?.listed
          if (node === undefined || record === undefined) return yield* nodeNotFound(fleet, id)
          return { node, record }
        })
        /** Other replicas may have changed what does not look as it should. */
        const refreshUnless = (id: string, fine: () => boolean) =>
          leadership.isSingle || fine() ? Effect.void : refresh([id])
        const nowText = Effect.map(Clock.currentTimeMillis, (now) => new Date(now).toISOString())

        const get = Effect.fn("NodeRegistry.get")(function* (id: string) {
          const { node, record } = yield* known(id)
          return nodeDetail(node, record)
        })

        const checked = (registration: Registration) =>
          Effect.fromResult(registered(registration, Duration.toSeconds(lost_after)))

        const register = Effect.fn("NodeRegistry.register")(function* (registration: Registration) {
          const fresh = yield* checked(registration)
          const { id } = fresh
          const token = randomBytes(TOKEN_BYTES).toString("base64url")
          const last_seen_at = yield* nowText
          const embedded = daemons.isAttached(id)
          // Whoever calls the daemons of other machines says what that has come to.
          const unreachable = embedded || !daemons.callsOthers() ? null : ""
          const sealed = seal.seal(id, token)
          const record = { ...fresh, token: sealed, last_seen_at, drained: false, embedded, unreachable }
          yield* store.write(Effect.andThen(repo.save(record), appendNodeChanged(id, "connected")))
          const others = [...fleet.nodes].flatMap(({ listed }) => listed ?? [])
          for (const shared of sharedPorts(fresh, others)) yield* Effect.logWarning(shared)
          return { token }
        })

        const isBoot = (id: string, boot_id: string) => fleet.get(id)?.record?.boot_id === boot_id
        const checkBoot = Effect.fnUntraced(function* (id: string, boot_id?: string) {
          yield* refreshUnless(
            id,
            () => boot_id !== undefined && isBoot(id, boot_id) && freshness.stamp() !== undefined
          )
          const last = fleet.get(id)?.record?.boot_id
          if (last === undefined || last !== (boot_id ?? last)) {
            return yield* new RegistrationRequired({ node_id: id })
          }
          return last
        })

        /** A record says when the node registered last; in this process the token is of no use. */
        const needsToken = (record: NodeRecord | undefined, at: string) =>
          record?.connected === true &&
          !record.embedded &&
          (Date.parse(at) - Date.parse(record.last_seen_at ?? at) >= token_lifetime ||
            seal.open(record.id, record.token) === undefined)

        const heartbeat = Effect.fnUntraced(function* (id: string, beat: Heartbeat) {
          const { boot_id, load, memory_used_bytes, disk_used_bytes } = beat
          const at = yield* nowText
          const isThere = () => isBoot(id, boot_id) && fleet.get(id)?.connected === true
          yield* refreshUnless(id, isThere)
          const node = fleet.get(id)
          if (node === undefined || !isThere()) return yield* new RegistrationRequired({ node_id: id })
          const usage = { load, memory_bytes: memory_used_bytes, disk_bytes: disk_used_bytes }
          silence?.record(id)
          shared.note(id, boot_id, usage)
          fleet.hear(node, at, usage)
          if (!needsToken(node.record, at)) return
          // Another replica may have taken its registration a moment ago.
          yield* refreshUnless(id, () => false)
          if (needsToken(fleet.get(id)?.record, at)) return yield* new RegistrationRequired({ node_id: id })
        })

        const revoke = Effect.fn("NodeRegistry.revoke")(
          (id: string, token: string, options?: { readonly lost: boolean }) => {
            const lost = options?.lost === true
            return mayUseReserve(
              store.write(
                Effect.flatMap(repo.revoke(id, token, lost), (changed) =>
                  changed ? appendNodeChanged(id, lost ? "lost" : "expelled") : Effect.void
                )
              )
            )
          }
        )

        const setUnreachable = Effect.fn("NodeRegistry.setUnreachable")(
          (id: string, token: string, unreachable: string | null) =>
            store.write(
              Effect.tap(repo.setUnreachable(id, token, unreachable), (changed) =>
                changed ? appendReachabilityChanged(id) : Effect.void
              )
            )
        )

        const disconnect = Effect.fn("NodeRegistry.disconnect")(function* (id: string, boot_id: string) {
          yield* checkBoot(id, boot_id)
          const at = yield* nowText
          const leave = Effect.gen(function* () {
            if (!(yield* repo.disconnect(id, boot_id, at))) {
              return yield* new RegistrationRequired({ node_id: id })
            }
            yield* appendNodeChanged(id, "disconnected")
          })
          yield* mayUseReserve(store.write(leave))
        })

        const setDrained = Effect.fn("NodeRegistry.setDrained")(function* (id: string, drained: boolean) {
          yield* refreshUnless(id, () => fleet.get(id)?.listed !== undefined)
          yield* known(id)
          const set = Effect.gen(function* () {
            if (!(yield* repo.setDrained(id, drained))) return yield* NotFound.node(id)
            yield* appendNodeChanged(id, "drained")
          })
          yield* store.write(set)
          return yield* get(id)
        })

        const remove = Effect.fn("NodeRegistry.remove")(function* (id: string) {
          yield* refreshUnless(id, () => fleet.get(id)?.listed !== undefined)
          const { node, record } = yield* known(id)
          // Those that are just being placed have no record yet.
          if (leadership.isSingle && node.servers > 0) return yield* owns(id, node.servers)
          const forget = Effect.gen(function* () {
            const servers = yield* repo.remove(id)
            if (servers === undefined) return yield* NotFound.node(id)
            if (servers > 0) return yield* owns(id, servers)
            yield* appendNodeChanged(id, "removed")
          })
          // Taken out first: from here on nothing is placed there.
          fleet.forget(id)
          yield* store.write(forget).pipe(
            mayUseReserve,
            Effect.onError(() => Effect.catch(refresh([id]), () => Effect.sync(() => fleet.put(record))))
          )
        })

        return NodeRegistry.of({
          list: Effect.sync(() => fleet.list),
          details: Effect.sync(() =>
            fleet.list.flatMap(({ id }) => {
              const node = fleet.get(id)
              return node?.listed === undefined ? [] : nodeDetail(node, node.listed)
            })
          ),
          get,
          system: (id) => Effect.map(known(id), ({ record }) => record.system),
          nameOf: (id) => fleet.get(id)?.record?.name ?? id,
          isConnected: (id) => fleet.get(id)?.connected ?? false,
          check: (registration) => Effect.asVoid(checked(registration)),
          register,
          heartbeat,
          revoke,
          setUnreachable,
          checkBoot,
          refresh: (id) => (leadership.isSingle ? Effect.void : refresh([id])),
          disconnect,
          setDrained,
          remove,
          changes: Stream.fromPubSub(hub)
        })
      })
    )
}

const owns = (id: string, servers: number) =>
  Effect.fail(
    new Conflict({
      detail: `node owns ${servers === 1 ? "a server" : `${servers} servers`}: ${id}`,
      hint: "Delete its servers first, or have them moved: `muster nodes drain --move`."
    })
  )
