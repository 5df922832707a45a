import { Effect } from "effect"
import { withProgress } from "../../domain/InstallStep.ts"
import { LIVE } from "../../domain/NodeMessages.ts"
import type { LiveProgress } from "../state/LiveProgress.ts"
import type { ServerFile } from "../state/ServerFile.ts"
import type { Uplink } from "./ReportOutbox.ts"

/** The pause after a live report. */
const PAUSE = "1 second"

/**
 * Sends the progress of an installation as a live report, then pauses: at most one a second. Nothing repeats a lost one.
 * Reports that wait for their acknowledgement come first, so that no progress precedes its step.
 */
export const sendProgress = Effect.fnUntraced(function* (
  file: ServerFile,
  progress: LiveProgress,
  uplink: Uplink
) {
  const { install, reports, spec } = file.get()
  const { share } = progress
  if (reports.length === 0) {
    progress.isChanged = false
    if (share !== undefined && install.phase === "installing" && install.steps !== undefined) {
      const live = { ...install, steps: withProgress(install.steps, share) }
      yield* Effect.ignore(
        uplink.report([{ type: "install-status", server_id: spec.id, sequence: LIVE, install: live }])
      )
    }
  }
  yield* Effect.sleep(PAUSE)
})
