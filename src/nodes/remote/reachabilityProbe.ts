import { Effect, FiberMap, Random, Schedule, type Scope } from "effect"
import { RegistrationRequired } from "../../api/ControlPlane.ts"
import type { DaemonError } from "../../api/Daemon.ts"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { DaemonClient } from "../DaemonClient.ts"
import { Fleet } from "../fleet/Fleet.ts"
import type { FleetNode } from "../fleet/FleetNode.ts"
import { NodeRegistry } from "../NodeRegistry.ts"
import { TOKEN_REFUSED } from "./remoteCall.ts"

/** Between two calls of a node that cannot be called, in ms: twice as long each time, up to the longest. */
const PAUSE = 1000
const LONGEST_PAUSE = 10_000
/** A daemon may listen a moment after it has registered: for so long no failure counts, in ms. */
const GRACE = 1000
/**
 * A node whose heartbeats come is called after so long, give or take a fifth, in ms, where nobody else has called it:
 * a firewall may have closed what was open.
 */
const QUIET = 30_000
/**
 * A node that refuses its token for so long is made to register again, in ms. After some times twice as long each time,
 * up to the longest: it may be slow to read the answer to its registration, or another answers in its place.
 */
const TOKEN_PATIENCE = 1500
const TIMES_AT_ONCE = 3
const LONGEST_PATIENCE = 300_000

const patienceAfter = (refusals: number) =>
  Math.min(TOKEN_PATIENCE * 2 ** Math.max(0, refusals + 1 - TIMES_AT_ONCE), LONGEST_PATIENCE)

/** Whether nodes on other machines can be called, found out by calling them. */
export interface ReachabilityProbe {
  /**
   * Calls a node until that has worked, and says what it has come to: with `anew`, because it has registered; else unless
   * that is being done.
   */
  begin(node_id: string, options?: { readonly anew: boolean }): void
  /** A call to a node has worked: for a while it need not be called to find that out. */
  answered(node_id: string): Effect.Effect<void>
  /**
   * A heartbeat of a node came here: it is called, unless a call has worked lately. Answers why it cannot be called, as
   * far as that is known.
   *
   * @error RegistrationRequired it does not know the token of its last registration
   */
  heard(node_id: string): Effect.Effect<string | undefined, RegistrationRequired>
}

const reasonOf = (error: DaemonError): string | undefined =>
  error._tag === "NodeUnreachable" ? error.reason : `${error.detail}. ${error.hint}`

/**
 * A node that registers says where it is; whether that is so shows only when it is called there. Until then no servers
 * are placed on it. Whoever learns that a call does not get through, calls it back as well: a node whose heartbeats
 * arrive and that has become unreachable gets no servers either.
 */
export const makeReachabilityProbe: Effect.Effect<
  ReachabilityProbe,
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
  /** By node: the token that it is to replace by registering again, and whether it was told why before. */
  const stale = new Map<string, { readonly token: string; told: boolean }>()
  /** By node: when it is to be called next where nobody else has called it, by the clock of {@link elapsedMillis}. */
  const due = new Map<string, number>()

  yield* Effect.acquireRelease(
    Effect.sync(() =>
      fleet.watch(({ id, record }) => {
        if (record !== undefined) return
        for (const known of [refusals, stale, due]) known.delete(id)
      })
    ),
    (stop) => Effect.sync(stop)
  )

  const system = (node_id: string) => Effect.flatMap(daemons.of(node_id), (daemon) => daemon.system)

  const answered = Effect.fnUntraced(function* (node_id: string) {
    const jitter = yield* Random.nextBetween(0.8, 1.2)
    due.set(node_id, (yield* elapsedMillis) + QUIET * jitter)
  })

  /** Who else is said to be where this node is said to be. */
  const sameAddress = ({ id, record }: FleetNode): string => {
    const others = [...fleet.nodes].filter((node) => node.id !== id && node.listed?.url === record?.url)
    return others.length === 0 ? "" : `; it is now that of node ${others.map((node) => node.id).join(", ")}`
  }

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

  /** @param wasFine nothing is known to be wrong with it: where the first call works, nothing is read or written */
  const call = Effect.fnUntraced(function* (node_id: string, wasFine: boolean) {
    // Another replica may have taken its registration.
    let isBehind = true
    const catchUp = Effect.suspend(() => {
      if (!isBehind) return Effect.void
      isBehind = false
      return registry.refresh(node_id)
    })
    if (!wasFine) yield* catchUp
    const token = fleet.get(node_id)?.record?.token
    const since = yield* elapsedMillis
    let said = false
    let isStale = false
    for (let pause = PAUSE; ; pause = Math.min(pause * 2, LONGEST_PAUSE)) {
      const node = fleet.get(node_id)
      const record = node?.record
      // Who takes the next registration calls it then; what another replica has found out counts as well.
      if (node === undefined || record === undefined || record.token !== token || !node.connected) return
      if (said && record.unreachable === null) return
      const answer = yield* Effect.result(system(node_id))
      if (answer._tag === "Success") {
        refusals.delete(node_id)
        stale.delete(node_id)
        yield* answered(node_id)
        return yield* settle(node, token, null)
      }
      yield* catchUp
      const why = reasonOf(answer.failure)
      const elapsed = (yield* elapsedMillis) - since
      const refused = refusals.get(node_id) ?? 0
      const isRefused = why === TOKEN_REFUSED
      if (why !== undefined && elapsed >= (isRefused ? TOKEN_PATIENCE : GRACE)) {
        yield* settle(node, token, `${record.url}: ${why}${isRefused ? sameAddress(node) : ""}`)
        said = true
      }
      // The answer to its last registration did not reach it, or that of an earlier one did after it.
      if (isRefused && !isStale && elapsed >= patienceAfter(refused)) {
        isStale = true
        refusals.set(node_id, refused + 1)
        stale.set(node_id, { token, told: false })
      }
      yield* Effect.sleep(pause * (yield* Random.nextBetween(0.8, 1.2)))
    }
  })

  const patiently = (node_id: string, wasFine: boolean) =>
    call(node_id, wasFine).pipe(
      Effect.tapError((error) => Effect.logDebug(`node ${node_id} is called later: ${error.detail}`)),
      Effect.retry({ schedule: Schedule.spaced(PAUSE) }),
      Effect.catchDefect((defect) => Effect.logError(`node ${node_id} was not called back`, defect))
    )

  const begin: ReachabilityProbe["begin"] = (node_id, options) =>
    void run(node_id, patiently(node_id, false), { onlyIfMissing: options?.anew !== true })

  /** Whether the node is to register again. The first time it is told only why it cannot be called. */
  const isToRegister = ({ id, record }: FleetNode): boolean => {
    const known = stale.get(id)
    if (known === undefined) return false
    if (known.token !== record?.token) stale.delete(id)
    const { told } = known
    known.told = true
    return told && stale.has(id)
  }

  const heard = Effect.fnUntraced(function* (node_id: string) {
    const node = fleet.get(node_id)
    if (node?.unreachable !== undefined) {
      begin(node_id)
      if (isToRegister(node)) return yield* new RegistrationRequired({ node_id })
      return node.uncalled ? undefined : node.unreachable
    }
    const at = due.get(node_id)
    // Whoever has taken its registration has called it then.
    if (at === undefined) yield* answered(node_id)
    else if (at <= (yield* elapsedMillis)) run(node_id, patiently(node_id, true), { onlyIfMissing: true })
    return undefined
  })

  return { begin, answered, heard }
})
