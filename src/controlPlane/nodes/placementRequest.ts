import type { Allocations } from "../../contract/domain/Allocation.ts"
import type { PlacementRule } from "../../contract/domain/Blueprint.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import {
  committedCpuMillipercent,
  committedMemoryBytes,
  diskLimitBytes,
  type Limits
} from "../../contract/domain/Limits.ts"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import { reservedLimits, type ServerRecord } from "../../contract/domain/Server.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import type { Load, ReservationId } from "./fleet/FleetNode.ts"
import type { Need } from "./fleet/place.ts"

export interface PlacementRequest {
  readonly server_id: ReservationId
  readonly blueprint_id: string
  /** The node that the caller names, drained or not. */
  readonly node_id?: NodeId
  readonly limits: Limits
  readonly ports: number
  readonly runtimes: ReadonlyArray<RuntimeKind>
  readonly placement: PlacementRule
  readonly except?: ReadonlyArray<NodeId>
  /** The node that a migrating server leaves: excluded, and no reason of a refusal. */
  readonly from?: NodeId
  /** The ports that the server gets where they are free. */
  readonly like?: Allocations
  /** Whether the caller repeats a refused request, which is counted once. */
  readonly isRetry?: boolean
}

export type Reserved = Omit<ServerRecord, "id"> & { readonly id: ReservationId }

export const placementOf = (record: ServerRecord): PlacementRequest => {
  const { blueprint_id, definition, id } = record
  const { placement, ports, runtimes } = definition
  return { server_id: id, blueprint_id, limits: reservedLimits(record), placement, ports, runtimes }
}

/** Servers with one definition share their load. */
const loads = new RecentMap<Limits, Load>()

export const loadOf = (limits: Limits): Load => {
  const known = loads.get(limits)
  if (known !== undefined) return known
  const load = {
    memory_bytes: committedMemoryBytes(limits),
    disk_bytes: diskLimitBytes(limits),
    cpu_millipercent: committedCpuMillipercent(limits)
  }
  loads.set(limits, load)
  return load
}

export const needOf = ({
  limits,
  ports,
  runtimes,
  placement,
  blueprint_id,
  except = [],
  from
}: PlacementRequest): Need => ({
  memory_bytes: committedMemoryBytes(limits),
  disk_bytes: diskLimitBytes(limits),
  ports: ports >= 1 ? Math.ceil(ports) : 1,
  runtimes,
  locations: placement.locations,
  ...(placement.anti_affinity ? { alone: blueprint_id } : {}),
  ...(except.length === 0 ? {} : { except }),
  ...(from === undefined ? {} : { from })
})
