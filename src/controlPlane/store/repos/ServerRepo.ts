import { Context, Effect, Layer, type Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Allocations } from "../../../contract/domain/Allocation.ts"
import { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { inSpan } from "../../../shared/observability/trace.ts"
import { insertRows } from "../sql/insertRows.ts"
import { byIds, IntColumn, readRows } from "../sql/rows.ts"
import { isUniqueViolation } from "../sql/sqlErrors.ts"
import { changes, type Write, type Writing, write } from "../sql/Transaction.ts"
import { deleteUnused, findUnused, keepDefinitions } from "./definitionRows.ts"
import { deleteReservations, holdingRow, insertReservations, replaceReservation } from "./reservationRows.ts"
import { type ChangedFields, type ServerFields, setFields } from "./serverFields.ts"
import { encodeServer, portsOf, readServer, readServers } from "./serverRows.ts"

/** Records of a page of all: other work runs between two pages. */
const PAGE = 500

const readSequences = readRows(Schema.Struct({ id: ServerId, node_id: NodeId, last_sequence: IntColumn }))
const readIds = readRows(Schema.Struct({ server_id: ServerId }))

/** The outcome of an insertion; `port-taken`: another server has one of its ports. */
export type InsertOutcome = "inserted" | "port-taken"

/** Records of servers and their ports. Rows that do not decode are defects. */
export class ServerRepo extends Context.Service<ServerRepo>()("muster/store/ServerRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const select = sql`SELECT id, blueprint_id, node_id, allocations, overrides, definition_hash, redefinition, status,
      install, start_pending, restart, run, problem, last_sequence, created_at, name, labels, expires_at, created_by, trace, updated_at FROM servers`

    const insertRecords = Effect.fnUntraced(function* (records: ReadonlyArray<ServerRecord>) {
      const rows = yield* Effect.forEach(records, encodeServer)
      // The statements are pipelined: the first failure is the result.
      yield* Effect.all(
        [
          keepDefinitions(
            sql,
            records.map(({ definition }) => definition)
          ),
          insertRows(sql, "servers", rows),
          insertReservations(sql, records.map(holdingRow)),
          Effect.catchIf(
            insertRows(sql, "ports", records.flatMap(portsOf)),
            (error) => isUniqueViolation(error),
            () => Effect.fail("port-taken" as const)
          )
        ],
        { concurrency: "unbounded", discard: true }
      )
    })

    // A savepoint of its own: a taken port undoes exactly these records.
    const insertTogether = (records: ReadonlyArray<ServerRecord>) =>
      insertRecords(records).pipe(
        Effect.as<InsertOutcome>("inserted"),
        sql.withTransaction,
        Effect.catchIf(
          (error): error is "port-taken" => error === "port-taken",
          (outcome) => Effect.succeed<InsertOutcome>(outcome)
        )
      )

    const insert = Effect.fn("ServerRepo.insert")(
      (record: ServerRecord): Write<InsertOutcome> => insertTogether([record])
    )

    const insertAll = Effect.fn("ServerRepo.insertAll")(function* (
      records: ReadonlyArray<ServerRecord>
    ): Writing<ReadonlyArray<InsertOutcome>> {
      if (records.length === 0) return []
      const outcome = yield* insertTogether(records)
      // Some collide with each other or with existing ones: inserting one by one shows which.
      return outcome === "port-taken" && records.length > 1
        ? yield* Effect.forEach(records, insert)
        : records.map(() => outcome)
    })

    const lock = Effect.fn("ServerRepo.lock")(
      (id: ServerId): Write<Option.Option<ServerRecord>> => readServer(sql, sql`${select} WHERE id = ${id}`)
    )

    const find = (ids: ReadonlyArray<ServerId>) =>
      byIds(ids, (some) => readServers(sql, sql`${select} WHERE ${sql.in("id", some)} ORDER BY id`)).pipe(
        inSpan("ServerRepo.find")
      )

    return {
      /** Inserts a record with its reservations; a taken port leaves nothing behind. */
      insert,
      /** {@link insert} for many, in a few statements. */
      insertAll,
      /** Returns the record, locked until the transaction ends. */
      lock,
      lockAll: (ids: ReadonlyArray<ServerId>): Write<ReadonlyMap<ServerId, ServerRecord>> =>
        Effect.map(find(ids), (found) => new Map(found.map((record) => [record.id, record]))),
      set: (id: ServerId, fields: ServerFields) => write(setFields(sql, [[id, fields]])),
      setAll: (changed: ReadonlyArray<ChangedFields>) => write(setFields(sql, changed)),
      /** Replaces the definition of a record, with its overrides and its reservation. */
      redefine: Effect.fnUntraced(function* (before: ServerRecord, record: ServerRecord): Writing {
        const { blueprint_id, definition_hash, overrides, redefinition } = yield* encodeServer(record)
        const updated_at = yield* nowText
        const values = { blueprint_id, definition_hash, overrides, redefinition, updated_at }
        yield* keepDefinitions(sql, [record.definition])
        yield* sql`UPDATE servers SET ${sql.update(values)} WHERE id = ${record.id}`
        yield* replaceReservation(sql, before, record)
      }),
      reserve: (before: ServerRecord, record: ServerRecord) => write(replaceReservation(sql, before, record)),
      /** Records an announced expiry; false if the server does not expire then, or it was announced. */
      announceExpiry: (id: ServerId, expires_at: string) =>
        changes(
          sql`UPDATE servers SET expiry_announced = ${expires_at} WHERE id = ${id} AND expires_at = ${expires_at}
            AND (expiry_announced IS NULL OR expiry_announced <> ${expires_at}) RETURNING id`
        ),
      /** Replaces the allocations of a record, and its reserved ports on its node; a taken port changes nothing. */
      replacePorts: Effect.fn("ServerRepo.replacePorts")(function* (
        before: ServerRecord,
        allocations: Allocations
      ): Writing<InsertOutcome> {
        const record = { ...before, allocations }
        const [old, next] = [portsOf(before), portsOf(record)]
        const among = (ports: typeof old) => (one: (typeof old)[number]) =>
          ports.some(({ address, port }) => address === one.address && port === one.port)
        const updated_at = yield* nowText
        const values = { allocations: (yield* encodeServer(record)).allocations, updated_at }
        // A savepoint of its own: a taken port undoes all of it, and nothing else.
        return yield* Effect.forEach(
          next.filter((one) => !among(old)(one)),
          (one) => sql`INSERT INTO ports ${sql.insert(one)}`
        ).pipe(
          Effect.andThen(
            Effect.forEach(
              old.filter((one) => !among(next)(one)),
              ({ address, node_id, port }) =>
                sql`DELETE FROM ports WHERE node_id = ${node_id} AND address = ${address} AND port = ${port}`
            )
          ),
          Effect.andThen(sql`UPDATE servers SET ${sql.update(values)} WHERE id = ${before.id}`),
          sql.withTransaction,
          Effect.as<InsertOutcome>("inserted"),
          Effect.catchIf(
            (error) => isUniqueViolation(error),
            () => Effect.succeed<InsertOutcome>("port-taken")
          )
        )
      }),
      /** Records whether the removal of a server has begun, for a continuation after a crash. */
      setRemoving: (id: ServerId, removing: boolean) =>
        write(
          removing
            ? sql`INSERT INTO removals ${sql.insert({ server_id: id })} ON CONFLICT DO NOTHING`
            : sql`DELETE FROM removals WHERE server_id = ${id}`
        ),
      isRemoving: (id: ServerId): Write<boolean> =>
        Effect.map(sql`SELECT server_id FROM removals WHERE server_id = ${id}`, (rows) => rows.length > 0),
      removing: Effect.map(readIds(sql`SELECT server_id FROM removals ORDER BY server_id`), (rows) =>
        rows.map(({ server_id }) => server_id)
      ),
      /** Records whether the node must be asked for a server; false if there is no such record. */
      setSuspected: (id: ServerId, suspected: boolean) =>
        changes(
          suspected
            ? sql`INSERT INTO suspects (server_id) SELECT id FROM servers WHERE id = ${id}
                ON CONFLICT (server_id) DO UPDATE SET server_id = excluded.server_id RETURNING server_id`
            : sql`DELETE FROM suspects WHERE server_id = ${id} RETURNING server_id`
        ),
      suspected: Effect.map(readIds(sql`SELECT server_id FROM suspects ORDER BY server_id`), (rows) =>
        rows.map(({ server_id }) => server_id)
      ),
      remove: (id: ServerId) =>
        write(
          Effect.all(
            [
              sql`DELETE FROM ports WHERE server_id = ${id}`,
              deleteReservations(sql, id),
              sql`DELETE FROM servers WHERE id = ${id}`
            ],
            { concurrency: "unbounded" }
          )
        ),
      find,
      sequences: (ids: ReadonlyArray<ServerId>) =>
        byIds(ids, (some) =>
          readSequences(sql`SELECT id, node_id, last_sequence FROM servers WHERE ${sql.in("id", some)}`)
        ).pipe(inSpan("ServerRepo.sequences")),
      /** Returns unused hashes among the next `most`, and the hash to continue after, or empty to start. */
      unusedDefinitions: (after: string, most: number) => findUnused(sql, after, most),
      deleteUnusedDefinitions: (hashes: ReadonlyArray<string>) => write(deleteUnused(sql, hashes)),
      named: (text: string) =>
        readServers(
          sql,
          sql`${select} WHERE id = ${text} OR name = ${text} OR substr(id, 1, ${text.length}) = ${text} ORDER BY id`
        ),
      /** Reads every record by id, in pages: one that is inserted meanwhile may be missing. */
      all: Effect.gen(function* () {
        const records: Array<ServerRecord> = []
        while (true) {
          const after = records.at(-1)?.id ?? ""
          const page = yield* readServers(sql, sql`${select} WHERE id > ${after} ORDER BY id LIMIT ${PAGE}`)
          records.push(...page)
          if (page.length < PAGE) return records
          yield* Effect.yieldNow
        }
      })
    }
  })
}) {
  static readonly layer = Layer.effect(ServerRepo, ServerRepo.make)
}
