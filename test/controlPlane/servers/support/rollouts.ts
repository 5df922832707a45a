/** Rollouts over servers of a fake node. */
import { Effect } from "effect"
import type { CreateRollout } from "../../../../src/contract/api/BlueprintsGroup.ts"
import type { Rollout } from "../../../../src/contract/domain/Rollout.ts"
import { until } from "../../../support/eventually.ts"
import { branded } from "../../../support/ids.ts"
import { definition } from "../../../support/samples.ts"
import { makeHarness, request } from "./harness.ts"

type Harness = Effect.Success<ReturnType<typeof makeHarness>>
export type Plane = Effect.Success<ReturnType<Harness["start"]>>

const one = definition({ version: "1" })
const two = definition({ version: "2" })

export const over = (
  ids: ReadonlyArray<string>,
  choices: Omit<CreateRollout, "selector"> = {}
): CreateRollout => branded<CreateRollout>({ selector: { ids }, ...choices })

/** Starts a control plane with servers of version 1, the first `up` of which run; today's version is 2. */
export const makeFleet = Effect.fnUntraced(function* (
  { up = 3, servers = up }: { readonly up?: number; readonly servers?: number } = {},
  options: Parameters<typeof makeHarness>[0] = {}
) {
  const harness = yield* makeHarness(options)
  harness.definitions.survival = one
  const plane = yield* harness.start()
  const ids: Array<string> = []
  for (let n = 0; n < servers; n++) {
    const { id } = yield* plane.servers.create(request({ start: n < up, node_id: "n1" }))
    yield* plane.becomes(id, n < up ? "running" : "offline")
    ids.push(id)
  }
  yield* plane.settled
  harness.definitions.survival = two
  return { ...harness, ...plane, ids }
})

export const reaches = (
  { rollouts }: Pick<Plane, "rollouts">,
  id: string,
  holds: (rollout: Rollout) => boolean
): Effect.Effect<Rollout> =>
  Effect.orDie(
    Effect.andThen(
      until(`rollout ${id} holds ${holds}`, Effect.orDie(Effect.map(rollouts.get(id), holds))),
      rollouts.get(id)
    )
  )

/** Waits until a rollout has a state. */
export const is = (plane: Pick<Plane, "rollouts">, id: string, state: Rollout["state"]) =>
  reaches(plane, id, (rollout) => rollout.state === state)

/** The version and status of each server, in the order of `ids`. */
export const tableOf = (plane: Pick<Plane, "records">, ids: ReadonlyArray<string>) =>
  Effect.map(plane.records, (records) =>
    ids.map((id) => {
      const found = records.find((record) => record.id === id)
      return found === undefined ? "gone" : `${found.definition.version} ${found.status}`
    })
  )

/** The definition of the process of a server on its node. */
export const versionOn = ({ daemon }: Pick<Harness, "daemon">, id: string) =>
  [...daemon.instances].find(([known]) => known === id)?.[1].spec.definition.version
