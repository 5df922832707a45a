import { Clock, Effect } from "effect"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { Change, ServerChange } from "../../../contract/domain/Journal.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import type { Daemon, DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { continueTrace, inSpan } from "../../../shared/observability/trace.ts"
import type { StepOutcome } from "../../../shared/work/WorkQueue.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeDeliver } from "../state/nodeCalls.ts"
import { logFields } from "../state/recordChanges.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { isFinished } from "../state/transitions.ts"

/** The next call that a server needs, by its record: pure rules. */

/**
 * - `verify` ask the node whether it has the server, and what it is
 * - `define` send the changed definition
 * - `stop`   send a stop that was accepted while the node was away
 */
type Action = "nothing" | "install" | "start" | "verify" | "define" | "stop"

/** @param suspected whether there is reason to think that the node has lost it */
const nextAction = (record: ServerRecord, suspected: boolean): Action => {
  if (!isFinished(record.install)) return "install"
  if (suspected || record.status === "unknown") return "verify"
  if (record.run?.undelivered === true) return "stop"
  if (record.redefinition?.delivered === false) return "define"
  return record.start_pending && record.status === "offline" && record.install.phase === "ready"
    ? "start"
    : "nothing"
}

export const needsAction = (change: Change): change is ServerChange =>
  change.topic === "server:created" ||
  change.topic === "server:changed" ||
  (change.topic === "server:start-pending" && change.payload) ||
  (change.topic === "server:run" && change.payload?.undelivered === true) ||
  (change.topic === "server:install" &&
    (change.payload.phase === "pending" || change.payload.phase === "ready"))

/** Calls after which a start or an installation fails if the node cannot carry it out, as with a full disk. */
const ATTEMPTS = 5
const NO_WAIT = 0

/** Time after its creation in which work on a server has the creation's trace, in ms. */
const TRACE_LIFETIME = 60 * 60 * 1000

const traceOf = ({ created_at, trace }: ServerRecord) =>
  trace === undefined
    ? Effect.succeed(undefined)
    : Effect.map(Clock.currentTimeMillis, (now) =>
        now - Date.parse(created_at) < TRACE_LIFETIME ? trace : undefined
      )

