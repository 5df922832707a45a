import { Effect, Option } from "effect"
import type { CrashSummary } from "../domain/CrashRecord.ts"
import { Conflict, NotFound } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { INSTALL_FAILED_HINT } from "../domain/InstallState.ts"
import { isRestartPending } from "../domain/Restart.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { isUp } from "../domain/ServerStatus.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import type { ListedServer } from "./index/summary.ts"

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

/** Waits until a server is in a state, or cannot reach it. */
export const makeWaitFor = Effect.map(ServerIndex, (index) =>
  Effect.fn("ServerManager.waitFor")(function* (id: ServerId, target: WaitTarget) {
    const changed = yield* index.changeOf(id)
    const before = yield* index.lastCrash(id)
    let wasUp = false
    while (true) {
      changed.closeUnsafe()
      const record = Option.getOrUndefined(yield* index.find(id))
      if (record === undefined) return yield* NotFound.server(id)
      if (isReached(record, target)) return
      const crash = yield* index.lastCrash(id)
      wasUp ||= record.start_pending || isUp(record.status)
      const reason = obstacle(record, target, { crash: crash === before ? undefined : crash, wasUp })
      if (reason !== undefined) return yield* cannotReach(id, target, reason)
      yield* changed.await
    }
  }, Effect.scoped)
)
