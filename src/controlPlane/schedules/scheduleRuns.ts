/** Runs of schedules as callers see and cancel them (spec 13.2). */
import { Effect } from "effect"
import { Conflict, NotFound } from "../../contract/domain/errors.ts"
import { type ServerId, serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import {
  MOST_SERVERS,
  type RunServerRecord,
  type Schedule,
  type ScheduleNews,
  type ScheduleRecord,
  type ScheduleRun,
  type ScheduleRunRecord
} from "../../contract/domain/Schedule.ts"
import { currentCreator } from "../http/Principal.ts"
import { wantedPage } from "../servers/list/listQuery.ts"
import { ScheduleRepo } from "../store/repos/ScheduleRepo.ts"
import { Store, Transaction } from "../store/Store.ts"
import type { RowPage } from "../store/sql/rows.ts"
import { requireRights } from "./scheduleChecks.ts"

export const newRun = (
  { created_by, id, settings }: ScheduleRecord,
  run: Pick<ScheduleRunRecord, "due_at"> & Partial<ScheduleRunRecord>
): ScheduleRunRecord => ({
  id: serverId(idBytes(16)),
  schedule_id: id,
  state: "running",
  reason: null,
  settings: run.finished_at === undefined || run.finished_at === null ? settings : null,
  created_by,
  cancelling: null,
  started_at: null,
  finished_at: null,
  ...run
})

export const tooManyServers = (count: number): string =>
  `the selector matches ${count} servers: a run has at most ${MOST_SERVERS}`

/** Adds the event of a run that was missed or has failed for a server, as part of a write (spec 13.6). */
export const announce = Effect.fnUntraced(function* (
  server_id: ServerId,
  facts: Parameters<Transaction["Service"]["append"]>[1],
  {
    name,
    reason,
    run,
    state
  }: Pick<ScheduleNews, "name" | "state"> &
    Pick<ScheduleRunRecord, "reason"> & { readonly run: ScheduleRunRecord }
) {
  const payload: ScheduleNews = {
    schedule_id: run.schedule_id,
    name,
    run_id: run.id,
    due_at: run.due_at,
    state,
    ...(reason === null ? {} : { reason })
  }
  yield* (yield* Transaction).append({ topic: "server:schedule", server_id, payload }, facts)
})

/** Returns the reason of a run that is under way: what the step of one of its servers waits for, or why one has failed. */
const waitOf = (servers: ReadonlyArray<RunServerRecord>) => {
  const first = servers.find(({ reason, state }) => state === "running" && reason !== null)
  return first === undefined ? {} : { reason: `server ${first.server_id}: ${first.reason}` }
}

const shownRun = (run: ScheduleRunRecord, servers: ReadonlyArray<RunServerRecord>): ScheduleRun => ({
  id: run.id,
  schedule_id: run.schedule_id,
  due_at: run.due_at,
  ...(run.started_at === null ? {} : { started_at: run.started_at }),
  ...(run.finished_at === null ? {} : { finished_at: run.finished_at }),
  state: run.state,
  ...(run.reason === null ? waitOf(servers) : { reason: run.reason }),
  servers: Object.fromEntries(
    servers.map(({ begun_at, reason, server_id, state, step }) => [
      server_id,
      { state, step: begun_at === null ? step : step + 1, ...(reason === null ? {} : { reason }) }
    ])
  )
})

/** The schedules that a caller sees. A key with limited servers sees the schedules that it has created. */
export const makeView = Effect.gen(function* () {
  const repo = yield* ScheduleRepo
  const store = yield* Store

  /** Finds a schedule within a transaction or a read. */
  const find = Effect.fnUntraced(function* (id: string) {
    const created_by = yield* currentCreator
    const record = yield* repo.find(id)
    const isOther = created_by !== undefined && record?.created_by !== created_by
    return record === undefined || isOther ? yield* NotFound.schedule(id) : record
  })

  const show = Effect.fnUntraced(function* (record: ScheduleRecord) {
    const [last] = (yield* repo.runs(record.id, { limit: 1 })) ?? []
    return {
      id: record.id,
      ...record.settings,
      enabled: record.enabled,
      ...(record.next_at === null ? {} : { next_at: record.next_at }),
      ...(last === undefined ? {} : { last_run: { id: last.id, due_at: last.due_at, state: last.state } }),
      created_at: record.created_at,
      ...(record.created_by === null ? {} : { created_by: record.created_by })
    } satisfies Schedule
  })

  const findRun = Effect.fnUntraced(function* (id: string) {
    const run = yield* store.read(repo.findRun(id))
    const isSeen =
      run !== undefined && (yield* Effect.option(store.read(find(run.schedule_id))))._tag === "Some"
    return run === undefined || !isSeen ? yield* NotFound.run(id) : run
  })

  const showRun = Effect.fnUntraced(function* (run: ScheduleRunRecord) {
    return shownRun(run, yield* store.read(repo.servers([run.id])))
  })

  const read = (id: string) => Effect.flatMap(store.read(find(id)), (record) => store.read(show(record)))

  return { find, findRun, read, show, showRun } as const
})

/** 409: the schedule has an unfinished run. */
export const stillRuns = (id: string, run: string) =>
  new Conflict({
    detail: `schedule ${id} runs: ${run}`,
    hint: "Wait for its end, or cancel it: POST /api/runs/:run/cancel."
  })

/** Begins, shows and cancels runs for callers. */
export const makeRuns = Effect.gen(function* () {
  const repo = yield* ScheduleRepo
  const store = yield* Store
  const { find, findRun, showRun } = yield* makeView

  const run = Effect.fn("Schedules.run")(function* (id: string) {
    yield* requireRights((yield* store.read(find(id))).settings)
    const due_at = yield* nowText
    const begun = Effect.gen(function* () {
      const record = yield* find(id)
      const [before] = yield* repo.unfinished(id)
      const next = newRun(record, { due_at })
      const isBusy = before !== undefined && record.settings.overlap === "skip"
      if (isBusy || !(yield* repo.insertRun(next)))
        return yield* stillRuns(id, before?.id ?? "since this moment")
      return next
    })
    return yield* showRun(yield* store.write(begun))
  })

  const runs = Effect.fn("Schedules.runs")(function* (id: string, query: RowPage) {
    yield* store.read(find(id))
    const { next, records } = yield* wantedPage({ ...query, noun: "run" }, (page) =>
      store.read(repo.runs(id, page))
    )
    const rows = Map.groupBy(
      yield* store.read(repo.servers(records.map((one) => one.id))),
      ({ run_id }) => run_id
    )
    return { runs: records.map((one) => shownRun(one, rows.get(one.id) ?? [])), next }
  })

  const cancelRun = Effect.fn("Schedules.cancelRun")(function* (id: string) {
    const found = yield* findRun(id)
    const asked = yield* store.write(repo.askToCancel(found, "a caller has cancelled it"))
    if (!asked)
      return yield* new Conflict({
        detail: `run is ${(yield* findRun(id)).state}: ${id}`,
        hint: "A run that has ended cannot be cancelled; GET /api/runs/:run shows it."
      })
    return yield* showRun(yield* findRun(id))
  })

  return {
    /** Begins a run now. @error Conflict it runs, and does not queue */
    run,
    runs,
    getRun: Effect.fn("Schedules.getRun")((id: string) => Effect.flatMap(findRun(id), showRun)),
    /** Asks the leader to cancel a run. @error Conflict it has ended */
    cancelRun
  } as const
})
