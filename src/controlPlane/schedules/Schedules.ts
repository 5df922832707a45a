/**
 * Schedules: steps that servers go through at fixed times (spec 13). `Schedules` stores and shows them, `ScheduleLeader`
 * begins their runs, `runWork` goes through the steps. Begin with `Schedules`, `times`, `ScheduleLeader`.
 */
import { Clock, Context, Effect, Layer, Option } from "effect"
import type { CreateSchedule, PatchSchedule } from "../../contract/api/SchedulesGroup.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest } from "../../contract/domain/errors.ts"
import { type ServerId, serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import {
  MOST_OF_SERVER,
  MOST_SCHEDULES,
  MOST_SERVERS,
  type ScheduleRecord,
  type ScheduleSettings,
  scheduleDefaults
} from "../../contract/domain/Schedule.ts"
import { nextTimes } from "../../shared/work/cronTimes.ts"
import { BackupTargets } from "../backups/BackupTargets.ts"
import { CurrentPrincipal, currentCreator } from "../http/Principal.ts"
import { unknownAfter } from "../servers/list/listQuery.ts"
import { ScheduleRepo } from "../store/repos/ScheduleRepo.ts"
import { WebhookRepo } from "../store/repos/WebhookRepo.ts"
import { Store } from "../store/Store.ts"
import {
  checkTimes,
  lackingFor,
  lackingRights,
  makeScheduleServers,
  requireRights
} from "./scheduleChecks.ts"
import { makeRuns, makeView, stillRuns, tooManyServers } from "./scheduleRuns.ts"

const PLANNED_TIMES = 10
/** Servers that a plan names. */
const PLANNED_SERVERS = 1_000

const settingsOf = (given: CreateSchedule): ScheduleSettings => ({
  ...scheduleDefaults,
  ...given,
  source: "api"
})

/** Returns settings after a change; a new server replaces the selector, and a selector the server. */
const changedSettings = (
  before: ScheduleSettings,
  { only_if, selector, server_id, ...given }: PatchSchedule
): ScheduleSettings => {
  const { only_if: condition, selector: _, server_id: __, ...kept } = before
  const servers = { selector: before.selector, server_id: before.server_id }
  const chosen = selector !== undefined ? { selector } : server_id !== undefined ? { server_id } : servers
  const next = only_if === undefined ? condition : (only_if ?? undefined)
  return {
    ...kept,
    ...given,
    ...(chosen.selector === undefined ? {} : { selector: chosen.selector }),
    ...(chosen.server_id === undefined ? {} : { server_id: chosen.server_id }),
    ...(next === undefined ? {} : { only_if: next })
  }
}

const tooMany = (detail: string) =>
  new Conflict({ detail, hint: "Delete a schedule that is not needed: GET /api/schedules lists them." })

/** 409: only the files of blueprints change the schedule (spec 13.7). */
const refuseOfBlueprint = ({ id, settings: { name, selector, source } }: ScheduleRecord) => {
  if (source === "api") return Effect.void
  const left = JSON.stringify({ schedules: { [name]: null } })
  return new Conflict({
    detail: `schedule ${id} is \`${name}\` of blueprint ${selector?.blueprint_id}`,
    hint: `Change \`schedules\` in the file of the blueprint or its mixin, then POST /api/blueprints/reload. One server leaves it out with the overrides ${left}.`
  })
}

const isoOf = (at: number | undefined) => (at === undefined ? null : new Date(at).toISOString())

/** Checks the times and the servers of a schedule with the targets of some steps, and returns its times. */
const makeCheck = Effect.gen(function* () {
  const servers = yield* makeScheduleServers
  const targets = yield* BackupTargets
  return Effect.fnUntraced(function* (settings: ScheduleSettings, now: number, steps = settings.steps) {
    const times = yield* checkTimes(settings, now)
    if (settings.server_id === undefined) yield* servers.select(settings)
    else yield* servers.find(settings.server_id)
    const caller = yield* CurrentPrincipal
    for (const [index, step] of steps.entries()) {
      const target = "backup" in step ? step.backup.target : undefined
      // A key that may not make backups does not learn which targets there are.
      if (target !== undefined && lackingFor(caller, step) === undefined)
        yield* targets.check(target, `body field steps: step ${index + 1}`)
    }
    return times
  })
})

/** Shows what a schedule would do. */
const makePlan = Effect.gen(function* () {
  const check = yield* makeCheck
  const servers = yield* makeScheduleServers
  const store = yield* Store
  const webhooks = yield* WebhookRepo

  return Effect.fn("Schedules.plan")(function* (request: CreateSchedule) {
    const settings = settingsOf(request)
    const now = yield* Clock.currentTimeMillis
    const times = yield* check(settings, now)
    const ids = yield* servers.select(settings)
    const known = new Set((yield* store.read(webhooks.all)).map(({ id }) => String(id)))
    const unknown = settings.steps.flatMap((step, index) =>
      "webhook" in step && !known.has(step.webhook)
        ? [`step ${index + 1}: no webhook has this id: ${step.webhook}`]
        : []
    )
    return {
      times: nextTimes(times, now, PLANNED_TIMES).map(({ at, ...note }) => ({
        at: new Date(at).toISOString(),
        ...note
      })),
      servers_total: ids.length,
      servers: ids.slice(0, PLANNED_SERVERS),
      problems: [
        ...lackingRights(yield* CurrentPrincipal, settings),
        ...unknown,
        ...(ids.length === 0 ? ["no server matches the selector today"] : []),
        ...(ids.length > MOST_SERVERS ? [tooManyServers(ids.length)] : [])
      ]
    }
  })
})

/** Creates, changes and deletes schedules. */
const makeChanges = Effect.gen(function* () {
  const repo = yield* ScheduleRepo
  const store = yield* Store
  const check = yield* makeCheck
  const { find, read } = yield* makeView

  const checkBounds = Effect.fnUntraced(function* (server_id: ServerId | undefined) {
    if ((yield* repo.count()) >= MOST_SCHEDULES)
      return yield* tooMany(`there are ${MOST_SCHEDULES} schedules`)
    yield* checkOfServer(server_id)
  })

  const checkOfServer = Effect.fnUntraced(function* (server_id: ServerId | undefined) {
    if (server_id !== undefined && (yield* repo.count(server_id)) >= MOST_OF_SERVER)
      return yield* tooMany(`server ${server_id} has ${MOST_OF_SERVER} schedules`)
  })

  const create = Effect.fn("Schedules.create")(function* (request: CreateSchedule) {
    const settings = settingsOf(request)
    const now = yield* Clock.currentTimeMillis
    const times = yield* check(settings, now)
    yield* requireRights(settings)
    const id = serverId(idBytes(16))
    yield* describeAudit({ id })
    const caller = yield* CurrentPrincipal
    const record: ScheduleRecord = {
      id,
      settings,
      enabled: settings.enabled,
      server_id: settings.server_id ?? null,
      next_at: settings.enabled ? isoOf(times.next(now)) : null,
      created_by: caller?.key_id ?? null,
      created_at: new Date(now).toISOString()
    }
    yield* store.write(Effect.andThen(checkBounds(settings.server_id), repo.insert(record)))
    yield* Effect.annotateLogs(Effect.logInfo("schedule created"), { schedule_id: id })
    return yield* read(id)
  })

  const patch = Effect.fn("Schedules.patch")(function* (id: string, change: PatchSchedule) {
    if (change.selector !== undefined && change.server_id !== undefined)
      return yield* new InvalidRequest({ detail: "body: expected either server_id or selector, got both" })
    const before = yield* store.read(find(id))
    yield* refuseOfBlueprint(before)
    const now = yield* Clock.currentTimeMillis
    const wanted = changedSettings(before.settings, change)
    // A schedule whose target is gone can still be paused.
    const times = yield* check(wanted, now, change.steps ?? [])
    yield* requireRights(wanted)
    const caller = yield* CurrentPrincipal
    const saved = Effect.gen(function* () {
      const present = yield* find(id)
      const settings = changedSettings(present.settings, change)
      const enabled = change.enabled ?? present.enabled
      if (settings.server_id !== undefined && settings.server_id !== present.server_id)
        yield* checkOfServer(settings.server_id)
      const isSame =
        enabled === present.enabled &&
        settings.cron === present.settings.cron &&
        settings.timezone === present.settings.timezone
      yield* repo.save({
        ...present,
        settings: { ...settings, enabled },
        enabled,
        server_id: settings.server_id ?? null,
        next_at: isSame ? present.next_at : enabled ? isoOf(times.next(now)) : null,
        created_by: caller?.key_id ?? null
      })
    })
    yield* store.write(saved)
    return yield* read(id)
  })

  const remove = Effect.fn("Schedules.remove")(function* (id: string) {
    const removed = Effect.gen(function* () {
      yield* refuseOfBlueprint(yield* find(id))
      const [run] = yield* repo.unfinished(id)
      if (run !== undefined) return yield* stillRuns(id, run.id)
      yield* repo.remove(id)
    })
    yield* store.write(removed)
  })

  return {
    /**
     * @error InvalidRequest times that cannot be read, or none; a backup target that is not defined
     * @error NotFound       the server does not exist, or the key may not read it
     * @error Forbidden      the key lacks the right of a step
     * @error Conflict       there are too many schedules, or a blueprint has it
     */
    create,
    /** Changes a schedule, which then has the rights of the caller. Errors as {@link create}. */
    patch,
    /** @error Conflict it runs, or a blueprint has it */
    remove
  } as const
})

/** Creates, changes and shows schedules; the leader runs them. */
export class Schedules extends Context.Service<Schedules>()("muster/schedules/Schedules", {
  make: Effect.gen(function* () {
    const repo = yield* ScheduleRepo
    const servers = yield* makeScheduleServers
    const store = yield* Store
    const { read, show } = yield* makeView

    const list = Effect.fn("Schedules.list")(function* ({
      after,
      limit,
      server_id
    }: {
      readonly after?: string
      readonly limit: number
      readonly server_id?: ServerId
    }) {
      const created_by = yield* currentCreator
      const found = server_id === undefined ? undefined : yield* Effect.option(servers.find(server_id))
      if (found !== undefined && Option.isNone(found)) return { schedules: [], next: undefined }
      const server = found?.value
      const rows = yield* store.read(
        repo.list({
          limit: server === undefined ? limit + 1 : MOST_SCHEDULES,
          after,
          created_by
        })
      )
      if (rows === undefined) return yield* unknownAfter("schedule", after)
      const matching =
        server === undefined
          ? rows
          : yield* Effect.filter(rows, ({ settings }) => servers.isFor(settings, server))
      const page = matching.slice(0, limit)
      return {
        schedules: yield* store.read(Effect.forEach(page, show)),
        next: matching.length > limit ? page.at(-1)?.id : undefined
      }
    })

    return {
      /** Returns the next times, the servers that match, and problems. Errors as of `create`, without Forbidden. */
      plan: yield* makePlan,
      list,
      get: read,
      ...(yield* makeChanges),
      ...(yield* makeRuns)
    }
  })
}) {
  static readonly layer = Layer.effect(Schedules, Schedules.make)
}
