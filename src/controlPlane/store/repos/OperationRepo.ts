import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { type ServerId, serverId } from "../../../contract/domain/Id.ts"
import { idBytes } from "../../../contract/domain/idBytes.ts"
import type { ChangedServer } from "../../../contract/domain/Journal.ts"
import {
  type EndState,
  isExclusive,
  OperationKind,
  type OperationProgress,
  OperationRecord,
  shownOperation
} from "../../../contract/domain/Operation.ts"
import {
  equalTo,
  firstRow,
  IntColumn,
  JsonColumn,
  newestFirst,
  type RowPage,
  tableOf,
  writeRow
} from "../sql/rows.ts"
import { append, changes, type Writing } from "../sql/Transaction.ts"
import { failBackupOf } from "./BackupRepo.ts"

/** Ended operations that are kept at most. */
const MOST_ENDED = 10_000
/** Ended operations that one round of the retention removes at most. */
const PRUNED = 1_000

const { progress, request } = OperationRecord.fields
const operations = tableOf(
  "operations",
  Schema.Struct({
    ...OperationRecord.fields,
    request: Schema.NullOr(JsonColumn(request.members[0])),
    progress: Schema.NullOr(JsonColumn(progress.members[0]))
  })
)
const encodeProgress = writeRow(JsonColumn(progress.members[0]))
const readCounts = firstRow(
  Schema.Struct({ total: IntColumn, own: IntColumn, of_key: IntColumn, by_key: IntColumn })
)

export interface OperationPage extends RowPage {
  readonly server_id?: string
  readonly kind?: string
  readonly state?: string
  /** Only the operations of this key. */
  readonly created_by?: string
  /** Only operations of these kinds. */
  readonly kinds?: ReadonlyArray<string>
}

type Begun = Pick<OperationRecord, "created_at" | "created_by" | "kind" | "request" | "server_id">

/** Returns the record of an operation that begins, with a new id. */
export const newOperation = (begun: Begun, state: "queued" | "running" = "queued"): OperationRecord => ({
  id: serverId(idBytes(16)),
  state,
  ...{ progress: null, reason: null, cancelling: null, finished_at: null },
  ...begun
})

/** Operations (spec 11). Each change of a state is a journal entry of the same write. */
export class OperationRepo extends Context.Service<OperationRepo>()("muster/store/OperationRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const unfinished = sql`finished_at IS NULL`
    const page = newestFirst(sql, "operations", operations.read)
    const { find, insert } = operations.on(sql)

    /** Adds the journal entry about a changed row. The transaction adds the facts of the server that `facts` finds. */
    const announce = (record: OperationRecord, server: ChangedServer | undefined) => {
      const { created_by, server_id } = record
      const payload = { operation: shownOperation(record), created_by }
      return append({ topic: "server:operation", server_id, payload }, server)
    }

    /** Updates a row and announces it; returns it, unless no row has changed. */
    const changed = (update: Statement.Statement<unknown>, server: ChangedServer | undefined) =>
      Effect.tap(operations.first(update), (record) =>
        record === undefined ? Effect.void : announce(record, server)
      )

    return {
      insert: (record: OperationRecord, server: ChangedServer | undefined) =>
        Effect.andThen(insert(record), announce(record, server)),
      find,
      /** The numbers of unfinished operations: of all servers, of one, and of one by one key. */
      counts: (server_id: ServerId, created_by: string | null) =>
        Effect.map(
          readCounts(sql`SELECT COUNT(*) AS total,
            COALESCE(SUM(CASE WHEN server_id = ${server_id} THEN 1 ELSE 0 END), 0) AS own,
            COALESCE(SUM(CASE WHEN created_by = ${created_by ?? ""} THEN 1 ELSE 0 END), 0) AS of_key,
            COALESCE(SUM(CASE WHEN server_id = ${server_id} AND created_by = ${created_by ?? ""} THEN 1 ELSE 0 END), 0)
              AS by_key
            FROM operations WHERE ${unfinished}`),
          (found) => found ?? { total: 0, own: 0, of_key: 0, by_key: 0 }
        ),
      /** The unfinished operation that has a server for itself, if there is one. */
      exclusiveOf: (server_id: ServerId) =>
        operations.first(sql`SELECT * FROM operations WHERE server_id = ${server_id} AND ${unfinished}
          AND ${sql.in("kind", OperationKind.literals.filter(isExclusive))} LIMIT 1`),
      /** Returns operations, newest first, unless no operation has the id `after`. */
      list: ({ after, kinds, limit, ...equal }: OperationPage) =>
        page({ limit, after }, [
          ...equalTo(sql, equal),
          kinds !== undefined && (kinds.length === 0 ? sql`1 = 0` : sql.in("kind", kinds))
        ]),
      unfinished: operations.read(sql`SELECT * FROM operations WHERE ${unfinished} ORDER BY created_at, id`),
      /** Begins a queued operation; nothing if it is not queued. */
      run: (id: string, server: ChangedServer | undefined) =>
        changed(
          sql`UPDATE operations SET state = 'running', progress = NULL WHERE id = ${id} AND state = 'queued' RETURNING *`,
          server
        ),
      /** Saves the figures of a running operation, without a journal entry. */
      saveProgress: Effect.fn("OperationRepo.saveProgress")(function* (
        id: string,
        figures: OperationProgress
      ): Writing<boolean> {
        return yield* changes(sql`UPDATE operations SET progress = ${yield* encodeProgress(figures)}
          WHERE id = ${id} AND ${unfinished} RETURNING id`)
      }),
      /** Ends an unfinished operation; nothing if it has ended. */
      end: Effect.fn("OperationRepo.end")(function* (
        id: string,
        { progress: figures, ...end }: OperationEnd,
        server: ChangedServer | undefined
      ): Writing<OperationRecord | undefined> {
        const last = figures === undefined ? {} : { progress: yield* encodeProgress(figures) }
        const ended = yield* changed(
          sql`UPDATE operations SET ${sql.update({ ...end, ...last, request: null })}
            WHERE id = ${id} AND ${unfinished} RETURNING *`,
          server
        )
        if (ended !== undefined) yield* failBackupOf(sql, ended, server)
        return ended
      }),
      /** Asks the leader to cancel an operation that runs; nothing if it does not run, or is being cancelled already. */
      askToCancel: (id: string, reason: string, server: ChangedServer | undefined) =>
        changed(
          sql`UPDATE operations SET cancelling = ${reason}
            WHERE id = ${id} AND state = 'running' AND cancelling IS NULL RETURNING *`,
          server
        ),
      /** Removes operations that have ended before a time (RFC 3339), and the oldest above the bound; returns how many. */
      prune: Effect.fn("OperationRepo.prune")(function* (notBefore: string): Writing<number> {
        const removed = yield* sql`DELETE FROM operations WHERE id IN (
          SELECT id FROM operations WHERE finished_at < ${notBefore} LIMIT ${PRUNED}) RETURNING id`
        const above = yield* sql`DELETE FROM operations WHERE id IN (
          SELECT id FROM operations WHERE finished_at IS NOT NULL
          ORDER BY finished_at DESC, id DESC LIMIT ${PRUNED} OFFSET ${MOST_ENDED}) RETURNING id`
        return removed.length + above.length
      })
    }
  })
}) {
  static readonly layer = Layer.effect(OperationRepo, OperationRepo.make)
}

export interface OperationEnd {
  readonly state: EndState
  readonly reason: string | null
  /** The last figures, if there are some. */
  readonly progress?: OperationProgress
  /** RFC 3339. */
  readonly finished_at: string
}
