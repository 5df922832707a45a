import { Array as Arr, Effect, Result } from "effect"
import { withProgress } from "../../contract/domain/InstallState.ts"
import { LIVE, MOST_REPORTS, type Report } from "../../contract/domain/NodeMessages.ts"
import { backoff, makePause } from "../../shared/work/backoff.ts"
import type { InstanceFile } from "../state/InstanceFile.ts"
import type { Uplink } from "./uplink.ts"

/** The reports of a server that are not acknowledged, in its state. */
type Reports = Pick<InstanceFile, "get" | "acknowledge">

/** The progress of the current step of an installation, 0 to 1, if known. It is in memory only. */
export class LiveProgress {
  #share: number | undefined
  readonly #onChanged: () => void
  isChanged = false

  /** @param onChanged called with each new value */
  constructor(onChanged: () => void) {
    this.#onChanged = onChanged
  }

  get share(): number | undefined {
    return this.#share
  }

  set(share: number | undefined): void {
    if (share === this.#share) return
    this.#share = share
    if (share === undefined) return
    this.isChanged = true
    this.#onChanged()
  }
}

const PAUSE = "1 second"

/** Sends the latest progress once a second at most, after waiting reports: none precedes its step. */
export const sendProgress = Effect.fnUntraced(function* (
  file: Reports,
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

const RETRY = backoff({ first: "100 millis", longest: "10 seconds" })
/** Refusals after which a report is dropped: a control plane that is being upgraded may accept it later. */
const MAX_REFUSALS = 12

/** Drops a report that is refused permanently. The new registration sends the current state. */
const drop = Effect.fnUntraced(function* (uplink: Uplink, report: Report, detail: string) {
  yield* Effect.logError(
    `the control plane refuses report ${report.sequence} permanently, it is dropped: ${detail}: ${JSON.stringify(report)}`
  )
  yield* uplink.register
})

/** Sends reports until the first is acknowledged or dropped; returns the number of those that are. */
const deliver = Effect.fnUntraced(function* (
  uplink: Uplink,
  reports: readonly [Report, ...ReadonlyArray<Report>]
) {
  const [report] = reports
  const pause = yield* makePause(RETRY)
  let refusals = 0
  while (true) {
    const sent = yield* Effect.result(uplink.report(reports))
    if (Result.isSuccess(sent)) return sent.success
    const { failure } = sent
    if (failure._tag === "ControlPlaneUnavailable") {
      const { detail, refuses } = failure
      if (refuses === "message") refusals += 1
      if (refusals > MAX_REFUSALS) {
        yield* drop(uplink, report, detail)
        return 1
      }
      const what = `report ${report.sequence}`
      yield* refusals === 1 && refuses === "message"
        ? Effect.logWarning(`${what} is refused and will be retried: ${detail}`)
        : Effect.logDebug(`${what} is queued: ${detail}`)
    }
    yield* Effect.raceFirst(pause, refusals > 0 ? Effect.never : uplink.reconnected)
  }
})

/** Sends a server's reports in order, at least once (spec 9.3); the next write removes acknowledged ones. */
export const sendReports = Effect.fnUntraced(function* (file: Reports, uplink: Uplink) {
  while (true) {
    const reports = file.get().reports.slice(0, MOST_REPORTS)
    if (!Arr.isReadonlyArrayNonEmpty(reports)) return
    const last = reports[(yield* deliver(uplink, reports)) - 1] ?? reports[0]
    yield* file.acknowledge(last.sequence)
  }
})
