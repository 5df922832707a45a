import { Context, Effect, Layer, Schedule, Semaphore } from "effect"
import type { Allocations } from "../../../contract/domain/Allocation.ts"
import { NotFound, type Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import type { NodeRecordChange, NodeRecordChangeKind } from "../../../contract/domain/Journal.ts"
import type { Node, NodeUsage } from "../../../contract/domain/Node.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { type NodeRecord, NodeRepo } from "../../store/repos/NodeRepo.ts"
import { append, Store } from "../../store/Store.ts"
import { FleetNode, nodeView, type Reservation, type ReservationId } from "./FleetNode.ts"
import type { PortMappings } from "./PortAllocator.ts"
import { byName } from "./place.ts"

const MOST = 10

/** 404 of a node, with the id if its name was given instead. */
export const nodeNotFound = (fleet: FleetState, id: NodeId): NotFound => {
  const plain = NotFound.node(id)
  const ids = fleet.list.filter((node) => node.name === id).map((node) => node.id)
  if (ids.length === 0) return plain
  const hint =
    ids.length === 1
      ? `That is the name of a node: its id is ${ids[0]}.`
      : `That is the name of ${ids.length} nodes: their ids are ${ids.slice(0, MOST).join(", ")}.`
  return new NotFound({ detail: plain.detail, hint })
}

/** All nodes and reservations in memory. Its methods are synchronous: a decision and its effects are one step. */
export class FleetState {
  readonly #nodes = new Map<NodeId, FleetNode>()
  readonly #reservations = new Map<ReservationId, Reservation>()
  readonly #watchers = new Set<(node: FleetNode) => void>()
  #list: ReadonlyArray<Node> | undefined = undefined

  get nodes(): Iterable<FleetNode> {
    return this.#nodes.values()
  }

  get(id: NodeId): FleetNode | undefined {
    return this.#nodes.get(id)
  }

  /** Listed nodes by name, then id, cached until one of them changes. */
  get list(): ReadonlyArray<Node> {
    this.#list ??= [...this.#nodes.values()]
      .flatMap(({ listed }) => (listed === undefined ? [] : [nodeView(listed)]))
      .sort(byName)
    return this.#list
  }

  put(record: NodeRecord): void {
    const node = this.#obtain(record.id)
    const before = node.record
    if (JSON.stringify(before?.allocations) !== JSON.stringify(record.allocations)) {
      node.ports.offer(record.allocations)
    }
    if (before?.boot_id !== record.boot_id) node.usage = null
    node.record = record
    node.connected = record.connected
    if (record.connected) node.expected = false
    if (before?.last_seen_at !== record.last_seen_at) node.last_seen_at = record.last_seen_at
    this.#list = undefined
    this.#changed(node)
  }

  /** Notes whether a registration of a node is expected within seconds. */
  expect(node: FleetNode, expected: boolean): void {
    if (node.expected === expected) return
    node.expected = expected
    this.#changed(node)
  }

  recordHeartbeat(node: FleetNode, at: string, usage: NodeUsage): void {
    node.last_seen_at = at
    node.usage = usage
  }

  forget(id: NodeId): void {
    const node = this.#nodes.get(id)
    if (node === undefined) return
    node.record = undefined
    node.connected = false
    node.ports.offer([])
    this.#list = undefined
    this.#changed(node)
    this.#drop(node)
  }

  /**
   * Reserves capacity and ports for a server in one step, or returns nothing if the ports are not free.
   * @param like the ports that it gets where they are free
   */
  reserve(
    node: FleetNode,
    server: Omit<Reservation, "node_id" | "mappings">,
    ports: number,
    like?: Allocations
  ): Allocations | undefined {
    const allocations = (like && node.ports.reserveLike(like)) ?? node.ports.reserve(ports)
    if (allocations === undefined) return undefined
    const reservation = { ...server, node_id: node.id, mappings: allocations.mappings }
    this.#reservations.set(server.server_id, reservation)
    this.#commit(node, reservation, 1)
    return allocations
  }

  /** Replaces the reservations of servers. Watchers see each node once. */
  hold(reservations: Iterable<Reservation>): void {
    const nodes = new Set<FleetNode>()
    for (const reservation of reservations) {
      this.release(reservation.server_id)
      const node = this.#obtain(reservation.node_id)
      node.ports.hold(reservation.mappings)
      this.#reservations.set(reservation.server_id, reservation)
      this.#count(node, reservation, 1)
      nodes.add(node)
    }
    for (const node of nodes) this.#changed(node)
  }

  /** Reserves more ports of an address and returns them with their release, or nothing if they are not free. */
  reserveMore(
    node: FleetNode,
    ip: string,
    count: number
  ): { readonly ports: ReadonlyArray<number>; readonly release: () => void } | undefined {
    const ports = node.ports.reserveMore(ip, count)
    if (ports === undefined) return undefined
    this.#changed(node)
    return { ports, release: () => this.#release(node, { [ip]: ports }) }
  }

  /** Withholds ports of a node from new reservations. Returns the end of that. */
  avoid(node: FleetNode, mappings: PortMappings): () => void {
    node.ports.hold(mappings)
    this.#changed(node)
    return () => this.#release(node, mappings)
  }

  #release(node: FleetNode, mappings: PortMappings): void {
    node.ports.release(mappings)
    this.#changed(node)
  }

  reservation(server_id: ReservationId): Reservation | undefined {
    return this.#reservations.get(server_id)
  }

  release(server_id: ReservationId): void {
    const reservation = this.#reservations.get(server_id)
    if (reservation === undefined) return
    this.#reservations.delete(server_id)
    const node = this.#nodes.get(reservation.node_id)
    if (node === undefined) return
    node.ports.release(reservation.mappings)
    this.#commit(node, reservation, -1)
    this.#drop(node)
  }

  /** Calls `watcher` with all present nodes and with every node that changes. Returns the end of that. */
  watch(watcher: (node: FleetNode) => void): () => void {
    this.#watchers.add(watcher)
    for (const node of this.#nodes.values()) watcher(node)
    return () => void this.#watchers.delete(watcher)
  }

  /** Returns a copy with the same nodes and reservations, and without watchers. */
  copy(): FleetState {
    const copy = new FleetState()
    for (const { record } of this.#nodes.values()) if (record !== undefined) copy.put(record)
    copy.hold(this.#reservations.values())
    return copy
  }

  #obtain(id: NodeId): FleetNode {
    const node = this.#nodes.get(id) ?? new FleetNode(id)
    this.#nodes.set(id, node)
    return node
  }

  #commit(node: FleetNode, reservation: Reservation, sign: 1 | -1): void {
    this.#count(node, reservation, sign)
    this.#changed(node)
  }

  #count(node: FleetNode, reservation: Reservation, sign: 1 | -1): void {
    const before = node.listed
    node.commit(reservation, sign)
    if (node.listed !== before) this.#list = undefined
  }

  #drop(node: FleetNode): void {
    if (node.record === undefined && node.servers === 0) this.#nodes.delete(node.id)
  }

  #changed(node: FleetNode): void {
    for (const watcher of this.#watchers) watcher(node)
  }
}

