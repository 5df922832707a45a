/** The steps of a schedule for one server (spec 13.5). Each can be repeated by a later leader. */
import { createHash } from "node:crypto"
import { Clock, Context, Data, Duration, Effect, Result, Schedule } from "effect"
import type { BackupRequest } from "../../contract/domain/Backup.ts"
import type { Unavailable } from "../../contract/domain/errors.ts"
import { type ServerId, serverId } from "../../contract/domain/Id.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import type { RunServerRecord, ScheduleRunRecord, ScheduleStep } from "../../contract/domain/Schedule.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { WebhookId } from "../../contract/domain/Webhook.ts"
import { Backups } from "../backups/Backups.ts"
import { CurrentPrincipal, type Principal } from "../http/Principal.ts"
import { Operations } from "../operations/Operations.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { isQueued } from "../servers/list/summary.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { busy, ServerBusy } from "../servers/state/conflicts.ts"
import { OperationRepo } from "../store/repos/OperationRepo.ts"
import { Store } from "../store/Store.ts"
import { Webhooks } from "../webhooks/Webhooks.ts"
import { lackingFor } from "./scheduleChecks.ts"

/** A step has failed for a server. */
export class StepFailed extends Data.TaggedError("StepFailed")<{ readonly reason: string }> {}

/** Times of the work, which tests change. */
export const SchedulesOptions = Context.Reference<{
  /** How long a step is repeated while its node or the database cannot be reached. */
  readonly patience: Duration.Input
  /** After this time, a due time counts as missed. */
  readonly grace: Duration.Input
  /** The longest time between two looks at the clock, which may be set at any moment. */
  readonly look: Duration.Input
}>("muster/schedules/SchedulesOptions", {
  defaultValue: () => ({ patience: "1 minute", grace: "1 minute", look: "20 seconds" })
})

/** A server at one of its steps. */
export interface StepContext {
  readonly run: ScheduleRunRecord
  readonly name: string
  readonly server: RunServerRecord
  readonly record: ServerRecord
  readonly step: ScheduleStep
  /** The holder of the key of the schedule; the service itself if there is no key. */
  readonly principal: Principal | undefined
  /** Whether an earlier leader may have done the step. */
  readonly isRepeated: boolean
  /** Stores the number of lines of a warning that are written. */
  readonly saveWarned: (warned: number) => Effect.Effect<void>
  /** Stores what the step waits for; nothing once it goes on. */
  readonly saveWaiting: (what?: string) => Effect.Effect<void, Unavailable>
}

/** Returns a time for players: `1 minute`, `10 seconds`. */
export const leftText = (seconds: number): string => {
  const [count, unit] =
    seconds >= 3600 && seconds % 3600 === 0
      ? [seconds / 3600, "hour"]
      : seconds >= 60 && seconds % 60 === 0
        ? [seconds / 60, "minute"]
        : [seconds, "second"]
  return `${count} ${unit}${count === 1 ? "" : "s"}`
}

/** Returns the milliseconds of a step that are left; a clock that was set back does not lengthen it. */
const leftOf = ({ server: { begun_at } }: StepContext, seconds: number, now: number): number => {
  const passed = begun_at === null ? 0 : Math.max(0, now - begun_at)
  return Math.max(0, seconds * 1000 - passed)
}

interface Failure {
  readonly _tag: string
  readonly detail: string
}

/** Repeats a call while its node or the database is away. */
const makeRepeated = Effect.map(SchedulesOptions, ({ patience }) => {
  const retry = {
    while: ({ _tag }: Failure) => _tag === "Unavailable" || _tag === "DatabaseFull",
    schedule: Schedule.max([Schedule.spaced("2 seconds"), Schedule.during(patience)])
  }
  return <A, E extends Failure>(call: Effect.Effect<A, E>) => Effect.retry(call, retry)
})

const failed = ({ detail }: Failure) => new StepFailed({ reason: detail })

/** Repeats a call while its node or the database is away. The step fails as the call does. */
const makeAttempt = Effect.map(
  makeRepeated,
  (repeated) =>
    <A, E extends Failure>(call: Effect.Effect<A, E>): Effect.Effect<A, StepFailed> =>
      Effect.mapError(repeated(call), failed)
)

