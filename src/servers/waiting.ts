import { Effect, Option } from "effect"
import type { CrashSummary } from "../domain/CrashRecord.ts"
import { Conflict, NotFound } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { INSTALL_FAILED_HINT } from "../domain/InstallState.ts"
import { isRestartPending } from "../domain/Restart.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { isUp } from "../domain/ServerStatus.ts"
import { Journal } from "../store/journal/Journal.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import type { ListedServer } from "./index/summary.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"

/** The states that a caller can wait for (life.md, "Reading"). */
export type WaitTarget = "running" | "offline" | "installed"

const isReached = ({ install, status }: ServerRecord, target: WaitTarget): boolean =>
  // After a reinstallation, the phase is reported before the status.
  target === "installed" ? install.phase === "ready" && status !== "installing" : status === target

/**
 * Returns why a server cannot reach the state.
 *
 * @param crash    the crash since the wait began
 * @param wasUp    whether the server was up, or about to start, since the wait began
 */
const obstacle = (
  { definition, install, restart, start_pending, status, transient }: ListedServer,
  target: WaitTarget,
  { crash, wasUp }: { readonly crash: CrashSummary | undefined; readonly wasUp: boolean }
): string | undefined => {
  if (target === "offline") return undefined
  if (install.phase === "failed")
    return `install failed: ${install.failure_reason ?? `exit code ${install.exit_code ?? "unknown"}`}`
  if (target === "installed" || status !== "offline" || start_pending) return undefined
  if (isRestartPending(restart) || transient === true) return undefined
  if (crash !== undefined && restart !== null && restart !== undefined) return restart.reason
  if (crash !== undefined) return definition.restart.on_crash ? undefined : `it crashed: ${crash.reason}`
  return wasUp ? "it was stopped, or could not be started" : undefined
}

const cannotReach = (id: ServerId, target: WaitTarget, reason: string) =>
  new Conflict({
    detail: `server is not ${target}: ${id}: ${reason}`,
    hint:
      target === "installed" || reason.startsWith("install failed")
        ? INSTALL_FAILED_HINT
        : "Read GET /api/servers/:server/logs, then start it again: POST /api/servers/:server/power."
  })

/** The longest wait for a report after a power action: the node may be unable to send reports. */
const REPORT_TIMEOUT = "2 seconds"

/**
 * Waits until the control plane has a report of a server, so that a caller whose power action was accepted sees no state
 * of before it.
 */
export const makeWaitForReport = Effect.gen(function* () {
  const index = yield* ServerIndex
  const journal = yield* Journal
  const lifecycle = yield* ServerLifecycle
  return Effect.fn("ServerManager.waitForReport")(
    function* ({ id, node_id }: ServerRecord, sequence: number) {
      const changed = yield* index.changeOf(id)
      while (true) {
        changed.closeUnsafe()
        const last = (yield* lifecycle.sequences(node_id, [id])).get(id)
        if (last === undefined || last >= sequence) return yield* journal.catchUp
        yield* changed.await
      }
    },
    Effect.scoped,
    Effect.timeoutOption(REPORT_TIMEOUT),
    // The action is accepted all the same.
    (waiting) => Effect.ignore(waiting)
  )
})

/** Waits until a server is in a state, or cannot reach it. */
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
      const record = Option.getOrUndefined(yield* index.find(id))
      if (record === undefined) return yield* NotFound.server(id)
      const crash = yield* index.lastCrash(id)
      wasUp ||= record.start_pending || isUp(record.status)
      const reached = isReached(record, target)
      const reason = reached
        ? undefined
        : obstacle(record, target, { crash: crash === before ? undefined : crash, wasUp })
      if (!reached && reason === undefined) {
        yield* changed.await
      } else if (!isCurrent) {
        // The caller may have changed the server through another replica.
        yield* Effect.ignore(journal.catchUp)
        isCurrent = true
      } else {
        return reason === undefined ? undefined : yield* cannotReach(id, target, reason)
      }
    }
  }, Effect.scoped)
})
