/** The rules and the order of placements, without I/O (spec 2.4). */
import type { NodeId } from "../../../contract/domain/Id.ts"
import type { RuntimeKind } from "../../../contract/domain/Node.ts"

/** The free resources of a node: bytes, and the most ports that one of its addresses has. */
export interface Room {
  readonly memory_bytes: number
  readonly disk_bytes: number
  readonly ports: number
}

export type Compare<K> = (a: K, b: K) => number

/**
 * - `spread`: the lowest share of committed memory
 * - `binpack`: the highest share of committed memory with which the server still fits
 * - `round-robin`: one after the other, by name
 */
export type Strategy = "spread" | "binpack" | "round-robin"

/** The sort key of nodes. `share` is committed memory over the node's memory. */
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
  /** Whether it offers no plain processes because no uid is free. Default false. */
  readonly lacksUids?: boolean
  /** The free resources, overcommitment included. */
  readonly room: Room
  readonly blueprints: ReadonlyMap<string, number>
}

export interface Need extends Room {
  readonly runtimes: ReadonlyArray<RuntimeKind>
  /** Any of these locations; empty allows all. */
  readonly locations: ReadonlyArray<string>
  /** Excludes nodes with a server of this blueprint (anti-affinity). */
  readonly alone?: string
  readonly except?: ReadonlyArray<NodeId>
  /** The node that the server leaves: excluded, and no reason of a refusal. */
  readonly from?: NodeId
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** By name, then id, in code units: the order of lists (spec 2.1). */
export const byName: Compare<Pick<Rank, "name" | "id">> = (a, b) =>
  byText(a.name, b.name) || byText(a.id, b.id)

/** The order in which a strategy tries nodes. Ties go to fewer servers, then name, then id. */
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

/** Whether the node may offer one of the runtimes once a uid is free. */
export const needsUid = (
  { lacksUids = false }: Pick<Candidate, "lacksUids">,
  { runtimes }: Pick<Need, "runtimes">
): boolean => lacksUids && runtimes.includes("process")

export const runs = (node: Pick<Candidate, "runtimes">, need: Pick<Need, "runtimes">): boolean =>
  need.runtimes.some((runtime) => node.runtimes.includes(runtime))

const fits = (node: Candidate, need: Need): boolean =>
  node.room.memory_bytes >= need.memory_bytes &&
  node.room.disk_bytes >= need.disk_bytes &&
  node.room.ports >= need.ports &&
  runs(node, need) &&
  (need.locations.length === 0 || need.locations.includes(node.location)) &&
  (need.alone === undefined || !node.blueprints.has(need.alone)) &&
  node.id !== need.from &&
  need.except?.includes(node.id) !== true

const turnOf = ({ locations, runtimes }: Need): string => JSON.stringify([runtimes, locations])

export const makeChooser = (strategy: Strategy) => {
  const compare = orderOf(strategy)
  /** Round-robin: the last chosen node per kind of need, so that needs do not skip each other's nodes. */
  const turns = new Map<string, Rank>()

  /** Returns the result of {@link choose} without a change of turns. */
  const preview = (candidates: Iterable<Candidate>, need: Need): Candidate | undefined => {
    const last = strategy === "round-robin" ? turns.get(turnOf(need)) : undefined
    let first: Candidate | undefined
    let next: Candidate | undefined
    for (const one of candidates) {
      if (!fits(one, need)) continue
      if (first === undefined || compare(one, first) < 0) first = one
      const isLater = last !== undefined && byName(one, last) > 0
      if (isLater && (next === undefined || byName(one, next) < 0)) next = one
    }
    return next ?? first
  }
  const choose = (candidates: Iterable<Candidate>, need: Need): Candidate | undefined => {
    const chosen = preview(candidates, need)
    if (chosen !== undefined && strategy === "round-robin") turns.set(turnOf(need), chosen)
    return chosen
  }
  return { choose, preview }
}