/** As {@link makeAttempt}; a call that is refused as an operation has the server for itself waits for its end. */
const makeInTurn = Effect.gen(function* () {
  const attempt = yield* makeAttempt
  const operations = yield* Operations
  const repeated = yield* makeRepeated
  const repo = yield* OperationRepo
  const store = yield* Store

  return Effect.fnUntraced(function* <A, E extends Failure>(
    { record, saveWaiting }: Pick<StepContext, "record" | "saveWaiting">,
    call: Effect.Effect<A, E>
  ): Effect.fn.Return<A, StepFailed> {
    while (true) {
      const outcome = yield* Effect.result(repeated(call))
      if (Result.isSuccess(outcome)) return outcome.success
      const { failure } = outcome
      if (failure._tag !== "Conflict") return yield* failed(failure)
      const other = yield* attempt(store.read(repo.exclusiveOf(record.id)))
      // The node itself refuses the start of a server that is being restored.
      if (!(failure instanceof ServerBusy) && other?.kind !== "backup.restore") return yield* failed(failure)
      if (other === undefined) continue
      yield* attempt(saveWaiting(busy(other).detail))
      yield* attempt(operations.ended(other))
      yield* attempt(saveWaiting())
    }
  })
})

/** The milliseconds that a run waits for servers which their nodes start again. */
export const RETURN = 120_000

/** Waits until a server is up again that was up when its node or service ended, for some milliseconds at most. */
export const makeAwaitReturn = Effect.map(
  ServerManager,
  (servers) => (id: ServerId, longest: number) =>
    servers
      .waitFor(id, "running")
      .pipe(Effect.timeoutOption(Duration.millis(Math.max(0, longest))), Effect.ignore)
)

const makeConsoleSteps = Effect.gen(function* () {
  const index = yield* ServerIndex
  const servers = yield* ServerManager
  const attempt = yield* makeAttempt
  const awaitReturn = yield* makeAwaitReturn
  const write = (id: ServerId, lines: ReadonlyArray<string>) => attempt(servers.commands(id, lines))
  /** Writes the lines of a step; its node may have returned meanwhile, and be about to start the server. */
  const command = (id: ServerId, lines: ReadonlyArray<string>) =>
    attempt(
      Effect.suspend(() => {
        const record = index.get(id)
        const returned = record !== undefined && isQueued(record) ? awaitReturn(id, RETURN) : Effect.void
        return Effect.andThen(returned, servers.commands(id, lines))
      })
    )
  const isRunning = (id: ServerId) => index.get(id)?.status === "running"

  /** Writes the lines at their times; of those whose time has passed, the last one only. */
  const warn = Effect.fnUntraced(function* (
    at: StepContext,
    { at: given, line }: { readonly at: ReadonlyArray<number>; readonly line: string }
  ) {
    const id = at.server.server_id
    const notices = [...new Set(given)].sort((one, other) => other - one)
    const total = notices[0] ?? 0
    for (const [position, left] of notices.entries()) {
      if (position < at.server.warned) continue
      if (!isRunning(id)) return
      const now = yield* Clock.currentTimeMillis
      const rest = leftOf(at, total, now)
      const next = notices[position + 1]
      if (next !== undefined && rest <= next * 1000) continue
      yield* Effect.sleep(Duration.millis(Math.max(0, rest - left * 1000)))
      if (!isRunning(id)) return
      yield* write(id, [line.replaceAll("{{left}}", leftText(left))])
      yield* at.saveWarned(position + 1)
    }
    yield* Effect.sleep(Duration.millis(leftOf(at, total, yield* Clock.currentTimeMillis)))
  })

  return { command, warn }
})

const makePowerStep = Effect.gen(function* () {
  const servers = yield* ServerManager
  const attempt = yield* makeAttempt
  const inTurn = yield* makeInTurn

  /** Whether a restart that an earlier leader has begun needs no repetition. */
  const hasRestarted = Effect.fnUntraced(function* ({ record, server: { begun_at } }: StepContext) {
    if (record.status === "stopping" || record.status === "starting") return true
    if (record.status !== "running" || begun_at === null) return false
    const now = yield* Clock.currentTimeMillis
    const { uptime } = yield* attempt(servers.stats(record.id, { update_disk_usage: false }))
    return uptime !== null && uptime < now - begun_at
  })

  return Effect.fnUntraced(function* (at: StepContext, action: PowerAction, wait_seconds?: number) {
    if (action === "restart" && at.isRepeated && (yield* hasRestarted(at))) return
    yield* inTurn(at, servers.power(at.record.id, action, wait_seconds))
  })
})

