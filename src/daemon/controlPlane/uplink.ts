import { Effect, Fiber, Latch, Random, Semaphore } from "effect"
import { type ControlPlane, type ControlPlaneError, ControlPlaneUnavailable } from "../../api/ControlPlane.ts"
import type { Heartbeat, Registration, RegistrationAnswer } from "../../domain/NodeMessages.ts"
import type { IoError } from "../disk/fsio.ts"
import type { Uplink } from "./ReportOutbox.ts"

const FIRST = 200
const LONGEST = 10_000
/** Least pause after a control plane has answered that registrations come too fast, in ms. */
const TOO_FAST = 1000
/** Reports that are on their way at the same time; connections are left for heartbeats. */
const REPORTS = 16

export interface UplinkOptions {
  readonly control_plane: ControlPlane["Service"]
  /** Made anew for each attempt: it says what the node has now. */
  readonly registration: Effect.Effect<Registration, IoError>
  /** Told what becomes of servers that are not to be here. */
  readonly onAnswer: (answer: RegistrationAnswer) => Effect.Effect<void>
}

const registeredAgain = new ControlPlaneUnavailable({ detail: "the node had to register again" })

/** Whether only a registration helps. */
const asksForRegistration = (error: ControlPlaneError) =>
  error._tag === "RegistrationRequired" || error.refuses === "node"

/** This node's connection to the control plane; nothing but registrations is sent before the first one worked. */
export const makeUplink = Effect.fnUntraced(function* (options: UplinkOptions) {
  const { control_plane, onAnswer, registration } = options
  const { id, boot_id } = yield* registration
  const scope = yield* Effect.scope
  const registered = yield* Latch.make(false)
  const registering = yield* Semaphore.make(1)
  const sending = yield* Semaphore.make(REPORTS)
  /** Registrations that have worked. */
  let times = 0
  /** Whether a call has failed since the last one that has not. */
  let away = false
  let again = Latch.makeUnsafe(false)

  const failed = Effect.sync(() => {
    away = true
  })
  const heard = Effect.sync(() => {
    if (!away) return
    away = false
    again.openUnsafe()
    again = Latch.makeUnsafe(false)
  })

  const attempt = Effect.gen(function* () {
    const answer = yield* control_plane.register(yield* registration)
    times++
    yield* registered.open
    yield* heard
    return answer
  })

  const untilDone = Effect.gen(function* () {
    let pause = FIRST
    yield* registered.close
    while (true) {
      const outcome = yield* Effect.result(attempt)
      if (outcome._tag === "Success") return outcome.success
      const { failure } = outcome
      // The connection to the control plane says itself, once, what is wrong with it.
      yield* failure._tag === "IoError" && pause === FIRST
        ? Effect.logWarning(`cannot register: ${failure.message}`)
        : Effect.logDebug(`cannot register: ${failure._tag === "IoError" ? failure.message : failure.detail}`)
      const least = failure._tag === "ControlPlaneUnavailable" && failure.busy === true ? TOO_FAST : 0
      yield* Effect.sleep(Math.max(least, pause * (0.5 + (yield* Random.next) / 2)))
      pause = Math.min(pause * 2, LONGEST)
    }
  })

  /**
   * Many may ask at once; one registration after `before` serves them all. It goes on without who has asked first: that
   * may be a server that is being removed, and everybody else waits for it.
   */
  const registerAfter = (before: number) =>
    registering
      .withPermit(
        Effect.suspend(() =>
          times > before && registered.isOpen() ? Effect.void : Effect.flatMap(untilDone, onAnswer)
        )
      )
      .pipe(Effect.forkIn(scope), Effect.flatMap(Fiber.join))
  const register = Effect.suspend(() => registerAfter(times))

  /** A call of the node as it was registered when the call was made. */
  const asRegistered = <A>(call: Effect.Effect<A, ControlPlaneError>) =>
    Effect.suspend(() => {
      const before = times
      return call.pipe(
        Effect.tap(heard),
        Effect.tapError((error) =>
          error._tag === "ControlPlaneUnavailable" && error.refuses === undefined ? failed : Effect.void
        ),
        Effect.catchIf(asksForRegistration, () =>
          Effect.andThen(registerAfter(before), Effect.fail(registeredAgain))
        )
      )
    })

  const uplink: Uplink = {
    register,
    heardAgain: Effect.suspend(() => again.await),
    files: (server_id) => Effect.andThen(registered.await, control_plane.files(id, server_id)),
    report: (report) =>
      Effect.andThen(
        registered.await,
        asRegistered(sending.withPermit(control_plane.report(id, boot_id, report)))
      )
  }
  return {
    ...uplink,
    /** A sign of life; answers whether the control plane was there. */
    beat: (load: Omit<Heartbeat, "boot_id">): Effect.Effect<boolean> =>
      asRegistered(control_plane.heartbeat(id, { boot_id, ...load })).pipe(
        Effect.as(true),
        Effect.catch((error) =>
          error === registeredAgain
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
