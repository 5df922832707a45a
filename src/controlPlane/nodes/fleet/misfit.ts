/** The reasons that nodes do not fit, in words (spec 3.3). */

import { named } from "../../../contract/domain/errors.ts"
import { type Candidate, type Need, needsUid, type Room, runs } from "./place.ts"

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
