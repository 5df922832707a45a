import { Context, Duration, Effect, Layer } from "effect"
import type { DrainChoices, DrainPlan, MigrationProgress } from "../../contract/domain/Drain.ts"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { Heartbeat, Registration } from "../../contract/domain/NodeMessages.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { RegistrationRequired } from "../../contract/nodeApi/ControlPlaneApi.ts"
import { Freshness } from "../store/journal/Journal.ts"
import { Leadership } from "../store/Leadership.ts"
import type { NodeRecord } from "../store/repos/NodeRepo.ts"
import { Fleet, nodeNotFound } from "./fleet/Fleet.ts"
import { nodeDetail } from "./fleet/FleetNode.ts"
import { makeNodeWrites, TokenSeal } from "./nodeWrites.ts"
import { makeNodePresence, type NodeChange } from "./presence/nodePresence.ts"
import { registered } from "./registration.ts"

export type { NodeChange }

export interface NodeRegistryOptions {
  /** Without a heartbeat for this long a node is lost; default 30 s. */
  readonly heartbeatTimeout?: Duration.Input
  /** Without a heartbeat for this long a node is given up; default 10 min. */
  readonly nodeLostAfter?: Duration.Input
  /** After this long a node must register again, for another token; default 24 h. */
  readonly tokenLifetime?: Duration.Input
}

/**
 * The nodes of the service and their liveness (spec 9, 2). Reads touch memory only, which follows the journal, so
 * every replica has the same nodes. Nodes of earlier runs are known from the start; if no other service runs, they are
 * connected once they register.
 */
