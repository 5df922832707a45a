/**
 * The link of a node to the control plane. Imports `state` and `disk`. Read first: this file, `ReportOutbox.ts`
 * (reports, in order and at least once), `ControlPlaneClient.ts` (HTTP).
 */
import { Cause, Deferred, Duration, Effect, Fiber, Latch, Schedule, Semaphore } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import {
  type Heartbeat,
  MOST_REPORTS,
  type Registration,
  type RegistrationAnswer,
  type Report,
  type TakenPort
} from "../../contract/domain/NodeMessages.ts"
import {
  type ControlPlane,
  type ControlPlaneError,
  ControlPlaneUnavailable
} from "../../contract/nodeApi/ControlPlaneApi.ts"
import { backoff } from "../../shared/work/backoff.ts"
import type { IoError } from "../disk/fsio.ts"

interface Waiting {
  readonly reports: ReadonlyArray<Report>
  readonly answered: Deferred.Deferred<number, ControlPlaneError>
}

/** Joins the reports of servers in messages. @param message sends one message, see `ControlPlane.reports` */
export const makeReportSender = (
  message: (
    reports: ReadonlyArray<Report>
  ) => Effect.Effect<ReadonlyArray<ControlPlaneError | undefined>, ControlPlaneError>
) => {
  const queue: Array<Waiting> = []
  const arrived = Latch.makeUnsafe(false)

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
        // A refused report of one server must not block the reports of other servers.
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
    /** Sends a server's reports; returns how many are acknowledged. @error ControlPlaneError none is */
    send: (reports: ReadonlyArray<Report>) =>
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
    /** Sends messages, one at a time, each with the reports that waited for the previous one; never ends. */
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

/** The shortest pause after the control plane limited the rate of registrations. */
const RATE_LIMITED_PAUSE = Duration.seconds(1)
const RETRY = backoff({ first: "200 millis", longest: "10 seconds" }).pipe(
  Schedule.setInputType<ControlPlaneUnavailable | IoError>(),
  Schedule.modifyDelay(({ duration, input }) =>
    Effect.succeed(
      input._tag === "ControlPlaneUnavailable" && input.busy === true
        ? Duration.max(duration, RATE_LIMITED_PAUSE)
        : duration
    )
  )
)

export interface UplinkOptions {
  readonly controlPlane: ControlPlane["Service"]
  /** Evaluated for each attempt, so that it has the current servers. */
  readonly registration: Effect.Effect<Registration, IoError>
  /** Applies the answer: removes the servers that it lists. */
  readonly onRegistered: (answer: RegistrationAnswer) => Effect.Effect<void>
}

const reregistered = new ControlPlaneUnavailable({ detail: "the node was registered again" })

const needsRegistration = (error: ControlPlaneError) =>
  error._tag === "RegistrationRequired" || error.refuses === "node"

/** Opens the link of this node to the control plane. Before the first registration, no other message is sent. */
export const makeUplink = Effect.fnUntraced(function* (options: UplinkOptions) {
  const { controlPlane, onRegistered, registration } = options
  const { id, boot_id } = yield* registration
  const scope = yield* Effect.scope
  const registered = yield* Latch.make(false)
  const registering = yield* Semaphore.make(1)
  const sender = makeReportSender((reports) => controlPlane.reports(id, boot_id, reports))
  yield* Effect.forkScoped(sender.run)
  let registrations = 0
  let disconnected = false
  let reconnection = Latch.makeUnsafe(false)

  const failed = Effect.sync(() => {
    disconnected = true
  })
  const responded = Effect.sync(() => {
    if (!disconnected) return
    disconnected = false
    reconnection.openUnsafe()
    reconnection = Latch.makeUnsafe(false)
  })

  const attempt = Effect.gen(function* () {
    const answer = yield* controlPlane.register(yield* registration)
    registrations++
    yield* registered.open
    yield* responded
    return answer
  })

  const registerWithRetry = Effect.gen(function* () {
    yield* registered.close
    let isFirst = true
    // The link logs the reasons of the control plane once, itself.
    const logFailure = (failure: ControlPlaneUnavailable | IoError) => {
      const reason = failure._tag === "IoError" ? failure.message : failure.detail
      const log = failure._tag === "IoError" && isFirst ? Effect.logWarning : Effect.logDebug
      isFirst = false
      return log(`cannot register: ${reason}`)
    }
    return yield* attempt.pipe(Effect.tapError(logFailure), Effect.retry(RETRY), Effect.orDie)
  })

  /** Registers unless another caller has since `before`. It outlives its first caller, because others may wait. */
  const registerAfter = (before: number) =>
    registering
      .withPermit(
        Effect.suspend(() =>
          registrations > before && registered.isOpen()
            ? Effect.void
            : Effect.flatMap(registerWithRetry, onRegistered)
        )
      )
      .pipe(Effect.forkIn(scope), Effect.flatMap(Fiber.join))
  const register = Effect.suspend(() => registerAfter(registrations))

  /** Runs a call. If the control plane requires a registration, registers, unless another caller has done so since. */
  const withReregistration = <A>(call: Effect.Effect<A, ControlPlaneError>) =>
    Effect.suspend(() => {
      const before = registrations
      return call.pipe(
        Effect.tap(responded),
        Effect.tapError((error) =>
          error._tag === "ControlPlaneUnavailable" && error.refuses === undefined ? failed : Effect.void
        ),
        Effect.catchIf(needsRegistration, () =>
          Effect.andThen(registerAfter(before), Effect.fail(reregistered))
        )
      )
    })

  return {
    /** Registers again with the current list of servers; retries until it succeeds. */
    register,
    /** Completes when the control plane responds again after an outage. */
    reconnected: Effect.suspend(() => reconnection.await),
    /** As `ControlPlane.replacePorts`, when registered. */
    replacePorts: (server_id: ServerId, taken: ReadonlyArray<TakenPort>) =>
      Effect.andThen(registered.await, controlPlane.replacePorts(id, boot_id, server_id, taken)),
    /** As `ControlPlane.files`, when registered. */
    files: (server_id: ServerId) => Effect.andThen(registered.await, controlPlane.files(id, server_id)),
    /**
     * Sends at most `MOST_REPORTS` of a server when registered, and returns how many are acknowledged, at least one.
     * @error ControlPlaneError the first is not acknowledged
     */
    report: (reports: ReadonlyArray<Report>) =>
      Effect.andThen(registered.await, withReregistration(sender.send(reports))),
    /** Sends a heartbeat; returns whether the control plane responded. */
    heartbeat: (load: Omit<Heartbeat, "boot_id">): Effect.Effect<boolean> =>
      withReregistration(controlPlane.heartbeat(id, { boot_id, ...load })).pipe(
        Effect.as(true),
        Effect.catch((error) =>
          error === reregistered
            ? Effect.succeed(true)
            : Effect.as(
                Effect.logDebug(
                  `heartbeat: ${error._tag === "ControlPlaneUnavailable" ? error.detail : error._tag}`
                ),
                false
              )
        )
      )
  }
})

export type Uplink = Effect.Success<ReturnType<typeof makeUplink>>
