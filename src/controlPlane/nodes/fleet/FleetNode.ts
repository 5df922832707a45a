import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { Load } from "../../../contract/domain/Limits.ts"
import type { Node, NodeDetail, NodeUsage } from "../../../contract/domain/Node.ts"
import { transportOf } from "../../../contract/domain/transport.ts"
import type { NodeRecord } from "../../store/repos/NodeRepo.ts"
import { PortAllocator, type PortMappings } from "./PortAllocator.ts"

/** The name of a reservation: the server, or its second reservation on the other node of a migration. */
export type ReservationId = ServerId | `${string}/other`

export interface Reservation {
  readonly server_id: ReservationId
  readonly node_id: NodeId
  readonly blueprint_id: string
  readonly load: Load
  readonly mappings: PortMappings
}

/** The state of one node in memory. Only {@link Fleet} changes it. */
export class FleetNode {
  readonly id: NodeId
  /** Unset until the node itself is known. Servers may be placed there before. */
  record: NodeRecord | undefined = undefined
  connected = false
  /** Whether a service that has just started waits for its registration. */
  expected = false
  /** Time of the last heartbeat, RFC 3339 UTC. */
  last_seen_at: string | null = null
  usage: NodeUsage | null = null
  readonly ports = new PortAllocator()
  readonly committed = { memory_bytes: 0, disk_bytes: 0, cpu_millipercent: 0 }
  servers = 0
  readonly blueprints = new Map<string, number>()

  constructor(id: NodeId) {
    this.id = id
  }

  /** The record, except of a deregistered node without servers (spec 2). */
  get listed(): NodeRecord | undefined {
    return this.record?.departed === true && this.servers === 0 ? undefined : this.record
  }

  get pending(): boolean {
    return this.expected || this.uncalled
  }

  /** Whether it has registered and was not called yet. */
  get uncalled(): boolean {
    return this.connected && this.record?.unreachable === ""
  }

  /** The reason that it is unreachable although its heartbeats arrive. */
  get unreachable(): string | undefined {
    if (!this.connected) return undefined
    return this.uncalled ? "it was not called yet" : (this.record?.unreachable ?? undefined)
  }

  /** Whether servers can be placed on it: it is connected and reachable. */
  get usable(): boolean {
    return this.connected && this.unreachable === undefined
  }

  /** Adds (`sign` 1) or takes away (-1) the load of a server. */
  commit(reservation: Reservation, sign: 1 | -1): void {
    this.committed.memory_bytes += sign * reservation.load.memory_bytes
    this.committed.disk_bytes += sign * reservation.load.disk_bytes
    this.committed.cpu_millipercent += sign * reservation.load.cpu_millipercent
    this.servers += sign
    const count = (this.blueprints.get(reservation.blueprint_id) ?? 0) + sign
    if (count > 0) this.blueprints.set(reservation.blueprint_id, count)
    else this.blueprints.delete(reservation.blueprint_id)
  }
}

export const nodeView = ({ id, name, location, url, drained }: NodeRecord): Node => ({
  id,
  name,
  location,
  url,
  drained
})

/** Returns a node with its state and load (spec 2). */
export const nodeDetail = (node: FleetNode, record: NodeRecord): NodeDetail => ({
  ...nodeView(record),
  connected: node.usable,
  ...(node.unreachable === undefined ? {} : { unreachable: node.unreachable }),
  last_seen_at: node.last_seen_at,
  version: record.version,
  capacity: record.capacity,
  committed: {
    memory_bytes: node.committed.memory_bytes,
    cpu_threads: node.committed.cpu_millipercent / 100_000,
    disk_bytes: node.committed.disk_bytes
  },
  usage: node.usage,
  ports_free: node.ports.free,
  servers: node.servers,
  ...(record.system.not_enforced === undefined ? {} : { not_enforced: record.system.not_enforced }),
  ...(!record.embedded && transportOf(record.url) === "plain" ? { unencrypted: true } : {})
})
