/** The next step of a rollout, and of one of its servers: pure rules (spec 3.13). */
import type { CrashSummary } from "../../../contract/domain/CrashRecord.ts"
import { changesBetween } from "../../../contract/domain/compareDefinitions.ts"
import { noticeMillis } from "../../../contract/domain/Drain.ts"
import {
  isOver,
  type RolloutCounts,
  type RolloutRecord,
  type RolloutServer
} from "../../../contract/domain/Rollout.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../../contract/domain/ServerStatus.ts"

/** The rollout after its next step, and how many servers begin. */
export interface Advance {
  readonly rollout: RolloutRecord
  readonly begins: number
}

export const continued = (rollout: RolloutRecord): RolloutRecord => ({
  ...rollout,
  state: rollout.canary_left > 0 && !rollout.rolling_back ? "canary" : "running",
  reason: rollout.rolling_back ? rollout.reason : null
})

const CANARY_DONE = "the canary is done: resume the rollout to continue"

export const advance = (before: RolloutRecord, counts: RolloutCounts, now: string): Advance => {
  if (isOver(before.state) || before.state === "paused") return { rollout: before, begins: 0 }
  const rollout = before.state === "planned" ? continued(before) : before
  const isBusy = counts.changing + counts.waiting > 0
  if (counts.queued === 0) {
    if (isBusy) return { rollout, begins: 0 }
    const good = rollout.rolling_back ? "rolled_back" : "done"
    return {
      rollout: { ...rollout, state: counts.failed > 0 ? "failed" : good, finished_at: now },
      begins: 0
    }
  }
  const free = Math.max(0, Math.min(rollout.settings.max_parallel - counts.changing, counts.queued))
  if (rollout.state !== "canary") return { rollout, begins: free }
  if (rollout.canary_left === 0) {
    return { rollout: isBusy ? rollout : { ...rollout, state: "paused", reason: CANARY_DONE }, begins: 0 }
  }
  const begins = Math.min(free, rollout.canary_left)
  return {
    rollout: begins === 0 ? rollout : { ...rollout, canary_left: rollout.canary_left - begins },
    begins
  }
}

/** Returns the rollout after a server has failed. With `rolling_back`, the servers turn back. */
export const onFailure = (
  rollout: RolloutRecord,
  { reason, server_id }: Pick<RolloutServer, "server_id" | "reason">
): RolloutRecord => {
  const { on_failure } = rollout.settings
  if (rollout.rolling_back || rollout.state === "paused" || on_failure === "continue") return rollout
  const failed = { ...rollout, reason: `server ${server_id} failed: ${reason}` }
  return on_failure === "pause"
    ? { ...failed, state: "paused" }
    : { ...failed, state: "running", rolling_back: true }
}

export interface Facts {
  /** Unset once the server is deleted. */
  readonly record: ServerRecord | undefined
  readonly revision: string | undefined
  /** Its last crash, also if the crash deleted it. */
  readonly crash: CrashSummary | undefined
  readonly isMigrating: boolean
  /** Why its node cannot be called, if it cannot. */
  readonly away: string | undefined
  readonly isTooLong: boolean
  readonly now: number
}

/**
 * - `define`  the definition is stored
 * - `watch`   the start of the server is timed from now on
 * - `notify`  the server gets the line of the rollout
 * - `restart`, `start`  the node is called
 * - `release` the server waits for its next start, and another one begins
 * - `forget`  the start is timed again once the server is back
 * - `wait`    for a change of the server, or the next look
 */
export type ServerStep =
  | {
      readonly do:
        | "define"
        | "watch"
        | "notify"
        | "restart"
        | "start"
        | "release"
        | "forget"
        | "wait"
        | "done"
    }
  | { readonly do: "fail"; readonly reason: string }

/** Seconds after a start's time in which the node may still report its end. */
const GRACE = 5

const fail = (reason: string): ServerStep => ({ do: "fail", reason })

const NOT_ACCEPTED = "its node has not accepted the definition"

/** Whether process and files have the definition, which a node does not report of an offline, installed server. */
export const isApplied = ({ definition, redefinition, status }: ServerRecord): boolean => {
  if (redefinition === undefined) return true
  const { delivered, used } = redefinition
  const changes = used === undefined ? [] : changesBetween(used, definition)
  return (
    delivered &&
    changes.every(({ needs }) => needs === "nothing" || (needs === "restart" && status === "offline"))
  )
}

