import { Clock, Duration, Effect, Latch, type Scope } from "effect"
import type { NodeUsage } from "../../domain/Node.ts"
import { type HeardNode, NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { Fleet } from "../fleet/Fleet.ts"

/** What a replica notes of the signs of life that it gets, and learns of those that others get. */
export interface SharedHeartbeats {
  /** A sign of life of this boot of a node. */
  note(node_id: string, boot_id: string, usage: NodeUsage): void
  /** What the last look has read: another number each time that somebody has handed on that the node was heard. */
  beats(node_id: string): number
}

/** Time that counts at most between two looks, in looks: longer ones were late, or could not be made. */
const COUNTED = 2

/**
 * Hands on what this replica has heard, all of it in one statement, and looks what others have: who is heard, and what
 * they use. While the database is away what was heard waits.
 *
 * @param options.others    whether other replicas may hear nodes; with none, nothing is done while nothing is heard
 * @param options.every     between two looks
 * @param options.onHeard   a sign of life that another replica got
 * @param options.onLooked  milliseconds that have passed, as far as everybody could be heard in them
 */
export const shareHeartbeats = Effect.fnUntraced(function* (options: {
  readonly others: boolean
  readonly every: Duration.Duration
  readonly onHeard: (node_id: string) => void
  readonly onLooked: (millis: number) => void
}): Effect.fn.Return<SharedHeartbeats, never, Fleet | NodeRepo | Store | Scope.Scope> {
  const fleet = yield* Fleet
  const repo = yield* NodeRepo
  const store = yield* Store
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  const heard = new Map<string, Omit<HeardNode, "age"> & { readonly at: number }>()
  const beats = new Map<string, number>()
  /** Open while there is something to do. */
  const due = Latch.makeUnsafe(options.others)
  const rest = Effect.sync(() => {
    if (!options.others && heard.size === 0) due.closeUnsafe()
  })
  let looked = now()

  const handOn = Effect.gen(function* () {
    const taken = [...heard.values()].filter(({ node_id }) => fleet.get(node_id)?.record !== undefined)
    if (taken.length === 0) return heard.clear()
    yield* store.write(repo.recordHeartbeats(taken.map(({ at, ...rest }) => ({ ...rest, age: now() - at }))))
    for (const one of taken) if (heard.get(one.node_id) === one) heard.delete(one.node_id)
  })

  const look = Effect.gen(function* () {
    const rows = yield* store.read(repo.heartbeats)
    for (const row of rows) {
      if (beats.get(row.node_id) === row.beats) continue
      beats.set(row.node_id, row.beats)
      const node = fleet.get(row.node_id)
      if (node?.record?.boot_id !== row.boot_id) continue
      // What this replica has heard itself since is newer, and so may a good-bye be.
      if (!heard.has(row.node_id)) {
        const at = Math.max(row.heard_at, Date.parse(node.last_seen_at ?? "") || 0)
        fleet.hear(node, new Date(at).toISOString(), row.usage)
      }
      options.onHeard(row.node_id)
    }
    const since = now() - looked
    looked += since
    options.onLooked(Math.min(since, COUNTED * Duration.toMillis(options.every)))
  })

  const patiently = <A>(work: Effect.Effect<A, { readonly detail: string }>) =>
    Effect.catch(work, ({ detail }) => Effect.logDebug(`heartbeats wait: ${detail}`))
  yield* patiently(look)
  yield* Effect.andThen(rest, due.await).pipe(
    Effect.andThen(Effect.sleep(options.every)),
    Effect.andThen(patiently(handOn)),
    Effect.andThen(patiently(look)),
    Effect.catchDefect((defect) => Effect.logError("heartbeats were not shared", defect)),
    Effect.forever,
    Effect.forkScoped
  )

  return {
    note: (node_id, boot_id, usage) => {
      heard.set(node_id, { node_id, boot_id, usage, at: now() })
      due.openUnsafe()
    },
    beats: (node_id) => beats.get(node_id) ?? 0
  }
})
