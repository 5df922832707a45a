/** The choice of a node for a server, and the reasons against the others. Reserves nothing, and never waits. */

import { type Option, Result } from "effect"
import { type NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { NodeFit } from "../../contract/domain/Node.ts"
import { notCallable } from "../../contract/domain/Node.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import type { AvailableCapacity } from "../store/repos/CapacityRepo.ts"
import { type Fleet, nodeNotFound } from "./fleet/Fleet.ts"
import type { FleetNode } from "./fleet/FleetNode.ts"
import { type Misfit, misfits, shortages, summarize } from "./fleet/misfit.ts"
import {
  type Candidate,
  type Compare,
  makeChooser,
  type Need,
  needsUid,
  orderOf,
  type Rank,
  runs,
  type Strategy
} from "./fleet/place.ts"
import { needOf, type PlacementRequest } from "./placementRequest.ts"

export interface LoadBalancerOptions {
  /** Default `spread`. */
  readonly strategy?: Strategy
  /** The capacity for placements as a multiple of the node's capacity; default 1. */
  readonly memoryOvercommit?: number
  readonly diskOvercommit?: number
}

const MOST_CANDIDATES = 100

/** The outcome of a placement that is not made. */
export interface PlacementPreview {
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

export const previewOf = (
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

/** Refusals that are cached until a node changes, so that a full fleet is not searched for each request. */
const KEPT_REASONS = 100

export const makePlacementChoice = (fleet: Fleet["Service"], options: LoadBalancerOptions) => {
  const { strategy = "spread", memoryOvercommit = 1, diskOvercommit = 1 } = options
  const chooser = makeChooser(strategy)
  const candidates = new Map<NodeId, Candidate>()
  const reasons = new RecentMap<string, string>(KEPT_REASONS)

  const candidateOf = (node: FleetNode): Candidate | undefined => {
    const { record, committed } = node
    if (record === undefined) return undefined
    const { memory_bytes, disk_bytes } = record.capacity
    return {
      id: node.id,
      name: record.name,
      location: record.location,
      runtimes: record.runtimes,
      lacksUids: record.system.lacks_uids === true,
      share: memory_bytes > 0 ? committed.memory_bytes / memory_bytes : 1,
      servers: node.servers,
      room: {
        memory_bytes: Math.floor(memory_bytes * memoryOvercommit) - committed.memory_bytes,
        disk_bytes: Math.floor(disk_bytes * diskOvercommit) - committed.disk_bytes,
        ports: node.ports.mostOnOneAddress
      },
      blueprints: node.blueprints
    }
  }

  const update = (node: FleetNode) => {
    reasons.clear()
    const candidate = node.usable && node.record?.drained === false ? candidateOf(node) : undefined
    if (candidate === undefined) candidates.delete(node.id)
    else candidates.set(node.id, candidate)
  }

  /** @param isNamed whether the caller names the node: it may then be drained */
  const misfitsOf = (node: FleetNode, need: Need, isNamed = false): ReadonlyArray<Misfit> => {
    const candidate = candidateOf(node)
    if (!node.connected || candidate === undefined) return [{ kind: "away", reason: "not connected" }]
    if (!node.usable) return [{ kind: "unreachable", reason: "unreachable" }]
    const drained: ReadonlyArray<Misfit> =
      node.record?.drained === true && !isNamed ? [{ kind: "drained", reason: "drained" }] : []
    return [...drained, ...misfits(candidate, need)]
  }
  const listed = () => [...fleet.nodes].filter((node) => node.listed !== undefined)
  const whyNone = (need: Need): string => {
    const key = JSON.stringify(need)
    const why =
      reasons.get(key) ??
      summarize(
        listed()
          .filter(({ id }) => id !== need.from)
          .map((node) => ({
            name: node.record?.name ?? node.id,
            misfit: misfitsOf(node, need)[0] ?? { kind: "changing" as const, reason: "changing" }
          }))
          .toSorted((one, other) => (one.name < other.name ? -1 : 1)),
        need
      )
    reasons.set(key, why)
    return why
  }

  const named = (id: NodeId, need: Need): Result.Result<FleetNode, NotFound | Unavailable> => {
    const node = fleet.get(id)
    const candidate = node?.listed === undefined ? undefined : candidateOf(node)
    if (node === undefined || candidate === undefined) return Result.fail(nodeNotFound(fleet, id))
    if (!node.connected) return Result.fail(Unavailable.nodeNotConnected(id))
    if (node.unreachable !== undefined) {
      return Result.fail(Unavailable.nodeNotConnected(id, notCallable(node.unreachable)))
    }
    if (!runs(candidate, need) && needsUid(candidate, need))
      return Result.fail(Unavailable.nodeFull(id, "Every uid of its MUSTER_PROCESS_UIDS is in use"))
    if (!runs(candidate, need)) {
      return Result.fail(
        Unavailable.nodeCannotRun(id, candidate.runtimes, need.runtimes, "name another node or none")
      )
    }
    const [short] = shortages(candidate.room, need)
    if (short === undefined) return Result.succeed(node)
    return Result.fail(Unavailable.nodeFull(id, `It is without ${short.needed}: it has ${short.free}`))
  }

  const anywhere = (need: Need): Result.Result<FleetNode, Unavailable> => {
    const chosen = chooser.choose(candidates.values(), need)
    const node = chosen === undefined ? undefined : fleet.get(chosen.id)
    return node === undefined ? Result.fail(Unavailable.noNodes(whyNone(need))) : Result.succeed(node)
  }

  const choose = (
    node_id: NodeId | undefined,
    need: Need
  ): Result.Result<FleetNode, NotFound | Unavailable> =>
    node_id === undefined ? anywhere(need) : named(node_id, need)

  const preview = (request: PlacementRequest): Result.Result<PlacementPreview, NotFound> => {
    const need = needOf(request)
    const { node_id } = request
    if (node_id === undefined) {
      const chosen = chooser.preview(candidates.values(), need)?.id
      const nodes = listed().flatMap((node) => {
        const candidate = candidateOf(node)
        return candidate === undefined ? [] : [{ candidate, misfits: misfitsOf(node, need) }]
      })
      const previewed = previewOf(nodes, chosen, orderOf(strategy))
      return Result.succeed(
        chosen === undefined
          ? { ...previewed, warnings: [`no node fits: ${whyNone(need)}`, ...previewed.warnings] }
          : previewed
      )
    }
    const node = fleet.get(node_id)
    const candidate = node?.listed === undefined ? undefined : candidateOf(node)
    if (node === undefined || candidate === undefined) return Result.fail(nodeNotFound(fleet, node_id))
    const { alone: _, ...own } = { ...need, locations: [] }
    const misfits = misfitsOf(node, own, true)
    const chosen = misfits.length === 0 ? node_id : undefined
    const previewed = previewOf([{ candidate, misfits }], chosen, orderOf(strategy))
    return Result.succeed(
      node.record?.drained === true
        ? { ...previewed, warnings: [`the node is drained: ${node_id}`] }
        : previewed
    )
  }

  const whyNot = (request: PlacementRequest, found: Option.Option<AvailableCapacity>): string | undefined => {
    if (found._tag === "None") return "the node is gone"
    const { capacity, connected, disk_bytes, drained, has_blueprint, memory_bytes } = found.value
    const { alone, ...need } = needOf(request)
    if (!connected) return "the node is not connected"
    if (request.node_id === undefined && drained) return "the node is drained"
    if (request.node_id === undefined && alone !== undefined && has_blueprint)
      return `the node has a server of ${alone}`
    const room = {
      memory_bytes: Math.floor(capacity.memory_bytes * memoryOvercommit) - memory_bytes,
      disk_bytes: Math.floor(capacity.disk_bytes * diskOvercommit) - disk_bytes,
      ports: need.ports
    }
    const [short] = shortages(room, need)
    return short === undefined ? undefined : `the node is without ${short.needed}`
  }

  return { choose, preview, update, whyNot }
}
