import { Cause, Deferred, Effect, Latch } from "effect"
import type { ControlPlaneError } from "../../api/ControlPlane.ts"
import { MOST_REPORTS, type Report } from "../../domain/NodeMessages.ts"

/** Reports of one server that wait for a message, in their order. */
interface Waiting {
  readonly reports: ReadonlyArray<Report>
  readonly answered: Deferred.Deferred<number, ControlPlaneError>
}

export interface ReportSender {
  /**
   * Sends reports of one server, at most {@link MOST_REPORTS}. Returns how many of them are acknowledged, from the first:
   * at least one. @error ControlPlaneError the first is not acknowledged
   */
  send(reports: ReadonlyArray<Report>): Effect.Effect<number, ControlPlaneError>
  /** Sends messages, one at a time, each with the reports that waited for the previous one; never ends. */
  readonly run: Effect.Effect<never>
}

/** Makes a {@link ReportSender}. @param message sends one message, see `ControlPlane.reports` */
export const makeReportSender = (
  message: (
    reports: ReadonlyArray<Report>
  ) => Effect.Effect<ReadonlyArray<ControlPlaneError | undefined>, ControlPlaneError>
): ReportSender => {
  const queue: Array<Waiting> = []
  const arrived = Latch.makeUnsafe(false)

  /** Takes what fits into one message. */
  const take = (): ReadonlyArray<Waiting> => {
    let servers = 0
    let size = 0
    for (const { reports } of queue) {
      size += reports.length
      if (size > MOST_REPORTS) break
      servers += 1
    }
    return queue.splice(0, servers)
  }

  const sendTogether = (waiting: ReadonlyArray<Waiting>): Effect.Effect<void> =>
    Effect.matchCauseEffect(message(waiting.flatMap(({ reports }) => reports)), {
      onSuccess: (failures) =>
        Effect.sync(() => {
          let first = 0
          for (const { answered, reports } of waiting) {
            const own = failures.slice(first, first + reports.length)
            Deferred.doneUnsafe(answered, acknowledged(reports.length, own))
            first += reports.length
          }
        }),
      onFailure: (cause) =>
        // The reports of one server must not stop those of others.
        Cause.hasDies(cause) && waiting.length > 1
          ? Effect.forEach(waiting, (one) => sendTogether([one]), { discard: true })
          : Effect.forEach(waiting, ({ answered }) => Deferred.failCause(answered, cause), { discard: true })
    })

  const next = Effect.suspend(() => {
    const waiting = take()
    if (waiting.length > 0) return sendTogether(waiting)
    arrived.closeUnsafe()
    return arrived.await
  })

  return {
    send: (reports) =>
      Effect.suspend(() => {
        const one: Waiting = { reports, answered: Deferred.makeUnsafe() }
        queue.push(one)
        arrived.openUnsafe()
        return Effect.onInterrupt(Deferred.await(one.answered), () =>
          Effect.sync(() => {
            const at = queue.indexOf(one)
            if (at >= 0) queue.splice(at, 1)
          })
        )
      }),
    run: Effect.forever(next)
  }
}

/** Returns how many of the reports of a server are acknowledged, from the first. */
const acknowledged = (
  count: number,
  failures: ReadonlyArray<ControlPlaneError | undefined>
): Effect.Effect<number, ControlPlaneError> => {
  const [first] = failures
  if (first !== undefined) return Effect.fail(first)
  const at = failures.findIndex((failure) => failure !== undefined)
  return Effect.succeed(at < 0 ? count : at)
}
