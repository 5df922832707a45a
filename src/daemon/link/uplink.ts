import { Effect, Latch, Random, Semaphore } from "effect"
import type { ControlPlane } from "../../api/ControlPlane.ts"
import type { Registration } from "../../domain/NodeMessages.ts"
import type { IoError } from "../files/fsio.ts"
import type { Uplink } from "./ReportOutbox.ts"

const FIRST = 200
const LONGEST = 10_000

export interface UplinkOptions {
  readonly control_plane: ControlPlane["Service"]
  /** Made anew for each attempt: it says what the node has now. */
  readonly registration: Effect.Effect<Registration, IoError>
  /** Told to tear these servers down: their records are gone. */
  readonly onDelete: (ids: ReadonlyArray<string>) => Effect.Effect<void>
}

/** This node's connection to the control plane; nothing but registrations is sent before the first one worked. */
export const makeUplink = Effect.fnUntraced(function* (options: UplinkOptions) {
  const { control_plane, onDelete, registration } = options
  const { id, boot_id } = yield* registration
  const registered = yield* Latch.make(false)
  const registering = yield* Semaphore.make(1)
  let times = 0

  const attempt = Effect.gen(function* () {
    const answer = yield* control_plane.register(yield* registration)
    times++
    yield* registered.open
    return answer.delete
  })

  const untilDone = Effect.gen(function* () {
    let pause = FIRST
    while (true) {
      const outcome = yield* Effect.result(attempt)
      if (outcome._tag === "Success") return outcome.success
      const { failure } = outcome
      const reason = failure._tag === "IoError" ? failure.message : failure.detail
      // Once said is enough: the control plane may be away for long.
      yield* pause === FIRST
        ? Effect.logWarning(`cannot register: ${reason}`)
        : Effect.logDebug(`cannot register: ${reason}`)
      yield* Effect.sleep(pause * (0.5 + (yield* Random.next) / 2))
      pause = Math.min(pause * 2, LONGEST)
    }
  })

  /** Many may ask at once; one registration serves them all. */
  const register = Effect.suspend(() => {
    const before = times
    return registering.withPermit(
      Effect.suspend(() =>
        times > before && registered.isOpen() ? Effect.void : Effect.flatMap(untilDone, onDelete)
      )
    )
  })

  const uplink: Uplink = {
    register,
    report: (report) => Effect.andThen(registered.await, control_plane.report(id, boot_id, report))
  }
  return uplink
})
