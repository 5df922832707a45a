import { Clock, Duration, Effect, Latch, Layer, Result } from "effect"
import type { InvalidRequest, Unavailable } from "../../contract/domain/errors.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import {
  MOST_SERVERS,
  type RunServerRecord,
  type ScheduleRecord,
  type ScheduleRunRecord
} from "../../contract/domain/Schedule.ts"
import { backoff } from "../../shared/work/backoff.ts"
import { type Times, timesOf } from "../../shared/work/cronTimes.ts"
import { makeWorkQueue, type StepOutcome } from "../../shared/work/WorkQueue.ts"
import { CurrentPrincipal, type Principal } from "../http/Principal.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { followChanges } from "../store/journal/Journal.ts"
import { Leadership } from "../store/Leadership.ts"
import { ScheduleRepo } from "../store/repos/ScheduleRepo.ts"
import { Store } from "../store/Store.ts"
import { databaseRetrySchedule } from "../store/sql/sqlErrors.ts"
import { makeBlueprintSchedules } from "./blueprintSchedules.ts"
import { makeRunWork, type RunContext } from "./runWork.ts"
import { Schedules } from "./Schedules.ts"
import { makeScheduleServers } from "./scheduleChecks.ts"
import { announce, newRun, tooManyServers } from "./scheduleRuns.ts"
import { SchedulesOptions } from "./steps.ts"

/** Schedules that one look at the clock begins at most. */
const AT_ONCE = 100

export const KEY_ENDED = "the key of the schedule is revoked or has expired"

const HOUR = 3_600_000

/** Returns the last time up to `now`, from a due time that has passed. */
export const lastTime = (times: Times, due: number, now: number): number => {
  for (let back = HOUR; ; back *= 8) {
    const from = Math.max(due, now - back)
    let last = from === due ? due : undefined
    let at = times.next(from === due ? due : from - 1)
    while (at !== undefined && at <= now) {
      last = at
      at = times.next(at)
    }
    if (last !== undefined) return last
  }
}

const actingAs = <A, E, R>(principal: Principal | undefined, effect: Effect.Effect<A, E, R>) =>
  Effect.provideService(effect, CurrentPrincipal, principal)

/** Begins the runs of schedules whose time has come. */
const makeTick = Effect.gen(function* () {
  const index = yield* ServerIndex
  const keys = yield* ApiKeys
  const options = yield* SchedulesOptions
  const repo = yield* ScheduleRepo
  const servers = yield* makeScheduleServers
  const store = yield* Store
  const grace = Duration.toMillis(options.grace)

  const iso = (at: number) => new Date(at).toISOString()

  /** Decides what becomes of a due time. */
  const decide = Effect.fnUntraced(function* (
    schedule: ScheduleRecord,
    last: number,
    now: number,
    hasKey: boolean
  ) {
    const { catch_up, missed, overlap } = schedule.settings
    const due_at = iso(last)
    const over = { finished_at: iso(now) }
    if (!hasKey) return newRun(schedule, { due_at, state: "failed", reason: KEY_ENDED, ...over })
    const late = now - last
    if (late > grace && (missed === "skip" || late > catch_up * 1000)) {
      const reason = `the service was not there at this time, and ${Math.round(late / 1000)} s late`
      return newRun(schedule, { due_at, state: "missed", reason, ...over })
    }
    const before = yield* repo.unfinished(schedule.id)
    if (before.length > (overlap === "queue" ? 1 : 0)) {
      const reason = `the run before, ${before[0]?.id}, still runs`
      return newRun(schedule, { due_at, state: "skipped", reason, ...over })
    }
    return newRun(schedule, { due_at })
  })

  const fire = Effect.fnUntraced(function* (schedule: ScheduleRecord, now: number) {
    const { created_by, id, next_at, settings } = schedule
    if (next_at === null) return
    const read = timesOf(settings.cron, settings.timezone)
    const due = Date.parse(next_at)
    // A zone may be unknown to another version of the platform.
    const times = Result.getOrElse(
      read,
      (): Times => ({ next: () => undefined, offset: () => 0, isFixed: true })
    )
    const holder = created_by === null ? undefined : yield* keys.validHolder(created_by)
    const hasKey = created_by === null || holder !== undefined
    const next = hasKey ? times.next(now) : undefined
    const matching = Effect.catch(actingAs(holder, servers.select(settings)), () => Effect.succeed([]))
    const ids = (yield* matching).slice(0, MOST_SERVERS)
    const fired = Effect.gen(function* () {
      const to = next === undefined ? null : iso(next)
      if (!(yield* repo.advance(id, next_at, to, hasKey && schedule.enabled))) return undefined
      const run = yield* decide(schedule, lastTime(times, due, now), now, hasKey)
      if (!(yield* repo.insertRun(run))) return undefined
      const news = { run, name: settings.name, state: "missed", reason: run.reason } as const
      const missed = run.state === "missed" ? ids : []
      for (const server_id of missed) yield* announce(server_id, index.factsOf(server_id), news)
      return run
    })
    const run = yield* store.write(fired)
    if (run === undefined || run.state === "running") return
    yield* Effect.annotateLogs(Effect.logWarning(`a schedule did not run: ${run.state}: ${run.reason}`), {
      schedule_id: id
    })
  })

  return Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const due = yield* store.read(repo.due(iso(now), AT_ONCE))
    for (const schedule of due) yield* fire(schedule, now)
    const next = yield* store.read(repo.nextAt)
    return next === undefined ? undefined : Date.parse(next) - now
  })
})

