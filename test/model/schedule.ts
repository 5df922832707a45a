/** The schedule of faults, computed from a seed before the run, so that the same seed injects the same faults. Pure. */
import type { Random } from "../support/random.ts"

export const faultKinds = [
  "replica-killed",
  "replica-terminated",
  "replica-frozen",
  "connections-dropped",
  "connections-swallowed",
  "connections-delayed",
  "clock-ahead",
  "clock-behind",
  "database-killed",
  "database-stopped",
  "database-frozen",
  "node-cut",
  "node-killed",
  "node-wiped",
  "node-mischief"
] as const
export type FaultKind = (typeof faultKinds)[number]

/** The target of a kind of fault; faults of one target follow one another. */
export type TargetKind = "replica" | "connections" | "clock" | "database" | "node"

export interface PlannedFault {
  /** Milliseconds since the start. */
  readonly at: number
  /** Milliseconds until it is healed. */
  readonly lasts: number
  readonly kind: FaultKind
  /** Index of the replica or node; 0 for the database and the clock, of which there is one. */
  readonly target: number
}

interface Profile {
  readonly target: TargetKind
  /** Relative frequency. */
  readonly weight: number
  /** Minimum and maximum duration in ms. */
  readonly least: number
  readonly most: number
}

/**
 * Durations exceed the limits that matter: 5 s and 8 s after which a frozen leader loses its leadership, the timeouts
 * of the database, and those after which a node is lost and given up.
 */
const profiles: Readonly<Record<FaultKind, Profile>> = {
  "replica-killed": { target: "replica", weight: 5, least: 0, most: 2_500 },
  "replica-terminated": { target: "replica", weight: 3, least: 0, most: 1_000 },
  "replica-frozen": { target: "replica", weight: 4, least: 200, most: 11_000 },
  "connections-dropped": { target: "connections", weight: 3, least: 50, most: 3_000 },
  "connections-swallowed": { target: "connections", weight: 3, least: 200, most: 8_000 },
  "connections-delayed": { target: "connections", weight: 2, least: 1_000, most: 6_000 },
  "clock-ahead": { target: "clock", weight: 1, least: 1_000, most: 8_000 },
  "clock-behind": { target: "clock", weight: 1, least: 1_000, most: 8_000 },
  "database-killed": { target: "database", weight: 2, least: 0, most: 2_500 },
  "database-stopped": { target: "database", weight: 1, least: 0, most: 2_500 },
  "database-frozen": { target: "database", weight: 2, least: 100, most: 5_000 },
  "node-cut": { target: "node", weight: 5, least: 200, most: 13_000 },
  "node-killed": { target: "node", weight: 4, least: 0, most: 12_000 },
  "node-wiped": { target: "node", weight: 1, least: 0, most: 3_000 },
  "node-mischief": { target: "node", weight: 6, least: 1_000, most: 8_000 }
}

export const targetOf = (kind: FaultKind): TargetKind => profiles[kind].target

/** Maximum time between the starts of two faults. */
const GAP_MILLIS = 2_400

/** A unique name of each target. */
export const targetName = ({ kind, target }: PlannedFault): string => `${targetOf(kind)} ${target}`

const lots: ReadonlyArray<FaultKind> = faultKinds.flatMap((kind) =>
  Array.from({ length: profiles[kind].weight }, () => kind)
)

/** @param millis duration in which faults are injected; by its end every fault is being healed */
export const schedule = (
  random: Random,
  millis: number,
  counts: { readonly replicas: number; readonly nodes: number }
): ReadonlyArray<PlannedFault> => {
  const busyUntil = new Map<string, number>()
  const targets = {
    replica: counts.replicas,
    connections: counts.replicas,
    clock: 1,
    database: 1,
    node: counts.nodes
  }
  const planned: Array<PlannedFault> = []
  for (let at = random.below(GAP_MILLIS); at < millis; at += random.below(GAP_MILLIS)) {
    const kind = lots[random.below(lots.length)] ?? "replica-killed"
    const { least, most, target: what } = profiles[kind]
    const target = random.below(targets[what])
    // Short faults are the most frequent.
    const part = random.below(1_000) / 1_000
    const lasts = Math.min(Math.round(least + (most - least) * part * part), millis - at)
    const fault: PlannedFault = { at, lasts, kind, target }
    if ((busyUntil.get(targetName(fault)) ?? 0) > at) continue
    busyUntil.set(targetName(fault), at + lasts)
    planned.push(fault)
  }
  return planned
}
