import { Effect } from "effect"
import { auditUnchanged } from "../../contract/domain/AuditedRequest.ts"
import { isUnderway } from "../../contract/domain/Drain.ts"
import { Conflict, Unavailable } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { installFailure } from "../../contract/domain/InstallState.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import { isRestartPending } from "../../contract/domain/RunRule.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import { isUp, next, type ServerStatus, type Trigger } from "../../contract/domain/ServerStatus.ts"
import { CurrentPrincipal, requireRight } from "../http/Principal.ts"
import { RolloutRepo } from "../store/repos/RolloutRepo.ts"
import { Store } from "../store/Store.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import type { ListedServer } from "./list/summary.ts"
import { moving, wrongStatus } from "./state/conflicts.ts"
import { makeDeliver, makeNodeCalls, makeNodeErrors } from "./state/nodeCalls.ts"
import { ServerLifecycle } from "./state/ServerLifecycle.ts"
import { ServerLocks } from "./state/ServersOptions.ts"
import { makeWaitForReport } from "./waiting.ts"

const TIMEOUT = "1 second"

/** Records a caller's stop for the server's rollout, which then counts no failure. The stop needs no database. */
const makeNoteStop = Effect.gen(function* () {
  const rollouts = yield* RolloutRepo
  const store = yield* Store
  return (id: ServerId) =>
    store.read(rollouts.server(id)).pipe(
      Effect.flatMap((found) => (found === undefined ? Effect.void : store.write(rollouts.stopped(id)))),
      Effect.timeoutOption(TIMEOUT),
      Effect.catch((error) => Effect.logDebug(`a stop was not recorded: ${error.detail}`))
    )
})

/** The status in which a power action without a report of its node has changed nothing. */
const settled: Partial<Record<PowerAction, ServerStatus>> = {
  start: "running",
  stop: "offline",
  kill: "offline",
  pause: "paused",
  unpause: "running"
}

const isSettled = ({ start_pending, status }: ServerRecord, action: PowerAction) =>
  status === settled[action] && !start_pending

export const callerName = Effect.map(CurrentPrincipal, (caller) => caller?.name ?? "service")

/** Requires the right to kill for a wait below the server's, because a stop kills the process after the wait. */
const checkWait = (
  { definition, id }: ServerRecord,
  action: PowerAction,
  wait_seconds = Number.POSITIVE_INFINITY
) => {
  const timeout = stopTimeoutOf(definition)
  const isShorter = (action === "stop" || action === "restart") && wait_seconds < timeout
  return isShorter
    ? requireRight(
        "kill",
        `: the stop timeout of ${id} is ${timeout} s, and wait_seconds is ${wait_seconds}`,
        "Leave wait_seconds out, or use a key with this right."
      )
    : Effect.void
}

