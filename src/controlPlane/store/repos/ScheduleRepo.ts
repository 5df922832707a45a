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
  tableOf,
  writeRow
} from "../sql/rows.ts"
import { allOf, append, changes, type Read, type Writing } from "../sql/Transaction.ts"

const schedules = tableOf(
  "schedules",
  Schema.Struct({
    ...ScheduleRecord.fields,
    settings: JsonColumn(ScheduleSettings),
    enabled: BooleanColumn
  })
)
const runs = tableOf(
  "schedule_runs",
  Schema.Struct({ ...ScheduleRunRecord.fields, settings: Schema.NullOr(JsonColumn(ScheduleSettings)) })
)
const ServerRow = Schema.Struct({
  ...RunServerRecord.fields,
  begun_at: Schema.NullOr(IntColumn),
  stopped: BooleanColumn
})
const encodeServer = writeRow(ServerRow)
const readServers = readRows(ServerRow)

/** Announces a change of a schedule or a run. */
const announce = (schedule_id: string, run_id: string | null = null) =>
  append({ topic: "schedule:changed", schedule_id, run_id })

/** Announces a change of a run if it has changed a row; returns whether it has. */
const announced = (update: Read<ReadonlyArray<unknown>>, { id, schedule_id }: ScheduleRunRecord) =>
  Effect.tap(changes(update), (changed) => (changed ? announce(schedule_id, id) : Effect.void))

const scheduleTable = (sql: SqlClient.SqlClient) => ({
  /** Adds a schedule, unless its id exists: each leader derives the same id for a schedule of a blueprint. */
  insert: Effect.fn("ScheduleRepo.insert")(function* (record: ScheduleRecord): Writing {
    yield* sql`INSERT INTO schedules ${sql.insert(yield* schedules.encode(record))} ON CONFLICT (id) DO NOTHING`
    yield* announce(record.id)
  }),
  save: Effect.fn("ScheduleRepo.save")(function* (record: ScheduleRecord): Writing {
    const { id, ...values } = yield* schedules.encode(record)
    yield* sql`UPDATE schedules SET ${sql.update(values)} WHERE id = ${id}`
    yield* announce(id)
  }),
  /** Removes a schedule and its runs. */
  remove: (id: string) => Effect.andThen(schedules.on(sql).remove(id), announce(id)),
  find: schedules.on(sql).find,
  /** Returns schedules, newest first, unless none has the id `after`. `created_by` selects those of a key. */
  list: ({ created_by, ...page }: RowPage & { readonly created_by?: string | undefined }) =>
    newestFirst(sql, "schedules", schedules.read)(page, equalTo(sql, { created_by })),
  all: schedules.read(sql`SELECT * FROM schedules`),
  /** The number of all schedules, or of those of one server. */
  count: (server_id?: ServerId) =>
    countOf(sql`SELECT COUNT(*) AS count FROM schedules WHERE ${allOf(sql, equalTo(sql, { server_id }))}`),
  /** Enabled schedules whose next time has come, oldest first. */
  due: (now: string, limit: number) =>
    schedules.read(sql`SELECT * FROM schedules WHERE next_at <= ${now} ORDER BY next_at, id LIMIT ${limit}`),
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
    yield* runs.on(sql).insert(run)
    yield* sql`DELETE FROM schedule_runs WHERE id IN (
      SELECT id FROM schedule_runs WHERE schedule_id = ${schedule_id} AND finished_at IS NOT NULL
      ORDER BY due_at DESC LIMIT 1000 OFFSET ${KEPT_RUNS - (run.finished_at === null ? 1 : 0)})`
    yield* announce(schedule_id, id)
    return true
  }),
  findRun: runs.on(sql).find,
  /** Returns runs of a schedule, newest first, unless no run has the id `after`. */
  runs: (schedule_id: string, page: RowPage) =>
    newestFirst(sql, "schedule_runs", runs.read, "due_at")(page, [], sql`schedule_id = ${schedule_id}`),
  /** Unfinished runs of all schedules, or of one, oldest first. */
  unfinished: (schedule_id?: string) =>
    runs.read(
      sql`SELECT * FROM schedule_runs WHERE finished_at IS NULL
        AND ${allOf(sql, equalTo(sql, { schedule_id }))} ORDER BY due_at, id`
    ),
  /** Begins a run with its servers; false if it has begun already. */
  begin: Effect.fn("ScheduleRepo.begin")(function* (
    run: ScheduleRunRecord,
    started_at: string,
    servers: ReadonlyArray<RunServerRecord>
  ): Writing<boolean> {
    const begin = sql`UPDATE schedule_runs SET started_at = ${started_at}
      WHERE id = ${run.id} AND started_at IS NULL AND finished_at IS NULL RETURNING id`
    if (!(yield* announced(begin, run))) return false
    for (const some of Arr.chunksOf(servers, CHUNK))
      yield* insertRows(sql, "schedule_run_servers", yield* Effect.forEach(some, encodeServer))
    return true
  }),
  /** Ends an unfinished run; returns whether it had not ended. */
  end: (run: ScheduleRunRecord, end: Pick<ScheduleRunRecord, "state" | "reason" | "finished_at">) =>
    announced(
      sql`UPDATE schedule_runs SET ${sql.update({ ...end, settings: null })}
        WHERE id = ${run.id} AND finished_at IS NULL RETURNING id`,
      run
    ),
  /** Asks the leader to cancel an unfinished run; false if it has ended. */
  askToCancel: (run: ScheduleRunRecord, reason: string) =>
    announced(
      sql`UPDATE schedule_runs SET cancelling = ${reason}
        WHERE id = ${run.id} AND finished_at IS NULL RETURNING id`,
      run
    ),
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
