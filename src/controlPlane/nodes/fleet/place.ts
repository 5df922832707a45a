/** The rules and the order of placements, without I/O (spec 2.4). */

import { named } from "../../../contract/domain/errors.ts"
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

const MIB = 1024 * 1024
const MB = 1_000_000

type Resource = "memory" | "disk" | "ports"

/** A resource that a node lacks. `free` has the same words as `needed`. */
export interface Shortage {
  readonly resource: Resource
  readonly needed: string
  readonly free: string
  readonly free_amount: number
}

/** Why a node does not fit. `reason` follows the name of the node or a number of nodes. */
export interface Misfit {
  readonly kind:
    | Resource
    | "runtime"
    | "uids"
    | "location"
    | "anti-affinity"
    | "remains"
    | "drained"
    | "away"
    | "unreachable"
    | "changing"
  readonly reason: string
  readonly shortage?: Shortage
}

export interface Unfit {
  readonly name: string
  readonly misfit: Misfit
}

const freePorts = (count: number): string =>
  count === 1 ? "a free port" : `${count} free ports on one address`

export const shortages = (room: Room, need: Room): ReadonlyArray<Shortage> => {
  const inUnits = (bytes: number, unit: number) => Math.max(0, Math.floor(bytes / unit))
  const found: ReadonlyArray<readonly [Resource, number, number, string, string]> = [
    [
      "memory",
      room.memory_bytes,
      need.memory_bytes,
      `${Math.ceil(need.memory_bytes / MIB)} MiB of memory free`,
      `${inUnits(room.memory_bytes, MIB)} MiB`
    ],
    [
      "disk",
      room.disk_bytes,
      need.disk_bytes,
      `${Math.ceil(need.disk_bytes / MB)} MB of disk free`,
      `${inUnits(room.disk_bytes, MB)} MB`
    ],
    ["ports", room.ports, need.ports, freePorts(need.ports), String(room.ports)]
  ]
  return found.flatMap(([resource, free_amount, wanted, needed, free]) =>
    free_amount >= wanted ? [] : [{ resource, needed, free, free_amount }]
  )
}

const ofShortage = (shortage: Shortage): Misfit => ({
  kind: shortage.resource,
  reason: `without ${shortage.needed}`,
  shortage
})

/** Returns all reasons that a candidate does not fit. */
export const misfits = (node: Candidate, need: Need): ReadonlyArray<Misfit> => {
  const found: Array<Misfit> = []
  if (need.except?.includes(node.id) === true)
    found.push({ kind: "remains", reason: "with files of it to delete first" })
  if (need.locations.length > 0 && !need.locations.includes(node.location))
    found.push({ kind: "location", reason: "in another location" })
  if (!runs(node, need))
    found.push(
      needsUid(node, need)
        ? { kind: "uids", reason: "without a free uid" }
        : { kind: "runtime", reason: `without ${need.runtimes.join(" or ")}` }
    )
  if (need.alone !== undefined && node.blueprints.has(need.alone))
    found.push({ kind: "anti-affinity", reason: `with a server of ${need.alone} already` })
  return [...found, ...shortages(node.room, need).map(ofShortage)]
}

const NAMED = 3

const namesOf = (nodes: ReadonlyArray<Unfit>): string =>
  named(
    nodes.map(({ name }) => name),
    NAMED
  )

/** Returns `2 without 4096 MiB of memory free (a, b; the most is 1024 MiB, on b)`. */
const partOf = (reason: string, nodes: ReadonlyArray<Unfit>): string => {
  const roomiest = nodes.reduce((most, node) =>
    (node.misfit.shortage?.free_amount ?? 0) > (most.misfit.shortage?.free_amount ?? 0) ? node : most
  )
  const free = roomiest.misfit.shortage?.free
  const most =
    free === undefined ? "" : `; the most is ${free}${nodes.length === 1 ? "" : `, on ${roomiest.name}`}`
  return `${nodes.length} ${reason} (${namesOf(nodes)}${most})`
}

const advice = (kinds: ReadonlySet<Misfit["kind"]>, need: Need): string =>
  [
    ...(kinds.has("memory") || kinds.has("disk") ? ["Make room or add a node."] : []),
    ...(kinds.has("ports")
      ? [
          "Offer more ports: MUSTER_EMBEDDED_ALLOCATIONS of the service, or MUSTER_NODE_ALLOCATIONS of a daemon."
        ]
      : []),
    ...(kinds.has("uids")
      ? ["Set MUSTER_PROCESS_UIDS of a daemon to a larger range, or delete servers."]
      : []),
    ...(kinds.has("runtime")
      ? [
          need.runtimes.includes("docker")
            ? "Start a Docker engine on a node, and its daemon with MUSTER_NODE_RUNTIME=docker; or add such a node."
            : `Add a node with the runtime ${need.runtimes.join(" or ")}.`
        ]
      : []),
    ...(kinds.has("location") ? [`Add a node in ${need.locations.join(" or ")}.`] : []),
    ...(kinds.has("anti-affinity") ? ["Add a node: the blueprint allows one server a node."] : []),
    ...(kinds.has("drained") ? ["Put a drained node back: PATCH /api/nodes/:node/drained."] : []),
    ...(kinds.has("away") ? ["Start the daemon of a node that is not connected."] : []),
    ...(kinds.has("unreachable") ? ["`muster nodes list` has the reason of an unreachable node."] : []),
    ...(kinds.has("changing") || kinds.has("remains") ? ["Try again shortly."] : [])
  ].join(" ")

/** Sums up why no node fits, with names, the largest free amount and the next steps. */
export const summarize = (nodes: ReadonlyArray<Unfit>, need: Need): string => {
  if (nodes.length === 0) {
    return need.from === undefined
      ? "No node has registered yet; start one with `muster node`."
      : "No other node has registered; start one with `muster node`."
  }
  const parts = [...Map.groupBy(nodes, ({ misfit }) => misfit.reason)]
    .toSorted(([a, n], [b, m]) => m.length - n.length || (a < b ? -1 : 1))
    .map(([reason, group]) => partOf(reason, group))
  const kinds = new Set(nodes.map(({ misfit }) => misfit.kind))
  const count = nodes.length === 1 ? "1 node" : `${nodes.length} nodes`
  return `${count}: ${parts.join(", ")}. ${advice(kinds, need)}`
}
