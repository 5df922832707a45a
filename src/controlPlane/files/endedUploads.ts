/** Removes the unfinished uploads of keys that are revoked or have expired (spec 10.8). */
import { Clock, Effect, Layer, Schedule } from "effect"
import type { NodeId } from "../../contract/domain/Id.ts"
import { MOST_OWNERS } from "../../contract/nodeApi/NodeUploads.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { Leadership } from "../store/Leadership.ts"

const EVERY = "10 seconds"
/** Time in which the last requests of a key end at every replica, in ms. */
const SETTLED = 5_000
/** Nodes expire each upload a day after its last byte, in ms. */
const LONGEST = 25 * 3600 * 1000
/** Nodes that are called at a time. */
const AT_ONCE = 8

/** The work of one term of the leader: one call for each node and key. A node that is away is called later. */
const makeRounds = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const keys = yield* ApiKeys
  const done = new Map<NodeId, ReadonlySet<string>>()

  const removeOn = Effect.fnUntraced(
    function* (id: NodeId, ended: ReadonlyArray<string>) {
      const known = done.get(id)
      const owners = ended.filter((key) => known?.has(key) !== true).slice(0, MOST_OWNERS)
      if (owners.length === 0) return
      const { files } = yield* daemons.of(id)
      yield* files.uploads.endOf(owners)
      const old = ended.filter((key) => known?.has(key) === true)
      done.set(id, new Set([...old, ...owners]))
    },
    (removed, id) =>
      Effect.catch(removed, (error) =>
        Effect.annotateLogs(Effect.logDebug(`uploads of ended keys were not removed: ${error._tag}`), {
          node_id: id
        })
      )
  )

  const round = Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const ended = yield* keys.endedBetween(now - LONGEST, now - SETTLED)
    const nodes = [...fleet.nodes].filter(({ connected }) => connected)
    yield* Effect.forEach(nodes, ({ id }) => removeOn(id, ended), { concurrency: AT_ONCE, discard: true })
  })
  return round.pipe(
    Effect.catch(({ detail }) => Effect.logDebug(`the keys of uploads cannot be read: ${detail}`)),
    Effect.repeat(Schedule.spaced(EVERY))
  )
})

/** Runs on the leader. */
export const EndedUploads = Layer.effectDiscard(
  Effect.flatMap(Leadership, ({ whileLeader }) => whileLeader(Effect.flatMap(makeRounds, Effect.asVoid)))
)
