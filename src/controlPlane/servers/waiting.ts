import { Duration, Effect, Option } from "effect"
import type { CrashSummary } from "../../contract/domain/CrashRecord.ts"
import { Conflict, NotFound } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { installFailure } from "../../contract/domain/InstallState.ts"
import { isRestartPending } from "../../contract/domain/RunRule.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { StreamShutdown } from "../events/OpenStreams.ts"
import { Journal } from "../store/journal/Journal.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { isQueued, type ListedServer } from "./list/summary.ts"
import { ServerLifecycle } from "./state/ServerLifecycle.ts"

/** The states that a caller can wait for (spec 3.8). */
export type WaitTarget = "running" | "offline" | "installed"

const isReached = ({ install, status }: ServerRecord, target: WaitTarget): boolean =>
  // After a reinstallation, the phase is reported before the status.
  target === "installed" ? install.phase === "ready" && status !== "installing" : status === target

const START_AGAIN =
  "Read GET /api/servers/:server/logs, then start it again: POST /api/servers/:server/power."

/**
 * Returns why a server cannot reach the state, and the next step.
 * @param crash the crash since the wait began, or after which the server has not been up
 * @param wasUp whether the server was up, or about to start, since the wait began
 */
const obstacle = (
  server: ListedServer,
  target: WaitTarget,
  { crash, wasUp }: { readonly crash: CrashSummary | undefined; readonly wasUp: boolean }
): { readonly reason: string; readonly hint: string } | undefined => {
  const { definition, install, problem, restart, start_pending, status, transient } = server
  if (target === "offline") return undefined
  if (install.phase === "failed") {
    const { hint, reason } = installFailure(install)
    return { reason: `install failed: ${reason}`, hint }
  }
  if (target === "installed" || status !== "offline" || start_pending) return undefined
  if (isRestartPending(restart) || isQueued(server)) return undefined
  if (problem !== null && problem !== undefined) return { reason: problem.detail, hint: problem.hint }
  if (transient === true) return undefined
  const because = (reason: string) => ({ reason, hint: START_AGAIN })
  if (crash !== undefined && restart !== null && restart !== undefined) return because(restart.reason)
  if (crash !== undefined)
    return definition.restart.on_crash ? undefined : because(`it crashed: ${crash.reason}`)
  return wasUp ? because("it was stopped, or could not be started") : undefined
}

/** Longest wait for a report after a power action, as the node may be unable to send reports. */
const REPORT_TIMEOUT = "2 seconds"

/** Waits for a report of a server, so that a caller sees no state from before its accepted power action. */
export const makeWaitForReport = Effect.gen(function* () {
  const index = yield* ServerIndex
  const journal = yield* Journal
  const lifecycle = yield* ServerLifecycle
  return Effect.fn("ServerManager.waitForReport")(
    function* ({ id, node_id }: ServerRecord, sequence: number) {
      const changed = yield* index.changeOf(id)
      while (true) {
        changed.closeUnsafe()
        const last = yield* lifecycle.sequence(node_id, id)
        if (last === undefined || last >= sequence) return yield* journal.catchUp
        yield* changed.await
      }
    },
    Effect.scoped,
    Effect.timeoutOption(REPORT_TIMEOUT),
    (waiting) => Effect.ignore(waiting)
  )
})

export const makeWaitFor = Effect.gen(function* () {
  const index = yield* ServerIndex
  const journal = yield* Journal
  return Effect.fn("ServerManager.waitFor")(function* (id: ServerId, target: WaitTarget) {
    const changed = yield* index.changeOf(id)
    const before = yield* index.lastCrash(id)
    let wasUp = false
    let isCurrent = false
    while (true) {
      changed.closeUnsafe()
      const record = index.get(id)
      if (record === undefined) return yield* NotFound.server(id)
      const crash = yield* index.lastCrash(id)
      wasUp ||= record.start_pending || isUp(record.status)
      const reached = isReached(record, target)
      const why = reached
        ? undefined
        : obstacle(record, target, {
            crash: crash === before && record.crashed !== true ? undefined : crash,
            wasUp
          })
      if (!reached && why === undefined) {
        yield* changed.await
      } else if (!isCurrent) {
        yield* Effect.ignore(journal.catchUp)
        isCurrent = true
      } else {
        if (why === undefined) return
        const { hint, reason } = why
        return yield* new Conflict({ detail: `server is not ${target}: ${id}: ${reason}`, hint })
      }
    }
  }, Effect.scoped)
})

/** Waits for some seconds. A service that stops ends the wait as its timeout does. */
export const makeForSeconds = Effect.map(
  StreamShutdown,
  ({ begun }) =>
    <A, E, R>(waiting: Effect.Effect<A, E, R>, seconds: number) =>
      Effect.raceFirst(
        Effect.timeoutOption(waiting, Duration.seconds(seconds)),
        Effect.as(begun, Option.none<A>())
      )
)
