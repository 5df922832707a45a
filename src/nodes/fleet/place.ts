/** The rules and the order of placements, without I/O (node-protocol, "Placement and ports"). */
import type { NodeId } from "../../domain/Id.ts"
import type { RuntimeKind } from "../../domain/Node.ts"
import { type Compare, hasRoom, type Room } from "./OrderedTree.ts"

/**
 * - `spread`: the lowest share of committed memory
 * - `binpack`: the highest share of committed memory with which the server still fits
 * - `round-robin`: one after the other, by name
 */
export type Strategy = "spread" | "binpack" | "round-robin"

/** The sort key of nodes; `share` is committed memory over the node's memory. */
export interface Rank {
  readonly share: number
  readonly servers: number
  readonly name: string
  readonly id: NodeId
}

/** A node that can get servers now: connected and not drained. */
export interface Candidate extends Rank {
  readonly location: string
  readonly runtimes: ReadonlyArray<RuntimeKind>
  /** The free resources, overcommitment included. */
  readonly room: Room
  /** Number of servers by blueprint. */
  readonly blueprints: ReadonlyMap<string, number>
}

/** The requirements of a server. */
export interface Need extends Room {
  /** Any of these runtimes. */
  readonly runtimes: ReadonlyArray<RuntimeKind>
  /** Any of these locations; empty: all. */
  readonly locations: ReadonlyArray<string>
  /** Excludes nodes with a server of this blueprint (anti-affinity). */
  readonly alone?: string
  /** Ids of excluded nodes. */
  readonly except?: ReadonlyArray<NodeId>
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** By name, then id, in code units: the order of lists (contract 4.2). */
export const byName: Compare<Pick<Rank, "name" | "id">> = (a, b) =>
  byText(a.name, b.name) || byText(a.id, b.id)

/** The order in which a strategy tries nodes; the first that fits is chosen. Ties: fewer servers, name, id. */
export const orderOf = (strategy: Strategy): Compare<Rank> => {
  switch (strategy) {
    case "spread":
      return (a, b) => a.share - b.share || a.servers - b.servers || byName(a, b)
    case "binpack":
      return (a, b) => b.share - a.share || a.servers - b.servers || byName(a, b)
    case "round-robin":
      return byName
  }
}

const MIB = 1024 * 1024
const MB = 1_000_000

/** Returns what a node with `room` lacks, in words that follow "without"; undefined: `need` fits. */
export const shortage = (room: Room, need: Room): string | undefined => {
  if (hasRoom(room, need)) return undefined
  if (room.memory_bytes < need.memory_bytes) return `${Math.ceil(need.memory_bytes / MIB)} MiB of memory free`
  if (room.disk_bytes < need.disk_bytes) return `${Math.ceil(need.disk_bytes / MB)} MB of disk free`
  return need.ports === 1 ? "a free port" : `${need.ports} free ports on one address`
}

/** Whether the node offers one of the runtimes. */
export const runs = (node: Pick<Candidate, "runtimes">, need: Pick<Need, "runtimes">): boolean =>
  need.runtimes.some((runtime) => node.runtimes.includes(runtime))

/** Returns why a candidate does not fit, in a few words; undefined: it fits. */
export const misfit = (node: Candidate, need: Need): string | undefined => {
  if (need.except?.includes(node.id) === true) return "with files of it to delete first"
  if (need.locations.length > 0 && !need.locations.includes(node.location)) return "in another location"
  if (!runs(node, need)) return `without ${need.runtimes.join(" or ")}`
  if (need.alone !== undefined && node.blueprints.has(need.alone))
    return `with a server of ${need.alone} already`
  const short = shortage(node.room, need)
  return short === undefined ? undefined : `without ${short}`
}

/** Sums up the reasons of all nodes: `3 nodes: 1 drained, 2 without 4096 MiB of memory free.` */
export const summarize = (reasons: ReadonlyArray<string>): string => {
  if (reasons.length === 0) return "No node has registered yet; start one with `muster node`."
  const counts = new Map<string, number>()
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1)
  const parts = [...counts]
    .toSorted(([a, n], [b, m]) => m - n || byText(a, b))
    .map(([reason, count]) => `${count} ${reason}`)
  const nodes = reasons.length === 1 ? "1 node" : `${reasons.length} nodes`
  const advice = counts.has("drained")
    ? "Make room, add a node, or put a drained one back (PATCH /api/nodes/:node/drained)."
    : "Make room or add a node."
  const unreachable = counts.has("unreachable") ? " `muster nodes list` has the reason." : ""
  return `${nodes}: ${parts.join(", ")}. ${advice}${unreachable}`
}