/** Waits until a run must end before its work is done, and returns how. */
const makeEndings = Effect.gen(function* () {
  const keys = yield* ApiKeys
  const repo = yield* ScheduleRepo
  const store = yield* Store
  /** By run that is worked on: opened when it changes. */
  const changed = new Map<string, Latch.Latch>()

  const cancelled = Effect.fnUntraced(function* ({ id }: ScheduleRunRecord) {
    const latch = Latch.makeUnsafe(false)
    changed.set(id, latch)
    yield* Effect.addFinalizer(() => Effect.sync(() => void changed.delete(id)))
    while (true) {
      latch.closeUnsafe()
      const now = yield* Effect.retry(store.read(repo.findRun(id)), databaseRetrySchedule)
      if (now?.cancelling !== null && now !== undefined)
        return { state: "cancelled" as const, reason: now.cancelling }
      yield* latch.await
    }
  }, Effect.scoped)

  return {
    wake: (id: string) => changed.get(id)?.openUnsafe(),
    awaited: (run: ScheduleRunRecord) =>
      run.created_by === null
        ? cancelled(run)
        : Effect.raceFirst(
            cancelled(run),
            Effect.as(keys.ended(run.created_by), { state: "failed" as const, reason: KEY_ENDED })
          )
  } as const
})

