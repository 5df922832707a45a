import { Clock, Effect, Option } from "effect"
import { TestClock } from "effect/testing"
import type { CreateSchedule } from "../../../src/contract/api/SchedulesGroup.ts"
import { CurrentPrincipal, type Principal } from "../../../src/controlPlane/http/Principal.ts"
import { until } from "../../support/eventually.ts"
import { branded, type Plain } from "../../support/ids.ts"
import type { makeHarness } from "../servers/support/harness.ts"

export type Harness = Effect.Success<ReturnType<typeof makeHarness>>
export type Plane = Effect.Success<ReturnType<Harness["start"]>>

export const admin: Principal = { key_id: "env", name: "admin", scope: "AppAdmin" }

export const as = (principal: Principal) => Effect.provideService(CurrentPrincipal, principal)

export const schedule = (change: Partial<Plain<CreateSchedule>> = {}): CreateSchedule => ({
  name: "nightly",
  cron: "0 4 * * *",
  steps: [{ power: "restart" }],
  ...branded<Partial<CreateSchedule>>(change)
})

/** Runs an effect by the clock of the test, in whole milliseconds. `shift` sets the wall clock; timers stay as they are. */
export const byWallClock = <A, E, R>(
  use: (shift: (hours: number) => void) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.flatMap(Clock.Clock, (clock) => {
    let shifted = 0
    const now = () => Math.floor(clock.currentTimeMillisUnsafe()) + shifted
    const wall: Clock.Clock = Object.assign(Object.create(clock), {
      currentTimeMillisUnsafe: now,
      currentTimeMillis: Effect.sync(now)
    })
    const shift = (hours: number) => {
      shifted += hours * 3_600_000
    }
    return Effect.provideService(use(shift), Clock.Clock, wall)
  })

/** All runs of a schedule, newest first. */
export const runsOf = (plane: Plane, id: string) =>
  Effect.map(plane.schedules.runs(id, { limit: 20 }).pipe(as(admin), Effect.orDie), ({ runs }) => runs)

/** Lets time pass in small parts, between which the work runs, until a condition holds. */
export const passUntil = <E>(what: string, holds: Effect.Effect<boolean, E>, part = "500 millis" as const) =>
  until(what, Effect.andThen(TestClock.adjust(part), holds))

/** Waits for the newest run of a schedule that is over. */
export const ended = Effect.fnUntraced(function* (plane: Plane, id: string, part?: "500 millis") {
  const over = Effect.map(runsOf(plane, id), ([run]) => run !== undefined && run.state !== "running")
  yield* passUntil("the run is over", over, part)
  const [run] = yield* runsOf(plane, id)
  return Option.getOrThrow(Option.fromUndefinedOr(run))
})
