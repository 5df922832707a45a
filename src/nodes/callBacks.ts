import { Effect, FiberMap, Random, Schedule, type Scope } from "effect"
import type { DaemonError } from "../api/Daemon.ts"
import { elapsedMillis } from "../domain/elapsed.ts"
import { DaemonClient } from "./DaemonClient.ts"
import { Fleet } from "./Fleet.ts"
import type { FleetNode } from "./FleetNode.ts"
import { NodeRegistry } from "./NodeRegistry.ts"
import { TOKEN_REFUSED } from "./remoteCall.ts"

/** Between two calls of a node that cannot be called, in ms: twice as long each time, up to the longest. */
const PAUSE = 1000
const LONGEST_PAUSE = 10_000
/** A daemon may listen a moment after it has registered: for so long no failure counts, in ms. */
const GRACE = 1000
/**
 * A node that refuses its token for so long is made to register again, in ms. After some times twice as long each time,
 * up to the longest: it may be slow to read the answer to its registration, or another that answers in its place.
 */
const TOKEN_PATIENCE = 1500
const TIMES_AT_ONCE = 3
const LONGEST_PATIENCE = 60_000

const patienceAfter = (refusals: number) =>
  Math.min(TOKEN_PATIENCE * 2 ** Math.max(0, refusals + 1 - TIMES_AT_ONCE), LONGEST_PATIENCE)

/** Whether nodes on other machines can be called, found out by calling them. */
export interface CallBacks {
  /**
   * Calls a node until that has worked, and says what it has come to: with `anew`, because it has registered; else unless
   * that is being done.
   */
  begin(node_id: string, options?: { readonly anew: boolean }): void
}

const reasonOf = (error: DaemonError): string | undefined =>
  error._tag === "NodeUnreachable" ? error.reason : `${error.detail}. ${error.hint}`

/**
 * A node that registers says where it is; whether that is so shows only when it is called there. Until then no servers
 * are placed on it. Whoever learns that a call does not get through, calls it back as well: a node whose heartbeats
 * arrive and that has become unreachable gets no servers either.
 */
export const makeCallBacks: Effect.Effect<
  CallBacks,
  never,
  DaemonClient | Fleet | NodeRegistry | Scope.Scope
> = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const registry = yield* NodeRegistry
  const fibers = yield* FiberMap.make<string, void>()
  // Captured here: the context of a request, or of another call, is none of the calls'.
  const run = yield* FiberMap.runtime(fibers)<never>()

  /** By node: how many registrations' tokens it has refused on end. */
  const refusals = new Map<string, number>()

  const system = (node_id: string) => Effect.flatMap(daemons.of(node_id), (daemon) => daemon.system)

  /** Says what calling has come to, once for each time that it is something else. */
  const settle = Effect.fnUntraced(function* (node: FleetNode, token: string, now: string | null) {
    const before = node.record?.unreachable
    if (before === now || !(yield* registry.setUnreachable(node.id, token, now))) return
    if (now !== null) {
      yield* Effect.logWarning(`node ${node.id} cannot be called, and gets no servers until it can: ${now}`)
    } else if (before !== "") {
      yield* Effect.logInfo(`node ${node.id} can be called, and gets servers`)
    }
  })

  const call = Effect.fnUntraced(function* (node_id: string) {
    // Another replica may have taken its registration.
    yield* registry.refresh(node_id)
    const token = fleet.get(node_id)?.record?.token
    const since = yield* elapsedMillis
    let said = false
    for (let pause = PAUSE; ; pause = Math.min(pause * 2, LONGEST_PAUSE)) {
      const node = fleet.get(node_id)
      const record = node?.record
      // Who takes the next registration calls it then; what another replica has found out counts as well.
      if (record === undefined) refusals.delete(node_id)
      if (node === undefined || record === undefined || record.token !== token || !node.connected) return
      if (said && record.unreachable === null) return
      const answer = yield* Effect.result(system(node_id))
      if (answer._tag === "Success") {
        refusals.delete(node_id)
        return yield* settle(node, token, null)
      }
      const why = reasonOf(answer.failure)
      const elapsed = (yield* elapsedMillis) - since
      const refused = refusals.get(node_id) ?? 0
      if (why !== undefined && elapsed >= (why === TOKEN_REFUSED ? patienceAfter(refused) : GRACE)) {
        yield* settle(node, token, `${record.url}: ${why}`)
        said = true
        if (why === TOKEN_REFUSED) {
          refusals.set(node_id, refused + 1)
          // The answer to its last registration did not reach it, or that of an earlier one did after it: its next
          // heartbeat is answered with "register first".
          return yield* registry.expel(node_id, token)
        }
      }
      yield* Effect.sleep(pause * (yield* Random.nextBetween(0.8, 1.2)))
    }
  })

  const patiently = (node_id: string) =>
    call(node_id).pipe(
      Effect.tapError((error) => Effect.logDebug(`node ${node_id} is called later: ${error.detail}`)),
      Effect.retry({ schedule: Schedule.spaced(PAUSE) }),
      Effect.catchDefect((defect) => Effect.logError(`node ${node_id} was not called back`, defect))
    )

  return {
    begin: (node_id, options) =>
      void run(node_id, patiently(node_id), { onlyIfMissing: options?.anew !== true })
  }
})
