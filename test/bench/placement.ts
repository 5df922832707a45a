/** Placements on fleets of 10 to 10,000 nodes, in process. */

import { Context, Effect, Layer } from "effect"
import { Fleet, type FleetState } from "../../src/controlPlane/nodes/fleet/Fleet.ts"
import { LoadBalancer } from "../../src/controlPlane/nodes/LoadBalancer.ts"
import { request } from "../controlPlane/nodes/support/fleet.ts"
import { node } from "../support/samples.ts"
import { median, print } from "./harness.ts"

const SIZES = [10, 100, 1_000, 10_000]
const ROUNDS = 7
const PLACEMENTS = 1_000
const SCANS = 20

const requests = Array.from({ length: PLACEMENTS }, (_, n) => request(`srv_${n}`))

/** Makes a fleet of `size` nodes with capacity for every placement. */
const fleetOf = Effect.fnUntraced(function* (size: number) {
  const context = yield* Layer.build(LoadBalancer.layer().pipe(Layer.provideMerge(Fleet.layer)))
  const fleet = Context.get(context, Fleet)
  for (let n = 0; n < size; n++) {
    const record = node(`node-${n}`)
    const allocations = record.allocations.map((one) => ({ ...one, ports: "10000-59999" }))
    fleet.put({ ...record, allocations, connected: true })
  }
  return { size, fleet, balancer: Context.get(context, LoadBalancer), placed: times(), scanned: times() }
})

const times = (): Array<number> => []

/** The same choice by a loop over all nodes: the lowest share of committed memory with capacity. */
const scan = (fleet: FleetState) => {
  let best: string | undefined
  let least = Number.POSITIVE_INFINITY
  for (const { id, connected, record, committed, ports } of fleet.nodes) {
    if (!connected || record === undefined || record.drained || ports.mostOnOneAddress < 1) continue
    const share = committed.memory_bytes / record.capacity.memory_bytes
    if (share < least) {
      least = share
      best = id
    }
  }
  return best
}

/** Returns the nanoseconds of one run of `effect`, averaged over `count` runs. */
const timed = <A, E>(effect: Effect.Effect<A, E>, count: number) =>
  Effect.gen(function* () {
    const began = process.hrtime.bigint()
    yield* effect
    return Number(process.hrtime.bigint() - began) / count
  })

export const placement = Effect.gen(function* () {
  const medians: Array<number> = []
  const measured = yield* Effect.forEach(SIZES, fleetOf)
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { balancer, fleet, placed, scanned } of measured) {
      const took = yield* timed(Effect.forEach(requests, balancer.place, { discard: true }), PLACEMENTS)
      const naive = yield* timed(
        Effect.sync(() => {
          for (let n = 0; n < SCANS; n++) scan(fleet)
        }),
        SCANS
      )
      yield* Effect.forEach(requests, ({ server_id }) => balancer.release(server_id), { discard: true })
      // The first round warms up.
      if (round === 0) continue
      placed.push(took)
      scanned.push(naive)
    }
  }
  for (const { size, placed, scanned } of measured) {
    medians.push(median(placed))
    yield* print({
      bench: "placement",
      figure: `place on ${size.toLocaleString("en")} nodes`,
      value: median(placed),
      unit: "ns",
      baseline: "choice by a loop over all nodes",
      baseline_value: median(scanned)
    })
  }
  yield* print({
    bench: "placement",
    figure: "growth from 10 to 10,000 nodes",
    value: medians.at(-1) ?? Number.NaN,
    unit: "ns",
    baseline: "place on 10 nodes",
    baseline_value: medians[0] ?? Number.NaN
  })
}).pipe(Effect.scoped)