const makeWebhookStep = Effect.gen(function* () {
  const webhooks = yield* Webhooks
  const attempt = yield* makeAttempt
  return Effect.fnUntraced(function* ({ name, record, run, server }: StepContext, id: WebhookId) {
    const data = {
      server_id: record.id,
      payload: {
        schedule_id: run.schedule_id,
        name,
        run_id: run.id,
        due_at: run.due_at,
        step: server.step + 1
      }
    }
    const text = `Schedule ${name}: ${record.name ?? record.blueprint_id} (${record.id}) is at step ${server.step + 1}.`
    const sent = webhooks.sendNow(id, () => ({
      message_id: `msg_${id}_${run.id}_${record.id}_${server.step}`,
      server_id: record.id,
      topic: "schedule",
      data,
      text
    }))
    const { error } = yield* attempt(sent)
    if (error !== undefined) return yield* new StepFailed({ reason: `webhook ${id}: ${error}` })
  })
})

/** Backs up the server of a step. The id of the backup follows from the step, so that a later leader finds it. */
const makeBackupStep = Effect.gen(function* () {
  const backups = yield* Backups
  const operations = yield* Operations
  const attempt = yield* makeAttempt
  const inTurn = yield* makeInTurn
  return Effect.fnUntraced(function* (
    at: StepContext,
    { background = false, ...request }: BackupRequest & { readonly background?: boolean }
  ) {
    const { name, record, run, server } = at
    const id = serverId(createHash("sha256").update(`${run.id} ${record.id} ${server.step}`).digest())
    const schedule = { id: run.schedule_id, name }
    const operation = yield* inTurn(
      at,
      Effect.gen(function* () {
        return (
          (yield* backups.operationOf(id)) ?? (yield* backups.create(record.id, request, { id, schedule }))
        )
      })
    )
    if (background) return
    const ended = yield* attempt(operations.ended(operation))
    if (ended?.state === "done") return
    const reason = ended?.reason ?? "its operation was removed"
    return yield* new StepFailed({ reason: `backup ${id} ${ended?.state ?? "failed"}: ${reason}` })
  })
})

/** Makes the function that does one step for one server, with the rights of the key of its schedule. */
export const makeStep = Effect.gen(function* () {
  const servers = yield* ServerManager
  const attempt = yield* makeAttempt
  const inTurn = yield* makeInTurn
  const { command, warn } = yield* makeConsoleSteps
  const power = yield* makePowerStep
  const backUp = yield* makeBackupStep
  const sendWebhook = yield* makeWebhookStep

  const perform = Effect.fnUntraced(function* (at: StepContext): Effect.fn.Return<void, StepFailed> {
    const { record, step } = at
    if ("command" in step) return yield* command(record.id, step.command)
    if ("wait" in step)
      return yield* Effect.sleep(Duration.millis(leftOf(at, step.wait, yield* Clock.currentTimeMillis)))
    if ("warn" in step) return yield* warn(at, step.warn)
    if ("power" in step) return yield* power(at, step.power, step.wait_seconds)
    if ("wait_for" in step) {
      const left = leftOf(at, step.timeout, yield* Clock.currentTimeMillis)
      return yield* attempt(servers.waitFor(record.id, step.wait_for)).pipe(
        Effect.timeoutOrElse({
          duration: Duration.millis(Math.max(left, 1_000)),
          orElse: () => new StepFailed({ reason: `not ${step.wait_for} within ${step.timeout} s` })
        })
      )
    }
    if ("upgrade" in step)
      return yield* Effect.asVoid(inTurn(at, servers.upgrade(record.id, { dry_run: false, ...step.upgrade })))
    if ("backup" in step) return yield* backUp(at, step.backup)
    return yield* sendWebhook(at, step.webhook)
  })

  return Effect.fnUntraced(function* (at: StepContext): Effect.fn.Return<void, StepFailed> {
    const lacking = lackingFor(at.principal, at.step)
    if (lacking !== undefined)
      return yield* new StepFailed({ reason: `the key of the schedule lacks${lacking}` })
    return yield* Effect.provideService(perform(at), CurrentPrincipal, at.principal)
  })
})

/** Whether a step stops the server, and nothing starts it again. */
export const stops = (step: ScheduleStep): boolean =>
  "power" in step && (step.power === "stop" || step.power === "kill")

export const starts = (step: ScheduleStep): boolean =>
  "power" in step && (step.power === "start" || step.power === "restart")
