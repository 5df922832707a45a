/** The choice of a node for a server, and the reasons against the others. Reserves nothing, and never waits. */

import { Result } from "effect"
import type { Allocations } from "../../contract/domain/Allocation.ts"
import type { PlacementRule } from "../../contract/domain/Blueprint.ts"
import { type NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import {
  committedMemoryBytes,
  committedOf,
  diskLimitBytes,
  type Limits,
  type Load
} from "../../contract/domain/Limits.ts"
import { type Capacity, type NodeFit, notCallable, type RuntimeKind } from "../../contract/domain/Node.ts"
import { reservedLimits, type ServerRecord } from "../../contract/domain/Server.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import type { AvailableCapacity } from "../store/repos/CapacityRepo.ts"
import { type FleetState, nodeNotFound } from "./fleet/Fleet.ts"
import type { FleetNode, ReservationId } from "./fleet/FleetNode.ts"
import {
  type Candidate,
  type Compare,
  type Misfit,
  makeChooser,
  misfits,
  type Need,
  needsUid,
  orderOf,
  type Rank,
  runs,
  type Strategy,
  shortages,
  summarize
} from "./fleet/place.ts"

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
  const load = committedOf(limits)
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

export interface LoadBalancerOptions {
  /** Default `spread`. */
  readonly strategy?: Strategy
  /** The capacity for placements as a multiple of the node's capacity; default 1. */
  readonly memoryOvercommit?: number
  readonly diskOvercommit?: number
}

const MOST_CANDIDATES = 100

/** The outcome of a placement that is not made. */
interface PlacementPreview {
  /** The node that a placement would choose, if one fits. */
  readonly chosen: NodeId | undefined
  /** The chosen node, then the other nodes that fit, then the rest. */
  readonly candidates: ReadonlyArray<NodeFit>
  readonly warnings: ReadonlyArray<string>
}

interface Considered {
  readonly candidate: Candidate
  readonly misfits: ReadonlyArray<Misfit>
}

const fitOf = ({ candidate: { id, name, room, share }, misfits }: Considered): NodeFit => ({
  node_id: id,
  node_name: name,
  fits: misfits.length === 0,
  ...(misfits.length === 0 ? {} : { reason: misfits.map(({ reason }) => reason).join("; ") }),
  memory_free_bytes: Math.max(0, room.memory_bytes),
  disk_free_bytes: Math.max(0, room.disk_bytes),
  ports_free: room.ports,
  share
})

const previewOf = (
  nodes: ReadonlyArray<Considered>,
  chosen: NodeId | undefined,
  compare: Compare<Rank>
): PlacementPreview => {
  const rank = ({ candidate, misfits }: Considered): number =>
    candidate.id === chosen ? 0 : misfits.length === 0 ? 1 : 2
  const sorted = nodes.toSorted((a, b) => rank(a) - rank(b) || compare(a.candidate, b.candidate))
  const unlisted = sorted.length - MOST_CANDIDATES
  return {
    chosen,
    candidates: sorted.slice(0, MOST_CANDIDATES).map(fitOf),
    warnings: unlisted > 0 ? [`${unlisted} more nodes are not listed`] : []
  }
}

type Committed = Pick<Capacity, "memory_bytes" | "disk_bytes">

/** Returns the free memory and disk of a node, overcommitment included. */
const freeOf = (
  { disk_bytes, memory_bytes }: Committed,
  committed: Committed,
  { diskOvercommit = 1, memoryOvercommit = 1 }: LoadBalancerOptions
): Committed => ({
  memory_bytes: Math.floor(memory_bytes * memoryOvercommit) - committed.memory_bytes,
  disk_bytes: Math.floor(disk_bytes * diskOvercommit) - committed.disk_bytes
})

const candidateOf = (node: FleetNode, options: LoadBalancerOptions): Candidate | undefined => {
  const { blueprints, committed, id, ports, record, servers } = node
  if (record === undefined) return undefined
  const { capacity, location, name, runtimes, system } = record
  return {
    id,
    name,
    location,
    runtimes,
    lacksUids: system.lacks_uids === true,
    share: capacity.memory_bytes > 0 ? committed.memory_bytes / capacity.memory_bytes : 1,
    servers,
    room: { ...freeOf(capacity, committed, options), ports: ports.mostOnOneAddress },
    blueprints
  }
}

/** @param isNamed whether the caller names the node: it may then be drained */
const misfitsOf = (
  node: FleetNode,
  candidate: Candidate | undefined,
  need: Need,
  isNamed = false
): ReadonlyArray<Misfit> => {
  if (!node.connected || candidate === undefined) return [{ kind: "away", reason: "not connected" }]
  if (!node.usable) return [{ kind: "unreachable", reason: "unreachable" }]
  const drained: ReadonlyArray<Misfit> =
    node.record?.drained === true && !isNamed ? [{ kind: "drained", reason: "drained" }] : []
  return [...drained, ...misfits(candidate, need)]
}

/** Returns why a named node cannot get a server, if so. */
const refusalOf = (node: FleetNode, candidate: Candidate, need: Need): Unavailable | undefined => {
  const { id, unreachable } = node
  if (!node.connected) return Unavailable.nodeNotConnected(id)
  if (unreachable !== undefined) return Unavailable.nodeNotConnected(id, notCallable(unreachable))
  if (!runs(candidate, need)) {
    return needsUid(candidate, need)
      ? Unavailable.nodeFull(id, "Every uid of its MUSTER_PROCESS_UIDS is in use")
      : Unavailable.nodeCannotRun(id, candidate.runtimes, need.runtimes, "name another node or none")
  }
  const [short] = shortages(candidate.room, need)
  return short === undefined
    ? undefined
    : Unavailable.nodeFull(id, `It is without ${short.needed}: it has ${short.free}`)
}

export const makePlacementChoice = (fleet: FleetState, options: LoadBalancerOptions) => {
  const { strategy = "spread" } = options
  const chooser = makeChooser(strategy)

  const open = () =>
    [...fleet.nodes].flatMap((node) =>
      node.usable && node.record?.drained === false ? (candidateOf(node, options) ?? []) : []
    )
  const listed = () =>
    [...fleet.nodes]
      .filter((node) => node.listed !== undefined)
      .map((node) => ({ node, candidate: candidateOf(node, options) }))

  const whyNone = (need: Need): string => {
    const unfit = listed()
      .filter(({ node }) => node.id !== need.from)
      .map(({ candidate, node }) => ({
        name: node.record?.name ?? node.id,
        misfit: misfitsOf(node, candidate, need)[0] ?? { kind: "changing" as const, reason: "changing" }
      }))
    return summarize(
      unfit.toSorted((one, other) => (one.name < other.name ? -1 : 1)),
      need
    )
  }

  const find = (id: NodeId) => {
    const node = fleet.get(id)
    const candidate = node?.listed === undefined ? undefined : candidateOf(node, options)
    return node === undefined || candidate === undefined
      ? Result.fail(nodeNotFound(fleet, id))
      : Result.succeed({ node, candidate })
  }

  const choose = (
    node_id: NodeId | undefined,
    need: Need
  ): Result.Result<FleetNode, NotFound | Unavailable> => {
    if (node_id !== undefined) {
      return Result.flatMap(find(node_id), ({ candidate, node }) => {
        const refusal = refusalOf(node, candidate, need)
        return refusal === undefined ? Result.succeed(node) : Result.fail(refusal)
      })
    }
    const chosen = chooser.choose(open(), need)
    const node = chosen === undefined ? undefined : fleet.get(chosen.id)
    return node === undefined ? Result.fail(Unavailable.noNodes(whyNone(need))) : Result.succeed(node)
  }

  const previewAnywhere = (need: Need): PlacementPreview => {
    const chosen = chooser.preview(open(), need)?.id
    const nodes = listed().flatMap(({ candidate, node }) =>
      candidate === undefined ? [] : [{ candidate, misfits: misfitsOf(node, candidate, need) }]
    )
    const previewed = previewOf(nodes, chosen, orderOf(strategy))
    return chosen === undefined
      ? { ...previewed, warnings: [`no node fits: ${whyNone(need)}`, ...previewed.warnings] }
      : previewed
  }

  const preview = (request: PlacementRequest): Result.Result<PlacementPreview, NotFound> => {
    const need = needOf(request)
    const { node_id } = request
    if (node_id === undefined) return Result.succeed(previewAnywhere(need))
    return Result.map(find(node_id), ({ candidate, node }) => {
      const { alone: _, ...own } = { ...need, locations: [] }
      const misfits = misfitsOf(node, candidate, own, true)
      const chosen = misfits.length === 0 ? node_id : undefined
      const previewed = previewOf([{ candidate, misfits }], chosen, orderOf(strategy))
      return node.record?.drained === true
        ? { ...previewed, warnings: [`the node is drained: ${node_id}`] }
        : previewed
    })
  }

  const whyNot = (request: PlacementRequest, found: AvailableCapacity | undefined): string | undefined => {
    if (found === undefined) return "the node is gone"
    const { capacity, connected, drained, has_blueprint } = found
    const { alone, ...need } = needOf(request)
    if (!connected) return "the node is not connected"
    if (request.node_id === undefined && drained) return "the node is drained"
    if (request.node_id === undefined && alone !== undefined && has_blueprint)
      return `the node has a server of ${alone}`
    const [short] = shortages({ ...freeOf(capacity, found, options), ports: need.ports }, need)
    return short === undefined ? undefined : `the node is without ${short.needed}`
  }

  const freeDisk = (id: NodeId): number => {
    const node = fleet.get(id)
    return node?.record === undefined
      ? Number.POSITIVE_INFINITY
      : freeOf(node.record.capacity, node.committed, options).disk_bytes
  }

  return { choose, freeDisk, preview, whyNot }
}
