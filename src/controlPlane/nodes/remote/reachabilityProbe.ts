import { Effect, Latch, Random } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { RegistrationRequired } from "../../../contract/nodeApi/ControlPlaneApi.ts"
import type { DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { backoff } from "../../../shared/work/backoff.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import { makeWorkQueue } from "../../../shared/work/WorkQueue.ts"
import { DaemonClient } from "../DaemonClient.ts"
import { Fleet, watchFleet } from "../fleet/Fleet.ts"
import type { FleetNode } from "../fleet/FleetNode.ts"
import { NodeRegistry } from "../NodeRegistry.ts"
import { TOKEN_REFUSED } from "./remoteCall.ts"

/** Time after a registration in which failures do not count, in ms: a daemon may listen a moment later. */
const GRACE = 1000
/** A node is called after this long without a call, give or take a fifth, in ms: a firewall may block it. */
const QUIET = 30_000
/**
 * Time of refused tokens, in ms, after which a node must register, as the last response may be lost. It doubles up to
 * a bound, because another daemon may have the address.
 */
const TOKEN_TIMEOUT = 1500
const SHORT_TIMEOUTS = 3
const LONGEST_TIMEOUT = 300_000

const timeoutAfter = (refusals: number) =>
  Math.min(TOKEN_TIMEOUT * 2 ** Math.max(0, refusals + 1 - SHORT_TIMEOUTS), LONGEST_TIMEOUT)

const reasonOf = (error: DaemonError): string | undefined =>
  error._tag === "NodeUnreachable" ? error.reason : `${error.detail}. ${error.hint}`

/** The calls to one registration of a node, until one succeeds. */
class Probe {
  readonly replaced = Latch.makeUnsafe(false)
  /** Whether the record in memory may be older than the one in the database. */
  isBehind = true
  first: { readonly token: string | undefined; readonly at: number } | undefined
  isReported = false
  isStale = false
  /** False if the node was reachable: a first call that succeeds then reads and writes nothing. */
  readonly readsFirst: boolean

  constructor(readsFirst: boolean) {
    this.readsFirst = readsFirst
  }
}

interface Reach {
  probe?: Probe
  /** Consecutive registrations whose token the node has refused. */
  refusals: number
  /** The token that a registration must replace, and whether a heartbeat was answered with the reason. */
  stale?: { readonly token: string | undefined; isReported: boolean }
  /** Time of the next call unless a call succeeds before, by {@link elapsedMillis}. */
  due?: number
}

/** Calls nodes before placements and after failed calls: a node whose heartbeats arrive may be unreachable. */
export const makeReachabilityProbe = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const registry = yield* NodeRegistry
  const nodes = new Map<NodeId, Reach>()
  const reachOf = (node_id: NodeId): Reach => {
    const reach = nodes.get(node_id) ?? { refusals: 0 }
    nodes.set(node_id, reach)
    return reach
  }
  yield* watchFleet(fleet, ({ id, record }) => {
    if (record === undefined) nodes.delete(id)
  })

  const answered = Effect.fnUntraced(function* (node_id: NodeId) {
    reachOf(node_id).due = (yield* elapsedMillis) + QUIET * (yield* Random.nextBetween(0.8, 1.2))
  })

  const sameAddress = ({ id, record }: FleetNode): string => {
    const others = [...fleet.nodes].filter((node) => node.id !== id && node.listed?.url === record?.url)
    return others.length === 0 ? "" : `; it is now that of node ${others.map((node) => node.id).join(", ")}`
  }

  /** Records the result of the calls, with one log line for each change. */
  const settle = Effect.fnUntraced(function* (node: FleetNode, token: string, now: string | null) {
    const before = node.record?.unreachable
    if (before === now || !(yield* registry.setUnreachable(node.id, token, now))) return
    if (now !== null) {
      yield* Effect.logWarning(`node unreachable: it gets no servers: ${now}`)
    } else if (before !== "") {
      yield* Effect.logInfo("node reachable: it gets servers")
    }
  })

  const call = Effect.fnUntraced(function* (node_id: NodeId, probe: Probe) {
    // Another replica may have taken the node's registration.
    const catchUp = Effect.suspend(() => {
      if (!probe.isBehind) return Effect.void
      return Effect.map(registry.refresh(node_id), () => {
        probe.isBehind = false
      })
    })
    if (probe.readsFirst) yield* catchUp
    const first = probe.first ?? { token: fleet.get(node_id)?.record?.token, at: yield* elapsedMillis }
    probe.first = first
    const node = fleet.get(node_id)
    const record = node?.record
    // The replica that takes the next registration probes that one; a result of another replica counts as well.
    if (node === undefined || record === undefined || record.token !== first.token || !node.connected)
      return "done"
    if (probe.isReported && record.unreachable === null) return "done"
    const { token } = record
    const answer = yield* Effect.result(Effect.flatMap(daemons.of(node_id), (daemon) => daemon.system))
    const reach = reachOf(node_id)
    if (answer._tag === "Success") {
      reach.refusals = 0
      delete reach.stale
      yield* answered(node_id)
      yield* settle(node, token, null)
      return "done"
    }
    yield* catchUp
    const reason = reasonOf(answer.failure)
    const elapsed = (yield* elapsedMillis) - first.at
    const isRefused = reason === TOKEN_REFUSED
    if (reason !== undefined && elapsed >= (isRefused ? TOKEN_TIMEOUT : GRACE)) {
      yield* settle(node, token, `${record.url}: ${reason}${isRefused ? sameAddress(node) : ""}`)
      probe.isReported = true
    }
    // The answer to the last registration was lost, or the one to an earlier registration arrived after it.
    if (isRefused && !probe.isStale && elapsed >= timeoutAfter(reach.refusals)) {
      probe.isStale = true
      reach.refusals += 1
      reach.stale = { token, isReported: false }
    }
    return "again"
  })

  const queue = yield* makeWorkQueue({
    name: "probe of a node",
    fields: (node_id) => ({ node_id }),
    step: (node_id: NodeId) => {
      const probe = nodes.get(node_id)?.probe
      if (probe === undefined) return Effect.succeed("done" as const)
      return Effect.raceFirst(call(node_id, probe), Effect.as(probe.replaced.await, "done" as const))
    },
    backoff: backoff({ first: "1 second", longest: "10 seconds" })
  })

  const begin = (node_id: NodeId, probe: Probe) => {
    const reach = reachOf(node_id)
    reach.probe?.replaced.openUnsafe()
    reach.probe = probe
    queue.add(node_id)
  }

  /** Whether the node must register again. The first heartbeat is answered with the reason alone. */
  const mustRegister = ({ id, record }: FleetNode): boolean => {
    const reach = reachOf(id)
    const { stale } = reach
    if (stale === undefined) return false
    const wasReported = stale.isReported
    stale.isReported = true
    if (stale.token === record?.token) return wasReported
    delete reach.stale
    return false
  }

  /**
   * Notes a heartbeat, and calls the node unless a call has succeeded lately. Returns why it is unreachable.
   * @error RegistrationRequired the node does not know the token of its last registration
   */
  const onHeartbeat = Effect.fnUntraced(function* (node_id: NodeId) {
    const node = fleet.get(node_id)
    if (node?.unreachable !== undefined) {
      if (!queue.has(node_id)) begin(node_id, new Probe(true))
      if (mustRegister(node)) return yield* new RegistrationRequired({ node_id })
      return node.uncalled ? undefined : node.unreachable
    }
    const { due } = reachOf(node_id)
    // The replica that took the registration has called the node then.
    if (due === undefined) yield* answered(node_id)
    else if (due <= (yield* elapsedMillis) && !queue.has(node_id)) begin(node_id, new Probe(false))
    return undefined
  })

  return {
    /**
     * Calls a node until a call succeeds, and records the result. `restart` begins the calls again, after a
     * registration.
     */
    begin: (node_id: NodeId, options?: { readonly restart: boolean }): void => {
      if (options?.restart === true || !queue.has(node_id)) begin(node_id, new Probe(true))
    },
    answered,
    onHeartbeat
  }
})