/** Returns why a server waits for its node, if it does. */
export const isHeldUp = ({ away, record }: Pick<Facts, "away" | "record">): string | undefined => {
  if (record === undefined) return undefined
  if (away !== undefined) return away
  if (record.status === "unknown") return `node ${record.node_id} is not connected`
  return record.redefinition?.delivered === false ? NOT_ACCEPTED : undefined
}

const crashedSince = ({ crash }: Facts, { crash_before, restarted_at }: RolloutServer) =>
  restarted_at === null || crash?.id === crash_before ? undefined : crash

/** Returns why the installation with the definition has failed, if it has. */
const installFailure = (record: ServerRecord): string | undefined => {
  const { install, redefinition } = record
  if (install.phase !== "failed") return undefined
  const isEarlier = Date.parse(install.finished_at ?? "") < (redefinition?.defined_at ?? 0)
  return !isApplied(record) && isEarlier
    ? undefined
    : `installation failed: ${install.failure_reason ?? `exit code ${install.exit_code ?? "unknown"}`}`
}

/** Returns the step of a server that is to restart. A running one gets the rollout's line, and then its time. */
const restartStep = (
  { notify, notify_seconds }: RolloutRecord["settings"],
  { notified_at }: RolloutServer,
  isRunning: boolean,
  now: number
): ServerStep => {
  if (notify === undefined || !isRunning) return { do: "restart" }
  if (notified_at === null) return { do: "notify" }
  return { do: now < notified_at + noticeMillis(notify_seconds) ? "wait" : "restart" }
}

const startStep = (
  { settings }: RolloutRecord,
  server: RolloutServer,
  record: ServerRecord,
  facts: Facts
): ServerStep => {
  const { problem, start_pending, status } = record
  const timeout = settings.start_timeout ?? record.definition.process.start_timeout
  const millis = (stopTimeoutOf(record.definition) + timeout + GRACE) * 1000
  const isLate = server.restarted_at !== null && facts.now > server.restarted_at + millis
  const crash = crashedSince(facts, server)
  if (isApplied(record)) {
    if (status === "running" || status === "paused") return { do: "done" }
    if (status === "offline" && (server.was_up !== true || settings.restart === "when_stopped"))
      return { do: "done" }
  } else if (isUp(status) && settings.restart === "when_stopped") return { do: "release" }
  if (crash !== undefined) return fail(`crashed: ${crash.reason}`)
  if (server.stopped && status === "offline" && isApplied(record)) return { do: "done" }
  if (problem != null && status === "offline" && !start_pending && server.restarted_at !== null)
    return fail(`cannot be started: ${problem.detail}`)
  if (isLate) return fail(`not running within ${timeout} s`)
  if (!isApplied(record)) {
    const restarts = isUp(status) && status !== "stopping" && server.restarted_at === null
    return restarts ? restartStep(settings, server, status === "running", facts.now) : { do: "wait" }
  }
  if (status === "offline" && !start_pending) return { do: "start" }
  return { do: server.restarted_at === null ? "watch" : "wait" }
}

export const serverStep = (rollout: RolloutRecord, server: RolloutServer, facts: Facts): ServerStep => {
  const { record, revision } = facts
  if (record === undefined) {
    const crash = crashedSince(facts, server)
    return crash === undefined
      ? { do: "done" }
      : fail(`crashed: ${crash.reason}; it was deleted, because it is not saved`)
  }
  // A caller has changed the definition since: the last change wins.
  if (revision !== server.target && revision !== server.earlier) return { do: "done" }
  const heldUp = isHeldUp(facts)
  if (facts.isMigrating || heldUp !== undefined) {
    if (!facts.isMigrating && facts.isTooLong) return fail(heldUp ?? NOT_ACCEPTED)
    return { do: server.restarted_at === null ? "wait" : "forget" }
  }
  if (revision !== server.target) return { do: record.status === "installing" ? "wait" : "define" }
  const failure = installFailure(record)
  if (failure !== undefined) return fail(failure)
  if (record.status === "installing") return { do: "wait" }
  return startStep(rollout, server, record, facts)
}