/** Carries out power actions (spec 3.9). */
export const makePower = Effect.gen(function* () {
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks
  const noteStop = yield* makeNoteStop
  const deliver = yield* makeDeliver
  const waitForReport = yield* makeWaitForReport
  const { call, recordOf, refuse } = yield* makeNodeCalls
  const { failAway, failWith } = yield* makeNodeErrors

  const callPower = (
    record: ServerRecord,
    action: PowerAction,
    wait_seconds = stopTimeoutOf(record.definition)
  ) =>
    Effect.flatMap(callerName, (by) =>
      call(record, (daemon) => daemon.power(record.id, action, wait_seconds, by))
    )

  const startDefined = Effect.fnUntraced(function* (
    id: ServerId,
    action: PowerAction,
    wait_seconds?: number
  ) {
    const record = yield* recordOf(id)
    if (record.redefinition?.delivered === false) {
      yield* Effect.catchTags(deliver(record), {
        DaemonRefused: (error) => failWith(record, error),
        NodeUnreachable: (error) => failWith(record, error)
      })
    }
    return yield* callPower(record, action, wait_seconds)
  })

  /** Stops a migrating server, which then stays stopped after the migration. */
  const powerMoving = Effect.fnUntraced(function* (id: ServerId, action: PowerAction, wait_seconds?: number) {
    if (action !== "stop" && action !== "kill") return yield* Effect.fail(moving(id))
    const stop = Effect.gen(function* () {
      yield* lifecycle.forgetStart(id)
      const record = yield* recordOf(id)
      if (record.status === "unknown") return yield* failAway(record)
      if (!isUp(record.status) && !isRestartPending(record.restart)) return undefined
      return yield* callPower(record, action, wait_seconds)
    })
    return yield* locks.withLock(id)(stop)
  })

  /** Cancels the start of an installing server. If it is installed by now, calls the node. */
  const cancelStart = Effect.fnUntraced(function* <A, E>(id: ServerId, called: Effect.Effect<A, E>) {
    const cancel = Effect.gen(function* () {
      yield* lifecycle.forgetStart(id)
      const { status } = yield* recordOf(id)
      return status === "installing" ? undefined : yield* called
    })
    return yield* locks.withLock(id)(cancel)
  })

  /** Carries out a power action and returns the sequence of the report that shows its effect. */
  const act = Effect.fnUntraced(function* (
    record: ServerRecord,
    action: PowerAction,
    wait_seconds: number | undefined
  ) {
    const { id } = record
    if (action === "stop" || action === "kill") yield* noteStop(id)
    if (isUnderway(index.migrationOf(id))) return yield* powerMoving(id, action, wait_seconds)
    const decision = decidePower(record, action)
    const starts = action === "start" || action === "restart"
    const called =
      record.redefinition?.delivered === false && starts
        ? locks.withLock(id)(startDefined(id, action, wait_seconds))
        : record.run?.undelivered === true && starts
          ? startAfterStop(id, callPower(record, action, wait_seconds))
          : callPower(record, action, wait_seconds)
    if (decision === "defer") {
      // The installation may have ended meanwhile.
      return (yield* lifecycle.deferStart(id)) ? undefined : yield* called
    }
    if (decision === "cancel") return yield* cancelStart(id, called)
    if (decision !== "call") return yield* refuse(record, decision)
    if (!record.start_pending || (action !== "stop" && action !== "kill")) return yield* called
    return yield* locks.withLock(id)(Effect.andThen(lifecycle.forgetStart(id), called))
  })

  /** Records a stop that its node gets once it has returned. */
  const holdStop = (id: ServerId, away: Unavailable) =>
    Effect.flatMap(callerName, (by) =>
      Effect.flatMap(lifecycle.stopAway(id, by), (isRecorded) =>
        isRecorded ? Effect.succeed(undefined) : Effect.fail(away)
      )
    )

  /** Starts a server, which cancels an undelivered stop. */
  const startAfterStop = <A, E>(id: ServerId, started: Effect.Effect<A, E>) =>
    locks.withLock(id)(Effect.tap(started, () => lifecycle.stopDelivered(id)))

  return Effect.fn("ServerManager.power")(function* (
    id: ServerId,
    action: PowerAction,
    wait_seconds?: number
  ) {
    const record = yield* recordOf(id)
    yield* checkWait(record, action, wait_seconds)
    const acting = act(record, action, wait_seconds)
    const sequence = yield* action === "stop" || action === "kill"
      ? Effect.catchTag(acting, "Unavailable", (away) => holdStop(id, away))
      : acting
    if (sequence !== undefined) yield* waitForReport(record, sequence)
    else if (isSettled(record, action)) yield* auditUnchanged
  })
})

interface Rule {
  readonly trigger: Trigger
  readonly done: ReadonlyArray<ServerStatus>
}

const rules: Record<PowerAction, Rule> = {
  // A node unpauses a paused server before a start or stop.
  start: { trigger: "start", done: ["starting", "running", "paused"] },
  stop: { trigger: "stop", done: ["offline", "stopping", "paused"] },
  restart: { trigger: "stop", done: [] },
  kill: { trigger: "ended-as-asked", done: ["offline"] },
  pause: { trigger: "pause", done: ["paused"] },
  unpause: { trigger: "unpause", done: ["running"] }
}

/**
 * - `call`   the node is called
 * - `defer`  the server is started once it is installed
 * - `cancel` such a start is cancelled
 */
type PowerStep = "call" | "defer" | "cancel"

/** Returns the step or the refusal. An action without apparent effect calls the node: the record may lag. */
export const decidePower = (
  record: ListedServer,
  action: PowerAction
): PowerStep | Conflict | Unavailable => {
  const { status, install, start_pending } = record
  const rule = rules[action]
  if (status === "unknown") return Unavailable.nodeNotConnected(record.node_id)
  if (rule.done.includes(status)) return "call"
  // The node knows whether this is part of a reset, after which it starts the server.
  if (action === "start" && status === "stopping") return "call"
  // The node knows whether this is part of a restart, and whether the server is up again.
  if (action === "restart" && (status === "stopping" || record.transient === true)) return "call"
  if (status === "installing") {
    const isReset = install.phase === "ready"
    if (action === "start") return isReset ? "call" : "defer"
    if (action === "stop" || action === "kill") {
      if (start_pending) return "cancel"
      if (isReset) return "call"
    }
  }
  if (action === "start" && status === "offline" && install.phase === "failed") {
    const { hint, reason } = installFailure(install)
    return new Conflict({ detail: `install failed: ${reason}`, hint })
  }
  return next(status, rule.trigger) === undefined ? wrongStatus(record) : "call"
}
