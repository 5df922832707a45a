import { Effect, Random } from "effect"
import type { ControlPlaneError } from "../../api/ControlPlane.ts"
import type { Report } from "../../domain/NodeMessages.ts"
import type { ServerFile } from "../instances/ServerFile.ts"

/** Longest pause between two attempts, in ms. */
const LONGEST = 10_000
const FIRST = 100

/** How a report gets to the control plane. */
export interface Uplink {
  report(report: Report): Effect.Effect<void, ControlPlaneError>
  /** Registers again; the control plane does not know this boot any more. Waits until it has worked. */
  readonly register: Effect.Effect<void>
}

const deliver = Effect.fnUntraced(function* (uplink: Uplink, report: Report) {
  let pause = FIRST
  while (true) {
    const failure = yield* uplink.report(report).pipe(
      Effect.as(undefined),
      Effect.catch((error) => Effect.succeed(error))
    )
    if (failure === undefined) return
    if (failure._tag === "RegistrationRequired") {
      yield* uplink.register
    } else {
      yield* Effect.logDebug(`report ${report.sequence} of ${report.server_id} waits: ${failure.detail}`)
    }
    // Half fixed, half random, so that a crowd of daemons does not come back in step.
    yield* Effect.sleep(pause * (0.5 + (yield* Random.next) / 2))
    pause = Math.min(pause * 2, LONGEST)
  }
})

/**
 * Sends the reports of one server for ever: at least once, in order, each until it is answered (node-protocol,
 * "Reports"). A report is on disk before it is sent and leaves the disk when it was answered.
 */
export const sendReports = (file: ServerFile, uplink: Uplink): Effect.Effect<never> =>
  Effect.gen(function* () {
    yield* file.news.await
    yield* file.news.close
    for (let next = file.get().reports[0]; next !== undefined; next = file.get().reports[0]) {
      yield* deliver(uplink, next)
      const { sequence } = next
      yield* file.update((state) => ({
        ...state,
        reports: state.reports.filter((report) => report.sequence !== sequence)
      }))
    }
  }).pipe(Effect.forever)