/** Calls `watcher` with all present nodes, and until the scope closes with every node that changes. */
export const watchFleet = (fleet: FleetState, watcher: (node: FleetNode) => void) =>
  Effect.acquireRelease(
    Effect.sync(() => fleet.watch(watcher)),
    (stop) => Effect.sync(stop)
  )

/** The nodes in memory: one instance per process. */
export class Fleet extends Context.Service<Fleet, FleetState>()("muster/nodes/Fleet") {
  static readonly layer = Layer.sync(Fleet, () => Fleet.of(new FleetState()))
}

type RecordChange = Exclude<NodeRecordChange, { readonly topic: "node:evacuation" }>

const AGAIN = "100 millis"

export const appendNodeChanged = (node_id: NodeId, kind: NodeRecordChangeKind) =>
  append({ topic: "node:changed", node_id, kind })

export const appendReachabilityChanged = (node_id: NodeId) => append({ topic: "node:reach", node_id })

/**
 * Keeps the nodes in memory equal to their records on every replica, and announces the changes.
 * @param options.onRecord called with a record, or nothing if it is deleted, before memory takes it
 * @param options.onChange called with each change once memory has followed it
 * @returns reads the records of nodes again
 */
export const followNodeChanges = Effect.fnUntraced(function* (options: {
  readonly onRecord: (node_id: NodeId, record: NodeRecord | undefined) => void
  readonly onChange: (change: RecordChange) => void
}) {
  const fleet = yield* Fleet
  const journal = yield* Journal
  const repo = yield* NodeRepo
  const store = yield* Store
  // An older read must not replace a newer one.
  const oneAtATime = yield* Semaphore.make(1)

  const put = (id: NodeId, record: NodeRecord | undefined) => {
    options.onRecord(id, record)
    if (record === undefined) fleet.forget(id)
    else fleet.put(record)
  }
  const refresh = (ids: ReadonlyArray<NodeId>): Effect.Effect<void, Unavailable> =>
    oneAtATime.withPermit(
      Effect.map(store.read(repo.find(ids)), (records) => {
        const found = new Map(records.map((record) => [record.id, record]))
        for (const id of ids) put(id, found.get(id))
      })
    )

  yield* journal.follow("read-model", (entries) => {
    const changes = entries.flatMap(({ change }) =>
      change.topic === "node:changed" || change.topic === "node:reach" ? [change] : []
    )
    if (changes.length === 0) return Effect.void
    return refresh([...new Set(changes.map(({ node_id }) => node_id))]).pipe(
      Effect.tapError((error) => Effect.logDebug(`nodes cannot be read yet: ${error.detail}`)),
      // Later entries must not be announced before these.
      Effect.retry(Schedule.spaced(AGAIN)),
      Effect.orDie,
      Effect.andThen(
        Effect.sync(() => {
          for (const change of changes) options.onChange(change)
        })
      )
    )
  })
  yield* oneAtATime.withPermit(
    Effect.map(store.read(repo.all), (records) => {
      for (const record of records) put(record.id, record)
    })
  )
  return refresh
})
