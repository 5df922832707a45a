import { Array as Arr, Context, Effect, Layer, Option, Schema } from "effect"
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
import { insertRows } from "../sql/insertRows.ts"
import {
  BooleanColumn,
  byIds,
  CHUNK,
  firstRow,
  IntColumn,
  JsonColumn,
  readRows,
  writeRow
} from "../sql/rows.ts"
import { changes, type Write, type Writing, write } from "../sql/Transaction.ts"

const KEPT = 100
/** Failed servers that a response names. */
const FAILURES = 100

const RolloutRow = Schema.Struct({
  ...RolloutRecord.fields,
  settings: JsonColumn(RolloutSettings),
  origin: JsonColumn(RolloutOrigin),
  rolling_back: BooleanColumn
})
const ServerRow = Schema.Struct({
  ...RolloutServer.fields,
  was_up: Schema.NullOr(BooleanColumn),
  stopped: BooleanColumn,
  notified_at: Schema.NullOr(IntColumn),
  restarted_at: Schema.NullOr(IntColumn)
})
const encodeRollout = writeRow(RolloutRow)
const encodeServer = writeRow(ServerRow)
const encodeDefinition = writeRow(JsonColumn(ServerDefinition))
const readRollouts = readRows(RolloutRow)
const readRollout = firstRow(RolloutRow)
const readServer = firstRow(ServerRow)
const readIds = readRows(Schema.Struct({ server_id: ServerId }))
const BusyRow = Schema.Struct({
  server_id: ServerId,
  rollout_id: Schema.String,
  created_by: Schema.NullOr(Schema.String)
})
const readBusy = readRows(BusyRow)
const readFailures = readRows(RolloutFailure)
const readDefinition = firstRow(Schema.Struct({ definition: JsonColumn(ServerDefinition) }))
const readCounts = readRows(
  Schema.Struct({ rollout_id: Schema.String, phase: RolloutPhase, servers: IntColumn })
)
const readPlaces = readRows(Schema.Struct({ created_at: Schema.String }))

const noServers: RolloutCounts = { queued: 0, changing: 0, waiting: 0, done: 0, failed: 0 }

interface RolloutPage {
  readonly limit: number
  readonly after?: string
  readonly created_by?: string
}

/** Rows of a rollout: its servers that remain to be changed, and the definitions of revisions. */
export interface RolloutRows {
  readonly servers: ReadonlyArray<RolloutServer>
  readonly definitions: ReadonlyArray<readonly [revision: string, definition: ServerDefinition]>
}

