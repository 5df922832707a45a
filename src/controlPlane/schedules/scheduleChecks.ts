/** Checks of a schedule: its times, its servers, and the rights of its key (spec 13.4). */
import { Effect, Result } from "effect"
import { applicationScopes } from "../../contract/api/middleware.ts"
import { Forbidden, InvalidRequest, NotFound } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { admits, type Right } from "../../contract/domain/Key.ts"
import type { ScheduleSettings, ScheduleStep } from "../../contract/domain/Schedule.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { timesOf, whyNoZone } from "../../shared/work/cronTimes.ts"
import {
  CurrentPrincipal,
  currentRestriction,
  lackingOf,
  type Principal,
  rightOfPower,
  rightsToQuiesce
} from "../http/Principal.ts"
import { filterOf, matches } from "../servers/list/listQuery.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"

const rightsOf = (step: ScheduleStep): ReadonlyArray<Right> => {
  if ("command" in step || "warn" in step) return ["commands"]
  if ("power" in step) return [rightOfPower(step.power)]
  if ("backup" in step) {
    const { quiesce } = step.backup
    return ["backups", ...(quiesce === "stop" || quiesce === "pause" ? rightsToQuiesce[quiesce] : [])]
  }
  return "upgrade" in step ? ["change"] : []
}

/** Returns why the holder of a key may not do a step, if it may not; no principal is the service itself. */
export const lackingFor = (principal: Principal | undefined, step: ScheduleStep): string | undefined => {
  if (principal === undefined) return undefined
  if ("webhook" in step) return lackingOf(principal, undefined, ["AppAdmin"])
  return rightsOf(step)
    .map((right) => lackingOf(principal, right, applicationScopes))
    .find((lacking) => lacking !== undefined)
}

/** Returns what a key lacks for the steps of a schedule, each once. */
export const lackingRights = (principal: Principal | undefined, { steps }: ScheduleSettings) => [
  ...new Set(
    steps.flatMap((step, index) => {
      const lacking = lackingFor(principal, step)
      return lacking === undefined ? [] : [`step ${index + 1}: the API key lacks${lacking}`]
    })
  )
]

/** Checks that the caller has the rights of every step. @error Forbidden names what the key lacks */
export const requireRights = Effect.fnUntraced(function* (settings: ScheduleSettings) {
  const [first] = lackingRights(yield* CurrentPrincipal, settings)
  if (first === undefined) return
  return yield* new Forbidden({
    detail: first,
    hint: "Leave the step out, or use a key with this right: a schedule has the rights of the key that creates it."
  })
})

/** Reads the times of a schedule. @error InvalidRequest they cannot be read, or there is no next one */
export const checkTimes = Effect.fnUntraced(function* (
  { cron, timezone }: Pick<ScheduleSettings, "cron" | "timezone">,
  now: number
) {
  const times = timesOf(cron, timezone)
  if (Result.isFailure(times)) {
    const field = whyNoZone(timezone) === undefined ? "cron" : "timezone"
    const hint = field === "cron" ? CRON_HINT : "Names are those of the IANA time zone database."
    return yield* new InvalidRequest({ detail: `body field ${field}: ${times.failure}`, hint })
  }
  if (times.success.next(now) === undefined)
    return yield* new InvalidRequest({
      detail: `body field cron: it has no next time: ${cron}`,
      hint: CRON_HINT
    })
  return times.success
})

const CRON_HINT =
  "Send five fields, such as `0 4 * * *` (04:00 each day) or `0 4 * * MON` (on Mondays), and a time zone such as Europe/Berlin."

/** Whether a server leaves out a schedule of its blueprint (spec 13.7). */
const isLeftOut = ({ name, source }: ScheduleSettings, record: ServerRecord | undefined): boolean =>
  source === "blueprint" && Object.hasOwn(record?.overrides?.schedules ?? {}, name)

/** Selects the servers of schedules. */
export const makeScheduleServers = Effect.gen(function* () {
  const index = yield* ServerIndex
  return {
    /** Returns the servers that match now, within the limits of the current caller. */
    select: Effect.fnUntraced(function* (settings: ScheduleSettings) {
      const { selector, server_id } = settings
      const within = yield* currentRestriction
      if (server_id !== undefined) {
        const record = index.get(server_id)
        return record !== undefined && admits(within, record) ? [server_id] : []
      }
      const filter = yield* filterOf(selector ?? {})
      const page = yield* index.select({ filter: { ...filter, within } })
      return (page?.ids ?? []).filter((id) => !isLeftOut(settings, index.get(id)))
    }),
    /** Whether a server matches a schedule now. */
    isFor: Effect.fnUntraced(function* (settings: ScheduleSettings, record: ServerRecord) {
      const { selector, server_id } = settings
      if (selector === undefined) return server_id === record.id
      return !isLeftOut(settings, record) && matches(yield* filterOf(selector), record)
    }),
    /** @error NotFound the caller may not read the server, or it does not exist */
    find: Effect.fnUntraced(function* (id: ServerId) {
      return (yield* index.lookUpWithin(id, yield* currentRestriction)) ?? (yield* NotFound.server(id))
    })
  } as const
})