export class NodeRegistry extends Context.Service<NodeRegistry>()("muster/nodes/NodeRegistry", {
  make: Effect.fnUntraced(function* (options: NodeRegistryOptions = {}) {
    const fleet = yield* Fleet
    const freshness = yield* Freshness
    const leadership = yield* Leadership
    const seal = yield* TokenSeal
    const heartbeatTimeout = Duration.fromInputUnsafe(options.heartbeatTimeout ?? "30 seconds")
    const nodeLostAfter = Duration.fromInputUnsafe(options.nodeLostAfter ?? "10 minutes")
    const tokenLifetime = Duration.toMillis(Duration.fromInputUnsafe(options.tokenLifetime ?? "24 hours"))
    const presence = yield* makeNodePresence({ heartbeatTimeout, nodeLostAfter })
    const { refresh } = presence
    /** Reads the record again, unless memory is as expected: other replicas change records. */
    const refreshUnless = (id: NodeId, isExpected: () => boolean) =>
      leadership.isSingle || isExpected() ? Effect.void : refresh(id)
    const known = Effect.fnUntraced(function* (id: NodeId) {
      const node = fleet.get(id)
      const record = node?.listed
      if (node === undefined || record === undefined) return yield* nodeNotFound(fleet, id)
      return { node, record }
    })
    const listed = Effect.fnUntraced(function* (id: NodeId) {
      yield* refreshUnless(id, () => fleet.get(id)?.listed !== undefined)
      return yield* known(id)
    })
    const get = Effect.fn("NodeRegistry.get")(function* (id: NodeId) {
      const { node, record } = yield* known(id)
      return nodeDetail(node, record)
    })
    const checked = (registration: Registration) =>
      Effect.fromResult(registered(registration, Duration.toSeconds(heartbeatTimeout)))
    const writes = yield* makeNodeWrites(refresh)

    const isBoot = (id: NodeId, boot_id: string) => fleet.get(id)?.record?.boot_id === boot_id
    const checkBoot = Effect.fnUntraced(function* (id: NodeId, boot_id?: string) {
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

    /** Whether a node needs another token. An embedded node needs none. */
    const needsToken = (record: NodeRecord | undefined, at: string) =>
      record?.connected === true &&
      !record.embedded &&
      (Date.parse(at) - Date.parse(record.last_seen_at ?? at) >= tokenLifetime ||
        seal.open(record.id, record.token) === undefined)

    return {
      /** Known nodes, by name, then id (spec 2.1), except a deregistered node without servers. */
      list: Effect.sync(() => fleet.list),
      /** The nodes of `list`, each as `get` returns it. */
      details: Effect.sync(() =>
        fleet.list.flatMap(({ id }) => {
          const node = fleet.get(id)
          return node?.listed === undefined ? [] : nodeDetail(node, node.listed)
        })
      ),
      get,
      /** Host information of the node's last registration. */
      system: (id: NodeId) => Effect.map(known(id), ({ record }) => record.system),
      /** Returns the display name, or the id of an unknown node. */
      nameOf: (id: NodeId): string => fleet.get(id)?.record?.name ?? id,
      /** Whether its heartbeats arrive; a connected node can still be unreachable. */
      isConnected: (id: NodeId): boolean => fleet.get(id)?.connected ?? false,
      /** @error InvalidRequest an invalid id, address or port range, or heartbeats that are too rare */
      check: (registration: Registration) => Effect.asVoid(checked(registration)),
      /**
       * Registers a node in place of an earlier boot, and returns the token for its daemon. A drain remains.
       * @error InvalidRequest as `check`
       */
      register: Effect.fn("NodeRegistry.register")((registration: Registration) =>
        Effect.flatMap(checked(registration), writes.register)
      ),
      /**
       * Notes a heartbeat, in memory unless memory may be behind.
       * @error RegistrationRequired the node is not connected, or its token is too old or not readable with the
       * service's secret; then the heartbeat counts, and the registration replaces the token
       */
      heartbeat: Effect.fnUntraced(function* (
        id: NodeId,
        beat: Heartbeat
      ): Effect.fn.Return<void, RegistrationRequired | Unavailable> {
        const { boot_id, load, memory_used_bytes, disk_used_bytes } = beat
        const at = yield* nowText
        const isConnected = () => isBoot(id, boot_id) && fleet.get(id)?.connected === true
        yield* refreshUnless(id, isConnected)
        const node = fleet.get(id)
        if (node === undefined || !isConnected()) return yield* new RegistrationRequired({ node_id: id })
        const usage = { load, memory_bytes: memory_used_bytes, disk_bytes: disk_used_bytes }
        presence.record(id, boot_id, usage)
        fleet.recordHeartbeat(node, at, usage)
        if (!needsToken(node.record, at)) return
        yield* refreshUnless(id, () => false)
        if (needsToken(fleet.get(id)?.record, at)) return yield* new RegistrationRequired({ node_id: id })
      }),
      /** Returns the boot of the last registration. Fails if `boot_id` is another one. */
      checkBoot,
      revoke: writes.revoke,
      setUnreachable: writes.setUnreachable,
      /** Reads the record of a node again, if other replicas may have changed it. */
      refresh: (id: NodeId) => refreshUnless(id, () => false),
      /** Deregisters a node. It is lost unless it registers within the heartbeat timeout. */
      disconnect: (id: NodeId, boot_id: string) =>
        Effect.andThen(checkBoot(id, boot_id), writes.disconnect(id, boot_id)),
      setDrained: Effect.fn("NodeRegistry.setDrained")(function* (id: NodeId, drained: boolean) {
        yield* listed(id)
        yield* writes.setDrained(id, drained)
        return yield* get(id)
      }),
      /** Deletes a node. @error Conflict it owns servers */
      remove: Effect.fn("NodeRegistry.remove")((id: NodeId) => Effect.flatMap(listed(id), writes.remove)),
      /** Changes from the start of the stream, each exactly once on every replica. */
      changes: presence.changes
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof NodeRegistry.make>) =>
    Layer.effect(NodeRegistry, NodeRegistry.make(...options))
}

/** Migrates the saved servers of drained nodes to other nodes. The servers' folder implements it. */
export class NodeMigrations extends Context.Service<
  NodeMigrations,
  {
    /** Begins durably to migrate the node's saved servers. A second call adds new ones and retries failed ones. */
    begin(node_id: NodeId, choices?: DrainChoices): Effect.Effect<void, Unavailable>
    /** Returns what {@link begin} would do now. Stores and reserves nothing. */
    plan(node_id: NodeId): Effect.Effect<DrainPlan>
    /** Ends further migrations from the node. Those that have begun continue. */
    end(node_id: NodeId): Effect.Effect<void, Unavailable>
    /** Returns nothing if the servers of the node are not migrated. */
    progress(node_id: NodeId): Effect.Effect<MigrationProgress | undefined>
  }
>()("muster/nodes/NodeMigrations") {}