/** Rollouts and their servers (spec 3.13). */
export class RolloutRepo extends Context.Service<RolloutRepo>()("muster/store/RolloutRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const select = sql`SELECT id, state, settings, total, done, rolled_back, canary_left, rolling_back, reason, created_at,
      finished_at, created_by, origin FROM rollouts`
    const over = sql`state IN ('done', 'failed', 'rolled_back', 'aborted')`

    const prune = Effect.gen(function* () {
      const rows = yield* readRollouts(
        sql`${select} WHERE ${over} ORDER BY created_at DESC, id DESC LIMIT 50 OFFSET ${KEPT}`
      )
      const ids = rows.map(({ id }) => id)
      if (ids.length === 0) return
      yield* sql`DELETE FROM rollout_servers WHERE ${sql.in("rollout_id", ids)}`
      yield* sql`DELETE FROM rollouts WHERE ${sql.in("id", ids)}`
    })

    const insert = Effect.fn("RolloutRepo.insert")(function* (
      rollout: RolloutRecord,
      { definitions, servers }: RolloutRows
    ): Writing {
      const rollout_id = rollout.id
      for (const some of Arr.chunksOf(definitions, CHUNK)) {
        const rows = yield* Effect.forEach(some, ([revision, definition]) =>
          Effect.map(encodeDefinition(definition), (text) => ({ rollout_id, revision, definition: text }))
        )
        yield* insertRows(sql, "rollout_definitions", rows)
        yield* pause
      }
      for (const some of Arr.chunksOf(servers, CHUNK)) {
        const rows = yield* Effect.forEach(some, (server) =>
          Effect.map(encodeServer(server), (row) => ({ ...row, active: 1 }))
        )
        yield* insertRows(sql, "rollout_servers", rows)
        yield* pause
      }
      yield* sql`INSERT INTO rollouts ${sql.insert(yield* encodeRollout(rollout))}`
      yield* prune
    })

    const list = Effect.fn("RolloutRepo.list")(function* ({
      after,
      created_by,
      limit
    }: RolloutPage): Effect.fn.Return<ReadonlyArray<RolloutRecord> | undefined, SqlError.SqlError> {
      const own = created_by === undefined ? sql`1 = 1` : sql`created_by = ${created_by}`
      const [place] =
        after === undefined
          ? []
          : yield* readPlaces(sql`SELECT created_at FROM rollouts WHERE id = ${after} AND ${own}`)
      if (after !== undefined && place === undefined) return undefined
      const where =
        place === undefined
          ? sql`1 = 1`
          : sql`(created_at < ${place.created_at} OR (created_at = ${place.created_at} AND id < ${after}))`
      return yield* readRollouts(
        sql`${select} WHERE ${own} AND ${where} ORDER BY created_at DESC, id DESC LIMIT ${limit}`
      )
    })

    const save = Effect.fn("RolloutRepo.save")(function* (rollout: RolloutRecord): Writing {
      const { id, origin: _, ...values } = yield* encodeRollout(rollout)
      yield* sql`UPDATE rollouts SET ${sql.update(values)} WHERE id = ${id}`
    })

    const counts = Effect.fn("RolloutRepo.counts")(function* (
      id: string
    ): Effect.fn.Return<RolloutCounts, SqlError.SqlError> {
      const rows = yield* readCounts(
        sql`SELECT rollout_id, phase, COUNT(*) AS servers FROM rollout_servers
          WHERE rollout_id = ${id} AND active = 1 GROUP BY rollout_id, phase`
      )
      return { ...noServers, ...Object.fromEntries(rows.map(({ phase, servers }) => [phase, servers])) }
    })

    const failures = Effect.fn("RolloutRepo.failures")(function* (id: string) {
      const of = sql`rollout_id = ${id} AND reason IS NOT NULL`
      const first = yield* readFailures(
        sql`SELECT server_id, reason FROM rollout_servers WHERE ${of} ORDER BY position LIMIT ${FAILURES}`
      )
      if (first.length < FAILURES) return { first, total: first.length }
      const [row] = yield* readCounts(
        sql`SELECT rollout_id, 'failed' AS phase, COUNT(*) AS servers FROM rollout_servers
          WHERE ${of} GROUP BY rollout_id`
      )
      return { first, total: row?.servers ?? first.length }
    })

    const busy = Effect.fn("RolloutRepo.busy")((ids: ReadonlyArray<ServerId>) =>
      byIds(ids, (some) =>
        Effect.andThen(
          pause,
          readBusy(sql`SELECT server_id, rollout_id, created_by
            FROM rollout_servers JOIN rollouts ON rollouts.id = rollout_id
            WHERE active = 1 AND ${sql.in("server_id", some)} ORDER BY server_id`)
        )
      )
    )

    const saveServer = Effect.fn("RolloutRepo.saveServer")(function* (
      server: RolloutServer
    ): Writing<boolean> {
      const { attempt, rollout_id, server_id, ...values } = yield* encodeServer(server)
      // A stop that a caller has recorded since must stay.
      const { stopped: _, ...same } = values
      return yield* changes(sql`UPDATE rollout_servers SET ${sql.update(same)}
        WHERE rollout_id = ${rollout_id} AND server_id = ${server_id} AND attempt = ${attempt} AND active = 1
        RETURNING server_id`)
    })

    const columns = sql`rollout_id, server_id, position, phase, attempt, target, earlier, was_up, stopped,
      notified_at, restarted_at, crash_before, reason`

    return {
      /** Inserts a rollout without {@link busy} servers, in steps between which other requests are served. */
      insert,
      find: (id: string) => readRollout(sql`${select} WHERE id = ${id}`),
      /** Returns rollouts, newest first, unless none has the id `after`. `created_by` selects those of one key. */
      list,
      unfinished: readRollouts(sql`${select} WHERE NOT (${over}) ORDER BY created_at, id`),
      save,
      counts,
      /** The first servers of a rollout that failed, and their number. */
      failures,
      /** The rollouts that are not over and have one of these servers. */
      busy,
      /** The server in its rollout that is not over. */
      server: (id: ServerId) =>
        readServer(sql`SELECT ${columns} FROM rollout_servers WHERE server_id = ${id} AND active = 1`),
      /** The servers of unfinished rollouts that are under way, or wait for their next start. */
      underWay: Effect.map(
        readIds(sql`SELECT server_id FROM rollout_servers
          WHERE active = 1 AND phase IN ('changing', 'waiting') ORDER BY rollout_id, position`),
        (rows) => rows.map(({ server_id }) => server_id)
      ),
      /** The definition of a revision that servers of a rollout get or get back. */
      definition: (rollout_id: string, revision: string) =>
        Effect.map(
          readDefinition(sql`SELECT definition FROM rollout_definitions
            WHERE rollout_id = ${rollout_id} AND revision = ${revision}`),
          Option.map(({ definition }) => definition)
        ),
      /** Begins the next servers; returns them. */
      begin: (id: string, count: number): Write<ReadonlyArray<ServerId>> =>
        Effect.map(
          readIds(sql`UPDATE rollout_servers SET phase = 'changing',
            stopped = CASE WHEN was_up IS NULL THEN 0 ELSE stopped END WHERE rollout_id = ${id} AND server_id IN (
            SELECT server_id FROM rollout_servers WHERE rollout_id = ${id} AND phase = 'queued' AND active = 1
            ORDER BY position LIMIT ${count}) RETURNING server_id`),
          (rows) => rows.map(({ server_id }) => server_id)
        ),
      /** Saves the progress of a server; false if the server has another attempt, or none any more. */
      saveServer,
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
          phase = 'queued', attempt = attempt + 1, notified_at = NULL, restarted_at = NULL, crash_before = NULL, target = earlier, earlier = target WHERE rollout_id = ${id} AND active = 1`
      }),
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
      }),
      /** Records that a caller has stopped a server. */
      stopped: (id: ServerId) =>
        write(sql`UPDATE rollout_servers SET stopped = 1 WHERE server_id = ${id} AND active = 1`)
    }
  })
}) {
  static readonly layer = Layer.effect(RolloutRepo, RolloutRepo.make)
}
