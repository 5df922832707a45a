/** Schedules of blueprints, which the leader stores as today's blueprints have them (spec 13.7). */
import { createHash } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { Clock, Effect, Result } from "effect"
import type { Blueprint } from "../../contract/domain/Blueprint.ts"
import { serverId } from "../../contract/domain/Id.ts"
import type { ScheduleRecord, ScheduleSettings } from "../../contract/domain/Schedule.ts"
import { timesOf } from "../../shared/work/cronTimes.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { ScheduleRepo } from "../store/repos/ScheduleRepo.ts"
import { Store } from "../store/Store.ts"

/** Returns the id of a schedule. It follows from the blueprint and the name, so that no two leaders store two. */
const idOf = (blueprint_id: string, name: string): string =>
  serverId(
    createHash("sha256")
      .update(JSON.stringify(["schedule", blueprint_id, name]))
      .digest()
  )

const wantedBy = (blueprints: ReadonlyMap<string, Blueprint>): ReadonlyMap<string, ScheduleSettings> =>
  new Map(
    [...blueprints].flatMap(([blueprint_id, { schedules = [] }]) =>
      schedules.map((schedule) => [
        idOf(blueprint_id, schedule.name),
        { ...schedule, selector: { blueprint_id }, source: "blueprint" }
      ])
    )
  )

/** Returns the next time of settings, unless they are disabled. */
const nextAt = ({ cron, enabled, timezone }: ScheduleSettings, now: number): string | null => {
  const times = enabled ? timesOf(cron, timezone) : Result.fail("")
  const next = Result.isFailure(times) ? undefined : times.success.next(now)
  return next === undefined ? null : new Date(next).toISOString()
}

/** Returns the row of a schedule whose settings have changed, or of a new one. It acts with the rights of the service. */
const rowOf = (
  id: string,
  settings: ScheduleSettings,
  before: ScheduleRecord | undefined,
  now: number
): ScheduleRecord => {
  const hasSameTimes =
    before?.enabled === settings.enabled &&
    before.settings.cron === settings.cron &&
    before.settings.timezone === settings.timezone
  return {
    id,
    settings,
    enabled: settings.enabled,
    server_id: null,
    next_at: hasSameTimes ? before.next_at : nextAt(settings, now),
    created_by: null,
    created_at: before?.created_at ?? new Date(now).toISOString()
  }
}

/**
 * Makes the function that creates, changes and removes schedules as today's blueprints have them, unless it has done so
 * for these blueprints. It returns the blueprints once nothing is left to do.
 */
export const makeBlueprintSchedules = Effect.gen(function* () {
  const { whole } = yield* BlueprintStore
  const repo = yield* ScheduleRepo
  const store = yield* Store

  /** Removes a schedule with its runs; while one is unfinished, the schedule is disabled. Returns whether it is gone. */
  const remove = Effect.fnUntraced(function* (record: ScheduleRecord) {
    const isGone = (yield* repo.unfinished(record.id)).length === 0
    if (isGone) yield* repo.remove(record.id)
    else if (record.enabled) {
      const settings = { ...record.settings, enabled: false }
      yield* repo.save({ ...record, settings, enabled: false, next_at: null })
    }
    return isGone
  })

  return Effect.fnUntraced(function* (done: ReadonlyMap<string, Blueprint> | undefined) {
    const { blueprints, isWhole } = yield* whole
    if (blueprints === done) return done
    const wanted = wantedBy(blueprints)
    const now = yield* Clock.currentTimeMillis
    const reconcile = Effect.gen(function* () {
      const stored = (yield* repo.all).filter(({ settings }) => settings.source === "blueprint")
      const before = new Map(stored.map((record) => [record.id, record]))
      for (const [id, settings] of wanted) {
        const record = before.get(id)
        if (record === undefined) yield* repo.insert(rowOf(id, settings, record, now))
        else if (!isDeepStrictEqual(record.settings, settings))
          yield* repo.save(rowOf(id, settings, record, now))
      }
      // A blueprint that could not be read at the start keeps its schedules.
      const surplus = isWhole ? stored.filter(({ id }) => !wanted.has(id)) : []
      return yield* Effect.forEach(surplus, remove)
    })
    const removed = yield* store.write(reconcile)
    return removed.every((isGone) => isGone) ? blueprints : undefined
  })
})
