import { Array as Arr, Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { ServerId } from "../../../contract/domain/Id.ts"
import {
  type RolloutCounts,
  RolloutFailure,
  RolloutOrigin,
  RolloutPhase,
  RolloutRecord,
  RolloutServer,
  RolloutSettings
} from "../../../contract/domain/Rollout.ts"
import { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { pause } from "../../../shared/work/slices.ts"
import {
  BooleanColumn,
  byIds,
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
  readServerIds,
  tableOf,
  writeRow
} from "../sql/rows.ts"
import { allOf, changes, type Write, type Writing, write } from "../sql/Transaction.ts"

const KEPT = 100
/** Failed servers that a response names. */
const FAILURES = 100

const rollouts = tableOf(
  "rollouts",
  Schema.Struct({
    ...RolloutRecord.fields,
    settings: JsonColumn(RolloutSettings),
    origin: JsonColumn(RolloutOrigin),
    rolling_back: BooleanColumn
  })
)
const ServerRow = Schema.Struct({
  ...RolloutServer.fields,
  was_up: Schema.NullOr(BooleanColumn),
  stopped: BooleanColumn,
  notified_at: Schema.NullOr(IntColumn),
  restarted_at: Schema.NullOr(IntColumn)
})
const encodeServer = writeRow(ServerRow)
const encodeDefinition = writeRow(JsonColumn(ServerDefinition))
const readServer = firstRow(ServerRow)
const readBusy = readRows(
  Schema.Struct({ server_id: ServerId, rollout_id: Schema.String, created_by: Schema.NullOr(Schema.String) })
)
const readFailures = readRows(RolloutFailure)
const readDefinition = firstRow(Schema.Struct({ definition: JsonColumn(ServerDefinition) }))
const readCounts = readRows(Schema.Struct({ phase: RolloutPhase, servers: IntColumn }))
const readRowCounts = readRows(Schema.Struct({ servers: IntColumn, definitions: IntColumn }))

const noServers: RolloutCounts = { queued: 0, changing: 0, waiting: 0, done: 0, failed: 0 }

interface RolloutPage extends RowPage {
  readonly created_by?: string | undefined
}

/** Rows of a rollout: its servers that remain to be changed, and the definitions of revisions. */
export interface RolloutPart {
  readonly rollout_id: string
  readonly servers: ReadonlyArray<RolloutServer>
  readonly definitions: ReadonlyArray<readonly [revision: string, definition: ServerDefinition]>
}

/** The rollouts, and the definitions of their revisions. */
const rolloutTable = (sql: SqlClient.SqlClient) => {
  const pages = newestFirst(sql, "rollouts", rollouts.read)
  const { find, insert } = rollouts.on(sql)
  const over = sql`state IN ('done', 'failed', 'rolled_back', 'aborted')`

  const prune = Effect.gen(function* () {
    const rows = yield* rollouts.read(
      sql`SELECT * FROM rollouts WHERE ${over} ORDER BY created_at DESC, id DESC LIMIT 50 OFFSET ${KEPT}`
    )
    const ids = rows.map(({ id }) => id)
    if (ids.length === 0) return
    yield* sql`DELETE FROM rollout_servers WHERE ${sql.in("rollout_id", ids)}`
    yield* sql`DELETE FROM rollouts WHERE ${sql.in("id", ids)}`
  })

  const insertSlowly = Effect.fnUntraced(function* <A>(
    table: string,
    items: ReadonlyArray<A>,
    rowOf: (item: A) => Effect.Effect<Readonly<Record<string, unknown>>>
  ): Writing {
    for (const some of Arr.chunksOf(items, CHUNK)) {
      yield* insertRows(sql, table, yield* Effect.forEach(some, rowOf))
      yield* pause
    }
  })

  const save = Effect.fn("RolloutRepo.save")(function* (rollout: RolloutRecord): Writing {
    const { id, origin: _, ...values } = yield* rollouts.encode(rollout)
    yield* sql`UPDATE rollouts SET ${sql.update(values)} WHERE id = ${id}`
  })

  return {
    /** Adds rows of a rollout that is not inserted yet; until then they have no effect. */
    addPart: Effect.fn("RolloutRepo.addPart")(function* ({
      definitions,
      rollout_id,
      servers
    }: RolloutPart): Writing {
      yield* insertSlowly("rollout_definitions", definitions, ([revision, definition]) =>
        Effect.map(encodeDefinition(definition), (text) => ({ rollout_id, revision, definition: text }))
      )
      yield* insertSlowly("rollout_servers", servers, (server) =>
        Effect.map(encodeServer(server), (row) => ({ ...row, active: 0 }))
      )
    }),
    /** Inserts a rollout without {@link busy} servers; false if some of its `rows` parts were removed. */
    insert: Effect.fn("RolloutRepo.insert")(function* (
      rollout: RolloutRecord,
      rows: { readonly servers: number; readonly definitions: number }
    ): Writing<boolean> {
      const { id } = rollout
      const [found] = yield* readRowCounts(
        sql`SELECT (SELECT COUNT(*) FROM rollout_servers WHERE rollout_id = ${id}) AS servers,
          (SELECT COUNT(*) FROM rollout_definitions WHERE rollout_id = ${id}) AS definitions`
      )
      if (found?.servers !== rows.servers || found.definitions !== rows.definitions) return false
      for (let from = 0; from < rows.servers; from += CHUNK) {
        yield* pause
        yield* sql`UPDATE rollout_servers SET active = 1
          WHERE rollout_id = ${id} AND phase = 'queued' AND position >= ${from} AND position < ${from + CHUNK}`
      }
      yield* insert(rollout)
      yield* prune
      return true
    }),
    /** Removes the parts of rollouts that were not inserted: of one, or of all. */
    removeParts: Effect.fn("RolloutRepo.removeParts")(function* (id?: string): Writing {
      const ofNone = sql`rollout_id NOT IN (SELECT id FROM rollouts)`
      const parts = id === undefined ? ofNone : sql`${ofNone} AND rollout_id = ${id}`
      yield* sql`DELETE FROM rollout_servers WHERE ${parts}`
      yield* sql`DELETE FROM rollout_definitions WHERE ${parts}`
    }),
    find,
    /** Returns rollouts, newest first, unless no rollout has the id `after`. `created_by` selects the rollouts of a key. */
    list: ({ created_by, ...page }: RolloutPage) => pages(page, [], allOf(sql, equalTo(sql, { created_by }))),
    unfinished: rollouts.read(sql`SELECT * FROM rollouts WHERE NOT (${over}) ORDER BY created_at, id`),
    save,
    /** The definition of a revision that servers of a rollout get or get back. */
    definition: (rollout_id: string, revision: string) =>
      Effect.map(
        readDefinition(sql`SELECT definition FROM rollout_definitions
          WHERE rollout_id = ${rollout_id} AND revision = ${revision}`),
        (row) => row?.definition
      ),
    /** Saves a rollout that is over; of its servers, only those that failed are kept, for the record. */
    finish: Effect.fn("RolloutRepo.finish")(function* (
      rollout: RolloutRecord,
      counts: RolloutCounts
    ): Writing {
      const { id, rolling_back } = rollout
      yield* save(
        rolling_back
          ? { ...rollout, rolled_back: counts.done }
          : { ...rollout, done: rollout.done + counts.done }
      )
      yield* sql`DELETE FROM rollout_servers WHERE rollout_id = ${id} AND reason IS NULL`
      yield* sql`UPDATE rollout_servers SET active = 0 WHERE rollout_id = ${id}`
      yield* sql`DELETE FROM rollout_definitions WHERE rollout_id = ${id}`
    })
  }
}

/** The servers of rollouts. A server is active while its rollout is unfinished. */
const rolloutServersTable = (sql: SqlClient.SqlClient) => ({
  counts: Effect.fn("RolloutRepo.counts")(function* (
    id: string
  ): Effect.fn.Return<RolloutCounts, SqlError.SqlError> {
    const rows = yield* readCounts(
      sql`SELECT phase, COUNT(*) AS servers FROM rollout_servers
        WHERE rollout_id = ${id} AND active = 1 GROUP BY phase`
    )
    return { ...noServers, ...Object.fromEntries(rows.map(({ phase, servers }) => [phase, servers])) }
  }),
  /** The first servers of a rollout that failed, and their number. */
  failures: Effect.fn("RolloutRepo.failures")(function* (id: string) {
    const failed = sql`FROM rollout_servers WHERE rollout_id = ${id} AND reason IS NOT NULL`
    const first = yield* readFailures(
      sql`SELECT server_id, reason ${failed} ORDER BY position LIMIT ${FAILURES}`
    )
    return { first, total: yield* countOf(sql`SELECT COUNT(*) AS count ${failed}`) }
  }),
  /** The rollouts that are not over and have one of these servers. */
  busy: Effect.fn("RolloutRepo.busy")((ids: ReadonlyArray<ServerId>) =>
    byIds(ids, (some) =>
      Effect.andThen(
        pause,
        readBusy(sql`SELECT server_id, rollout_id, created_by
          FROM rollout_servers JOIN rollouts ON rollouts.id = rollout_id
          WHERE active = 1 AND ${sql.in("server_id", some)} ORDER BY server_id`)
      )
    )
  ),
  /** The server in its rollout that is not over. */
  server: (id: ServerId) =>
    readServer(sql`SELECT * FROM rollout_servers WHERE server_id = ${id} AND active = 1`),
  /** The servers of unfinished rollouts that are under way, or wait for their next start. */
  underWay: readServerIds(sql`SELECT server_id FROM rollout_servers
    WHERE active = 1 AND phase IN ('changing', 'waiting') ORDER BY rollout_id, position`),
  /** Begins the next servers; returns them. */
  begin: (id: string, count: number): Write<ReadonlyArray<ServerId>> =>
    readServerIds(sql`UPDATE rollout_servers SET phase = 'changing',
      stopped = CASE WHEN was_up IS NULL THEN 0 ELSE stopped END WHERE rollout_id = ${id} AND server_id IN (
        SELECT server_id FROM rollout_servers WHERE rollout_id = ${id} AND phase = 'queued' AND active = 1
        ORDER BY position LIMIT ${count}) RETURNING server_id`),
  /** Saves the progress of a server; false if the server has another attempt, or none any more. */
  saveServer: Effect.fn("RolloutRepo.saveServer")(function* (server: RolloutServer): Writing<boolean> {
    // A stop that a caller has recorded since must stay.
    const { attempt, rollout_id, server_id, stopped: _, ...values } = yield* encodeServer(server)
    return yield* changes(sql`UPDATE rollout_servers SET ${sql.update(values)}
      WHERE rollout_id = ${rollout_id} AND server_id = ${server_id} AND attempt = ${attempt} AND active = 1
      RETURNING server_id`)
  }),
  /** Puts the servers that failed at the end of the queue. */
  retryFailed: (id: string) =>
    write(sql`UPDATE rollout_servers SET phase = 'queued', attempt = attempt + 1, reason = NULL,
      notified_at = NULL, restarted_at = NULL, crash_before = NULL,
      position = position + (SELECT MAX(position) + 1 FROM rollout_servers WHERE rollout_id = ${id})
      WHERE rollout_id = ${id} AND phase = 'failed' AND active = 1`),
  /** Makes all servers that have begun get their earlier definitions back. */
  turnBack: Effect.fn("RolloutRepo.turnBack")(function* (id: string): Writing {
    yield* sql`DELETE FROM rollout_servers WHERE rollout_id = ${id} AND phase = 'queued' AND attempt = 0`
    // A server that was done is up or not as its callers want it.
    yield* sql`UPDATE rollout_servers SET was_up = NULL, stopped = 0
      WHERE rollout_id = ${id} AND phase IN ('done', 'waiting')`
    // Those that may be down come first, so that no more than max_parallel are down at a time.
    yield* sql`UPDATE rollout_servers SET position = position - CASE WHEN phase IN ('changing', 'failed')
        THEN (SELECT MAX(position) + 1 FROM rollout_servers WHERE rollout_id = ${id}) ELSE 0 END,
      phase = 'queued', attempt = attempt + 1, notified_at = NULL, restarted_at = NULL, crash_before = NULL,
      target = earlier, earlier = target WHERE rollout_id = ${id} AND active = 1`
  }),
  /** Records that a caller has stopped a server. */
  stopped: (id: ServerId) =>
    write(sql`UPDATE rollout_servers SET stopped = 1 WHERE server_id = ${id} AND active = 1`)
})

/** Rollouts and their servers (spec 3.13). */
export class RolloutRepo extends Context.Service<RolloutRepo>()("muster/store/RolloutRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({ ...rolloutTable(sql), ...rolloutServersTable(sql) }))
}) {
  static readonly layer = Layer.effect(RolloutRepo, RolloutRepo.make)
}
