/** Nodes, servers and a store in memory. */

import { Array as Arr, Context, Effect, Layer, Stream } from "effect"
import { Unavailable } from "../../../../src/contract/domain/errors.ts"
import { type NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import type { Change, JournalEntry } from "../../../../src/contract/domain/Journal.ts"
import type { ServerRecord } from "../../../../src/contract/domain/Server.ts"
import { DaemonClient } from "../../../../src/controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../../../../src/controlPlane/nodes/fleet/Fleet.ts"
import { LoadBalancer } from "../../../../src/controlPlane/nodes/LoadBalancer.ts"
import { NodeRegistry, type NodeRegistryOptions } from "../../../../src/controlPlane/nodes/NodeRegistry.ts"
import type {
  LoadBalancerOptions,
  PlacementRequest
} from "../../../../src/controlPlane/nodes/placementChoice.ts"
import { Freshness, Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { Leadership } from "../../../../src/controlPlane/store/Leadership.ts"
import { type NodeRecord, NodeRepo } from "../../../../src/controlPlane/store/repos/NodeRepo.ts"
import { Store, Transaction } from "../../../../src/controlPlane/store/Store.ts"
import { absorbSqlErrors } from "../../../../src/controlPlane/store/sql/sqlErrors.ts"
import { branded, type Plain } from "../../../support/ids.ts"
import { allocations, definition, record } from "../../../support/samples.ts"

export const GIB = 1024 ** 3

/** The data and the faults of a {@link memoryStore}. */
export class MemoryTables extends Context.Service<
  MemoryTables,
  {
    readonly nodes: Map<NodeId, NodeRecord>
    /** The database is away. */
    away: boolean
    /** Runs before each write. */
    before: Effect.Effect<void>
  }
>()("test/MemoryTables") {}

/** Tables that outlive the layers over them, as a database outlives a process. */
export const tables = (): MemoryTables["Service"] => ({ nodes: new Map(), away: false, before: Effect.void })

/** The store and its journal, which stores nothing. */
const storeOver = Layer.effectContext(
  Effect.gen(function* () {
    const state = yield* MemoryTables
    const followers = new Set<(entries: ReadonlyArray<JournalEntry>) => Effect.Effect<void>>()
    const reachable = Effect.suspend(() => (state.away ? Effect.fail(Unavailable.store()) : Effect.void))
    const guarded = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      absorbSqlErrors(Effect.andThen(reachable, effect))
    let cursor = 0
    const write: Store["Service"]["write"] = (mutation) =>
      Effect.gen(function* () {
        yield* state.before
        const changes: Array<Change> = []
        const append = (change: Change) => Effect.sync(() => void changes.push(change))
        const answer = yield* guarded(
          Effect.provideService(mutation, Transaction, Transaction.of({ append }))
        )
        const entries = changes.map((change) => ({ cursor: ++cursor, at: 0, blueprint_id: "", change }))
        for (const follower of entries.length === 0 ? [] : followers) yield* follower(entries)
        return answer
      }).pipe(Effect.uninterruptible)
    const together: Store["Service"]["together"] = (mutation) => (request) =>
      Effect.flatMap(write(mutation([request])), (answers) =>
        Effect.orDie(Effect.fromOption(Arr.head(answers)))
      )
    const store = Store.of({ write, together, read: guarded, ping: guarded(Effect.void) })
    const journal = Journal.of({
      follow: (_stage, follower) => Effect.sync(() => void followers.add(follower)),
      applied: Effect.sync(() => cursor),
      after: () => Stream.empty,
      catchUp: Effect.void,
      catchUpTo: () => Effect.void,
      publish: () => Effect.void,
      publishAnyway: () => Effect.void,
      bounds: Effect.sync(() => ({ oldest: cursor + 1, newest: cursor }))
    })
    return Context.make(Store, store).pipe(Context.add(Journal, journal))
  })
)

const nodesOver = Layer.effect(
  NodeRepo,
  Effect.map(MemoryTables, ({ nodes }) => {
    const change = (
      id: NodeId,
      fields: Partial<NodeRecord>,
      applies: (record: NodeRecord) => boolean = () => true
    ) =>
      Effect.sync(() => {
        const record = nodes.get(id)
        if (record === undefined || !applies(record)) return false
        nodes.set(id, { ...record, ...fields })
        return true
      })
    return NodeRepo.of({
      save: (record) =>
        Effect.sync(() => {
          const before = nodes.get(record.id)
          const kept =
            record.unreachable !== null &&
            before?.url === record.url &&
            (before.connected || before.unreachable !== null)
          nodes.set(record.id, {
            ...record,
            drained: before?.drained ?? record.drained,
            unreachable: kept ? before.unreachable : record.unreachable
          })
        }),
      setDrained: (id, drained) => change(id, { drained }),
      disconnect: (id, boot_id, last_seen_at) =>
        change(
          id,
          { connected: false, departed: true, gone: null, last_seen_at },
          (record) => record.boot_id === boot_id
        ),
      revoke: (id, token, lost) =>
        change(
          id,
          { connected: false, token: "", gone: lost === true ? "lost" : null },
          (record) => record.token === token && record.connected
        ),
      setUnreachable: (id, token, unreachable) =>
        change(
          id,
          { unreachable },
          (record) => record.token === token && record.connected && record.unreachable !== unreachable
        ),
      markLost: (id, token) =>
        change(
          id,
          { connected: false, gone: "lost" },
          (record) => record.token === token && record.gone === null
        ),
      markGivenUp: (id, token) =>
        change(id, { gone: "given-up" }, (record) => record.token === token && record.gone === "lost"),
      resetConnections: Effect.sync(() => {
        for (const [id, record] of nodes)
          nodes.set(id, { ...record, connected: false, gone: null, token: "" })
        return [...nodes.keys()]
      }),
      remove: (id) => Effect.sync(() => (nodes.delete(id) ? 0 : undefined)),
      find: (ids) =>
        Effect.sync(() => ids.flatMap((id) => [nodes.get(id)].filter((record) => record !== undefined))),
      all: Effect.sync(() => [...nodes.values()]),
      recordHeartbeats: () => Effect.void,
      heartbeats: Effect.succeed([])
    })
  })
)

/** Store and node records in memory. */
export const memoryStore = (state: MemoryTables["Service"] = tables()) =>
  Layer.mergeAll(
    storeOver,
    nodesOver,
    Leadership.layerSingle,
    Layer.succeed(Freshness, Freshness.of({ stamp: () => 0 }))
  ).pipe(Layer.provideMerge(Layer.succeed(MemoryTables, state)))

/** Registry and load balancer as in the service, over any store. */
export const nodesLayer = (options: LoadBalancerOptions & NodeRegistryOptions = {}) =>
  Layer.mergeAll(NodeRegistry.layer(options), LoadBalancer.layer(options)).pipe(
    Layer.provideMerge(Layer.mergeAll(Fleet.layer, DaemonClient.layer))
  )

/** {@link nodesLayer} over a store in memory. */
export const memoryNodes = (
  options: LoadBalancerOptions & NodeRegistryOptions = {},
  state: MemoryTables["Service"] = tables()
) => nodesLayer(options).pipe(Layer.provideMerge(memoryStore(state)))

/** A request for a server of 1 GiB and one port. */
export const request = (
  server_id: string,
  fields: Partial<Plain<PlacementRequest>> = {}
): PlacementRequest => ({
  server_id: ServerId.make(server_id),
  blueprint_id: "survival",
  limits: { memory_limit: 1024 },
  ports: 1,
  runtimes: ["process"],
  placement: { locations: [], anti_affinity: false },
  ...branded<Partial<PlacementRequest>>(fields)
})

/** The record of a server of 1 GiB that holds `ports` of a node. */
export const serverRecord = (
  id: string,
  node_id: string,
  ports: ReadonlyArray<number>,
  address = "127.0.0.1"
): ServerRecord =>
  record({
    id,
    node_id,
    allocations: {
      ...allocations(...ports),
      default: { ip: address, port: ports[0] ?? 1 },
      mappings: { [address]: ports }
    },
    definition: definition({
      limits: { memory_limit: 1024, disk_space: 100, cpu_limit: 150 },
      ports: ports.length,
      save: false
    })
  })

export const heartbeat = (boot_id: string) => ({
  boot_id,
  load: 0.5,
  memory_used_bytes: 1,
  disk_used_bytes: 1
})