/** Works on one run until its end. */
const makeWorkOn = Effect.gen(function* () {
  const keys = yield* ApiKeys
  const repo = yield* ScheduleRepo
  const servers = yield* makeScheduleServers
  const store = yield* Store
  const endings = yield* makeEndings
  const { endServers, outcomeOf, work } = yield* makeRunWork

  const end = Effect.fnUntraced(function* (
    run: ScheduleRunRecord,
    how: Pick<ScheduleRunRecord, "state" | "reason">
  ) {
    const finished_at = yield* nowText
    yield* store.write(repo.end(run, { ...how, finished_at }))
    const log = `run ${how.state}${how.reason === null ? "" : `: ${how.reason}`}`
    yield* Effect.logWithLevel(how.state === "failed" ? "Warn" : "Info")(log)
    return "done" as const
  })

  /** Stores the servers of a run; returns how it ends if there is nothing to do. */
  const begin = Effect.fnUntraced(function* ({ principal, run, settings }: RunContext) {
    const ids = yield* actingAs(principal, servers.select(settings))
    if (ids.length === 0) return { state: "skipped" as const, reason: "no server matches" }
    if (ids.length > MOST_SERVERS)
      return {
        state: "failed" as const,
        reason: tooManyServers(ids.length)
      }
    const rows = ids.map(
      (server_id, position): RunServerRecord => ({
        ...{ run_id: run.id, server_id, position, state: "queued", step: 0 },
        ...{ begun_at: null, warned: 0, stopped: false, reason: null }
      })
    )
    yield* store.write(repo.begin(run, yield* nowText, rows))
    return undefined
  })

  const step = Effect.fnUntraced(function* (
    id: string
  ): Effect.fn.Return<StepOutcome, Unavailable | InvalidRequest> {
    const run = yield* store.read(repo.findRun(id))
    if (run === undefined || run.finished_at !== null || run.settings === null) return "done"
    if (run.started_at === null) {
      const [first] = yield* store.read(repo.unfinished(run.schedule_id))
      // The end of the run before wakes it.
      if (first !== undefined && first.id !== id && run.cancelling === null) return "again"
    }
    const holder = run.created_by === null ? undefined : yield* keys.validHolder(run.created_by)
    const at = { run, settings: run.settings, principal: holder }
    const early =
      run.created_by !== null && holder === undefined
        ? { state: "failed" as const, reason: KEY_ENDED }
        : run.cancelling !== null
          ? { state: "cancelled" as const, reason: run.cancelling }
          : yield* Effect.raceFirst(
              endings.awaited(run),
              Effect.gen(function* () {
                const nothing = run.started_at === null ? yield* begin(at) : undefined
                if (nothing !== undefined) return nothing
                yield* work(at)
                return undefined
              })
            )
    if (early?.state === "failed" || early?.state === "cancelled")
      yield* endServers(at, early.state, early.reason)
    return yield* end(run, early ?? (yield* outcomeOf(at)))
  })

  return { step, wake: endings.wake } as const
})

/** Runs schedules on the leader (spec 13.5). The state is in the database, and each step can be repeated. */
export const ScheduleLeader = Layer.effectDiscard(
  Effect.gen(function* () {
    const leadership = yield* Leadership
    const options = yield* SchedulesOptions
    const repo = yield* ScheduleRepo
    const store = yield* Store
    const tick = yield* makeTick
    const reconcile = yield* makeBlueprintSchedules
    const { step, wake } = yield* makeWorkOn
    const look = Duration.toMillis(options.look)
    const changed = Latch.makeUnsafe(false)

    const queue = yield* makeWorkQueue({
      name: "run of a schedule",
      fields: (run_id: string) => ({ run_id }),
      step,
      backoff: backoff({ first: "200 millis", longest: "5 seconds" }),
      leadership,
      resume: Effect.map(store.read(repo.unfinished()), (runs) => runs.map(({ id }) => id))
    })

    const clock = Effect.gen(function* () {
      let blueprints: Effect.Success<ReturnType<typeof reconcile>>
      while (true) {
        changed.closeUnsafe()
        blueprints = yield* Effect.retry(reconcile(blueprints), databaseRetrySchedule)
        const rest = yield* Effect.retry(tick, databaseRetrySchedule)
        // The clock can be set at any moment, so no sleep is long.
        const sleep = Effect.sleep(Duration.millis(Math.max(0, Math.min(rest ?? look, look))))
        yield* Effect.raceFirst(sleep, changed.await)
      }
    })
    yield* leadership.whileLeader(clock)

    yield* followChanges("controllers", (change) => {
      if (change.topic === "definitions:reloaded") changed.openUnsafe()
      if (change.topic !== "schedule:changed") return
      if (change.run_id === null) changed.openUnsafe()
      else {
        wake(change.run_id)
        queue.add(change.run_id)
        // A run that waits for this one.
        for (const id of queue.keys()) if (id !== change.run_id) queue.add(id)
      }
    })
  })
)

/** Schedules with the work of the leader. */
export const layerSchedules = Layer.merge(Schedules.layer, ScheduleLeader)