export const makeProvisionStep = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const registry = yield* NodeRegistry
  const servers = yield* ServerRepo
  const store = yield* Store

  const suspects = new Set<ServerId>()
  const removals = new Set<ServerId>()

  const call = <A, E>(node_id: NodeId, use: (daemon: Daemon) => Effect.Effect<A, E>) =>
    Effect.flatMap(daemons.of(node_id), use)

  const deliver = yield* makeDeliver

  /** Returns "again" after the installation, until the reports under way have changed the record. */
  const install = Effect.fnUntraced(function* (
    record: ServerRecord
  ): Effect.fn.Return<StepOutcome, DaemonError | Unavailable> {
    const sent = yield* deliver(record)
    if (sent === undefined) return "done"
    return !sent.isTaken && isFinished(sent.view.install) ? "again" : "done"
  })

  const verify = Effect.fnUntraced(function* (record: ServerRecord) {
    const status = yield* Effect.result(call(record.node_id, (daemon) => daemon.status(record.id)))
    if (status._tag === "Success") return yield* install(record)
    if (status.failure._tag !== "DaemonRefused" || status.failure.status !== 404) {
      return yield* Effect.fail(status.failure)
    }
    yield* lifecycle.missing(record.node_id, record.id)
    return "done"
  })

  const start = Effect.fnUntraced(function* (record: ServerRecord) {
    const [now] = yield* store.read(servers.find([record.id]))
    if (now?.start_pending === true && now.node_id === record.node_id) {
      yield* call(record.node_id, (daemon) => daemon.power(record.id, "start", NO_WAIT))
    }
    return "done" as const
  })

  const stop = Effect.fnUntraced(function* ({ id }: ServerRecord) {
    const record = index.get(id)
    if (record?.run?.undelivered !== true) return "done" as const
    const { definition, node_id, run } = record
    yield* call(node_id, (daemon) => daemon.power(id, "stop", stopTimeoutOf(definition), run?.stopped_by))
    yield* lifecycle.stopDelivered(id)
    return "again" as const
  })

  const remove = Effect.fnUntraced(function* (record: ServerRecord) {
    yield* call(record.node_id, (daemon) => daemon.remove(record.id))
    yield* mayUseReserve(lifecycle.remove(record.id, record.node_id))
    removals.delete(record.id)
    return "done" as const
  })

  const refused = Effect.fnUntraced(function* (
    record: ServerRecord,
    action: Action | "remove",
    attempt: number,
    error: Extract<DaemonError, { readonly _tag: "DaemonRefused" }>
  ): Effect.fn.Return<StepOutcome, Unavailable> {
    // A removal has begun on the node: the server is gone soon, or the removal is given up.
    const isBeingRemoved = action === "install" && error.status === 409
    yield* Effect.logWithLevel(isBeingRemoved ? "Debug" : "Warn")(
      `node ${record.node_id} refuses to ${action} ${record.id}: ${error.detail}`
    )
    // An installed server that is migrated here waits for its place instead.
    const isGivenUp = error.status === 500 && attempt >= ATTEMPTS && !isFinished(record.install)
    if (action === "install" && (error.status === 422 || isGivenUp)) {
      yield* lifecycle.refuseInstall(record.id, error.detail)
      return "done"
    }
    if (action === "define" && error.status === 422) {
      yield* lifecycle.refuseInstall(record.id, error.detail)
      return "done"
    }
    if (action === "stop" && error.status !== 500 && error.status !== 404)
      yield* lifecycle.stopDelivered(record.id)
    if ((action === "start" || action === "stop") && error.status === 404) suspects.add(record.id)
    else if (action === "start" && (error.status !== 500 || attempt >= ATTEMPTS)) {
      yield* lifecycle.forgetStart(record.id, error)
      return "done"
    }
    return "again"
  })

  const actionFor = (record: ServerRecord): Action | "remove" =>
    removals.has(record.id) ? "remove" : nextAction(record, suspects.has(record.id))

  /** Verifies a suspect. A suspicion during the call is a new one. */
  const verifySuspect = Effect.fnUntraced(function* (record: ServerRecord) {
    const { id } = record
    const isSuspect = suspects.delete(id)
    const suspectAgain = Effect.sync(() => {
      if (isSuspect) suspects.add(id)
    })
    const outcome = yield* Effect.onError(
      Effect.tap(verify(record), (outcome) =>
        isSuspect && outcome === "done" ? lifecycle.verified(id) : Effect.void
      ),
      () => suspectAgain
    )
    if (outcome === "again") yield* suspectAgain
    return orStart(id, outcome)
  })

  /** Returns "again" for a server to start, as its wake-up may have come during the call. */
  const orStart = (id: ServerId, outcome: StepOutcome): StepOutcome => {
    const now = index.get(id)
    return now !== undefined && actionFor(now) === "start" ? "again" : outcome
  }

  const define = Effect.fnUntraced(function* (record: ServerRecord) {
    yield* deliver(record)
    return orStart(record.id, "done")
  })

  const works = { install, start, verify: verifySuspect, define, stop, remove }

  const step = Effect.fnUntraced(function* (
    id: ServerId,
    attempt: number
  ): Effect.fn.Return<StepOutcome, DaemonError | Unavailable> {
    const record = index.get(id)
    if (record === undefined) {
      suspects.delete(id)
      removals.delete(id)
      return "done"
    }
    if (!registry.isConnected(record.node_id)) return "done"
    const action = actionFor(record)
    if (action === "nothing") return "done"
    const work = works[action](record).pipe(
      inSpan(`provision.${action}`, { attributes: logFields(record) }),
      continueTrace(yield* traceOf(record))
    )
    return yield* Effect.catchTag(work, "DaemonRefused", (error) => refused(record, action, attempt, error))
  })

  return { actionFor, removals, step, suspects } as const
})
