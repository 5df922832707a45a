import { Array as Arr, Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { ServerId } from "../../../contract/domain/Id.ts"
import {
  KEPT_RUNS,
  RunServerRecord,
  ScheduleRecord,
  ScheduleRunRecord,
  ScheduleSettings
} from "../../../contract/domain/Schedule.ts"
import {
  BooleanColumn,
  CHUNK,
  countOf,
  equalTo,
  firstRow,
  IntColumn,
  insertRows,
  JsonColumn,
  newestFirst,
  type RowPage,
  readRows,
  writeRow
} from "../sql/rows.ts"
import { allOf, append, changes, type Writing } from "../sql/Transaction.ts"

const ScheduleRow = Schema.Struct({
  ...ScheduleRecord.fields,
  settings: JsonColumn(ScheduleSettings),
  enabled: BooleanColumn
})
const RunRow = Schema.Struct({
  ...ScheduleRunRecord.fields,
  settings: Schema.NullOr(JsonColumn(ScheduleSettings))
})
const ServerRow = Schema.Struct({
  ...RunServerRecord.fields,
  begun_at: Schema.NullOr(IntColumn),
  stopped: BooleanColumn
})
const encodeSchedule = writeRow(ScheduleRow)
const encodeRun = writeRow(RunRow)
const encodeServer = writeRow(ServerRow)
const readSchedules = readRows(ScheduleRow)
const readSchedule = firstRow(ScheduleRow)
const readRuns = readRows(RunRow)
const readRun = firstRow(RunRow)
const readServers = readRows(ServerRow)

/** Announces a change of a schedule or a run. */
const announce = (schedule_id: string, run_id: string | null = null) =>
  append({ topic: "schedule:changed", schedule_id, run_id })

const scheduleTable = (sql: SqlClient.SqlClient) => ({
  /** Adds a schedule, unless its id exists: each leader derives the same id for a schedule of a blueprint. */
  insert: Effect.fn("ScheduleRepo.insert")(function* (record: ScheduleRecord): Writing {
    yield* sql`INSERT INTO schedules ${sql.insert(yield* encodeSchedule(record))} ON CONFLICT (id) DO NOTHING`
    yield* announce(record.id)
  }),
  save: Effect.fn("ScheduleRepo.save")(function* (record: ScheduleRecord): Writing {
    const { id, ...values } = yield* encodeSchedule(record)
    yield* sql`UPDATE schedules SET ${sql.update(values)} WHERE id = ${id}`
    yield* announce(id)
  }),
  /** Removes a schedule and its runs. */
  remove: (id: string) => Effect.andThen(sql`DELETE FROM schedules WHERE id = ${id}`, announce(id)),
  find: (id: string) => readSchedule(sql`SELECT * FROM schedules WHERE id = ${id}`),
  /** Returns schedules, newest first, unless none has the id `after`. `created_by` selects those of a key. */
  list: ({ created_by, ...page }: RowPage & { readonly created_by?: string | undefined }) =>
    newestFirst(sql, "schedules", readSchedules)(page, equalTo(sql, { created_by })),
  all: readSchedules(sql`SELECT * FROM schedules`),
  /** The number of all schedules, or of those of one server. */
  count: (server_id?: ServerId) =>
    countOf(sql`SELECT COUNT(*) AS count FROM schedules WHERE ${allOf(sql, equalTo(sql, { server_id }))}`),
  /** Enabled schedules whose next time has come, oldest first. */
  due: (now: string, limit: number) =>
    readSchedules(sql`SELECT * FROM schedules WHERE next_at <= ${now} ORDER BY next_at, id LIMIT ${limit}`),
  /** The next time of all schedules. */
  nextAt: Effect.map(
    firstRow(Schema.Struct({ next_at: Schema.NullOr(Schema.String) }))(
      sql`SELECT MIN(next_at) AS next_at FROM schedules WHERE next_at IS NOT NULL`
    ),
    (row) => row?.next_at ?? undefined
  ),
  /** Moves a schedule to its next time; false if it has another one by now, such as after the tick of another leader. */
  advance: (id: string, from: string, to: string | null, enabled: boolean) =>
    changes(sql`UPDATE schedules SET next_at = ${to}, enabled = ${enabled ? 1 : 0}
      WHERE id = ${id} AND next_at = ${from} RETURNING id`)
})

const runTable = (sql: SqlClient.SqlClient) => ({
  /** Adds a run with its servers, unless there is one at the same time, and removes the oldest above the bound. */
  insertRun: Effect.fn("ScheduleRepo.insertRun")(function* (run: ScheduleRunRecord): Writing<boolean> {
    const { id, schedule_id } = run
    const same = sql`SELECT id FROM schedule_runs WHERE schedule_id = ${schedule_id} AND due_at = ${run.due_at}`
    if ((yield* same).length > 0) return false
    yield* sql`INSERT INTO schedule_runs ${sql.insert(yield* encodeRun(run))}`
    yield* sql`DELETE FROM schedule_runs WHERE id IN (
      SELECT id FROM schedule_runs WHERE schedule_id = ${schedule_id} AND finished_at IS NOT NULL
      ORDER BY due_at DESC LIMIT 1000 OFFSET ${KEPT_RUNS - (run.finished_at === null ? 1 : 0)})`
    yield* announce(schedule_id, id)
    return true
  }),
  findRun: (id: string) => readRun(sql`SELECT * FROM schedule_runs WHERE id = ${id}`),
  /** Returns runs of a schedule, newest first, unless no run has the id `after`. */
  runs: (schedule_id: string, page: RowPage) =>
    newestFirst(sql, "schedule_runs", readRuns, "due_at")(page, [], sql`schedule_id = ${schedule_id}`),
  /** Unfinished runs of all schedules, or of one, oldest first. */
  unfinished: (schedule_id?: string) =>
    readRuns(
      sql`SELECT * FROM schedule_runs WHERE finished_at IS NULL
        AND ${allOf(sql, equalTo(sql, { schedule_id }))} ORDER BY due_at, id`
    ),
  /** Begins a run with its servers; false if it has begun already. */
  begin: Effect.fn("ScheduleRepo.begin")(function* (
    { id, schedule_id }: ScheduleRunRecord,
    started_at: string,
    servers: ReadonlyArray<RunServerRecord>
  ): Writing<boolean> {
    const begun = yield* changes(sql`UPDATE schedule_runs SET started_at = ${started_at}
      WHERE id = ${id} AND started_at IS NULL AND finished_at IS NULL RETURNING id`)
    if (!begun) return false
    for (const some of Arr.chunksOf(servers, CHUNK))
      yield* insertRows(sql, "schedule_run_servers", yield* Effect.forEach(some, encodeServer))
    yield* announce(schedule_id, id)
    return true
  }),
  /** Ends an unfinished run; returns whether it had not ended. */
  end: Effect.fn("ScheduleRepo.end")(function* (
    { id, schedule_id }: ScheduleRunRecord,
    end: Pick<ScheduleRunRecord, "state" | "reason" | "finished_at">
  ): Writing<boolean> {
    const ended = yield* changes(sql`UPDATE schedule_runs SET ${sql.update({ ...end, settings: null })}
      WHERE id = ${id} AND finished_at IS NULL RETURNING id`)
    if (ended) yield* announce(schedule_id, id)
    return ended
  }),
  /** Asks the leader to cancel an unfinished run; false if it has ended. */
  askToCancel: Effect.fn("ScheduleRepo.askToCancel")(function* (
    { id, schedule_id }: ScheduleRunRecord,
    reason: string
  ): Writing<boolean> {
    const asked = yield* changes(sql`UPDATE schedule_runs SET cancelling = ${reason}
      WHERE id = ${id} AND finished_at IS NULL RETURNING id`)
    if (asked) yield* announce(schedule_id, id)
    return asked
  }),
  /** The servers of runs, in their order. */
  servers: (ids: ReadonlyArray<string>) =>
    ids.length === 0
      ? Effect.succeed([])
      : readServers(
          sql`SELECT * FROM schedule_run_servers WHERE ${sql.in("run_id", ids)} ORDER BY run_id, position`
        ),
  saveServer: Effect.fn("ScheduleRepo.saveServer")(function* (server: RunServerRecord): Writing {
    const { run_id, server_id, position: _, ...values } = yield* encodeServer(server)
    yield* sql`UPDATE schedule_run_servers SET ${sql.update(values)}
      WHERE run_id = ${run_id} AND server_id = ${server_id}`
  })
})

/** Schedules and their runs (spec 13). */
export class ScheduleRepo extends Context.Service<ScheduleRepo>()("muster/store/ScheduleRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({ ...scheduleTable(sql), ...runTable(sql) }))
}) {
  static readonly layer = Layer.effect(ScheduleRepo, ScheduleRepo.make)
}
