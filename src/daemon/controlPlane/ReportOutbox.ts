import { Effect, Random, type Scope, type Stream } from "effect"
import type { ControlPlaneError, ControlPlaneUnavailable } from "../../api/ControlPlane.ts"
import type { Report } from "../../domain/NodeMessages.ts"
import type { ServerFile } from "../state/ServerFile.ts"

/** Longest pause between two attempts, in ms. */
const LONGEST = 10_000
const FIRST = 100
/** How often a report may be refused as such: a control plane that is being replaced may understand it in a while. */
const REFUSALS = 12

/** How a report gets to the control plane. */
export interface Uplink {
  /** Waits until the node is registered; registers again where that is what the control plane wants. */
  report(report: Report): Effect.Effect<void, ControlPlaneError>
  /** The files of a server that comes to this node. */
  files(
    server_id: string
  ): Effect.Effect<Stream.Stream<Uint8Array, ControlPlaneUnavailable>, ControlPlaneError, Scope.Scope>
  /** Registers again, and says what the node has. Waits until it has worked. */
  readonly register: Effect.Effect<void>
  /** Done when the control plane is heard again after it was not. */
  readonly heardAgain: Effect.Effect<void>
}

/** Refused for good: it is left out, so that what came after it is told; what the server is now is told anew. */
const leaveOut = Effect.fnUntraced(function* (uplink: Uplink, report: Report, detail: string) {
  yield* Effect.logError(
    `the control plane refuses report ${report.sequence} of ${report.server_id} for good, it is left out: ${detail}: ${JSON.stringify(report)}`
  )
  yield* uplink.register
})

const deliver = Effect.fnUntraced(function* (uplink: Uplink, report: Report) {
  let pause = FIRST
  let refusals = 0
  while (true) {
    const failure = yield* uplink.report(report).pipe(
      Effect.as(undefined),
      Effect.catch((error) => Effect.succeed(error))
    )
    if (failure === undefined) return
    if (failure._tag === "ControlPlaneUnavailable") {
      const { detail, refuses } = failure
      if (refuses === "message") refusals += 1
      if (refusals > REFUSALS) return yield* leaveOut(uplink, report, detail)
      const what = `report ${report.sequence} of ${report.server_id}`
      yield* refusals === 1 && refuses === "message"
        ? Effect.logWarning(`${what} is refused, it is tried again for a while: ${detail}`)
        : Effect.logDebug(`${what} waits: ${detail}`)
    }
    // Half fixed, half random, so that a crowd of daemons does not come back in step.
    yield* Effect.raceFirst(
      Effect.sleep(pause * (0.5 + (yield* Random.next) / 2)),
      refusals > 0 ? Effect.never : uplink.heardAgain
    )
    pause = Math.min(pause * 2, LONGEST)
  }
})

/**
 * Sends the reports of one server for ever: at least once, in order, each until it is answered (node-protocol,
 * "Reports"). A report is on disk before it is sent and leaves the disk when it was answered. Servers do not wait for
 * each other.
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
