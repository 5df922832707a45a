import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Allocations } from "../../../contract/domain/Allocation.ts"
import { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { inSpan } from "../../../shared/observability/trace.ts"
import {
  BooleanColumn,
  byIds,
  firstRow,
  hasRows,
  IntColumn,
  insertRows,
  readRows,
  readServerIds
} from "../sql/rows.ts"
import { changes, type Write, type Writing, write } from "../sql/Transaction.ts"
import { deleteReservations, insertReservations, replaceReservation, reservationRow } from "./CapacityRepo.ts"
import { deleteUnused, findUnused, keepDefinitions } from "./definitionRows.ts"
import {
  type ChangedFields,
  encodeServer,
  type InsertOutcome,
  inSavepoint,
  insertPorts,
  portsOf,
  readServer,
  readServers,
  type ServerFields,
  setFields
} from "./serverRows.ts"

/** Records of a page of all: other work runs between two pages. */
const PAGE = 500

const readSequences = readRows(Schema.Struct({ id: ServerId, node_id: NodeId, last_sequence: IntColumn }))

const readKeeps = firstRow(Schema.Struct({ keeps: BooleanColumn }))

/** Rows that mark servers by their ids. */
const markTable = (sql: SqlClient.SqlClient, table: "removals" | "suspects") => ({
  /** Returns false if there is no such record or mark. */
  set: (id: ServerId, marked: boolean) =>
    changes(
      marked
        ? sql`INSERT INTO ${sql(table)} (server_id) SELECT id FROM servers WHERE id = ${id}
            ON CONFLICT (server_id) DO UPDATE SET server_id = excluded.server_id RETURNING server_id`
        : sql`DELETE FROM ${sql(table)} WHERE server_id = ${id} RETURNING server_id`
    ),
  all: readServerIds(sql`SELECT server_id FROM ${sql(table)} ORDER BY server_id`)
})

const insertions = (sql: SqlClient.SqlClient) => {
  const insertTogether = (records: ReadonlyArray<ServerRecord>) =>
    inSavepoint(
      sql,
      Effect.flatMap(Effect.forEach(records, encodeServer), (rows) =>
        // The statements are pipelined: the first failure is the result.
        Effect.all(
          [
            keepDefinitions(
              sql,
              records.map(({ definition }) => definition)
            ),
            insertRows(sql, "servers", rows),
            insertReservations(sql, records.map(reservationRow)),
            insertPorts(sql, records.flatMap(portsOf))
          ],
          { concurrency: "unbounded", discard: true }
        )
      )
    )

  const insert = Effect.fn("ServerRepo.insert")(
    (record: ServerRecord): Write<InsertOutcome> => insertTogether([record])
  )

  return {
    /** Inserts a record with its reservations; a taken port leaves nothing behind. */
    insert,
    /** {@link insert} for many, in a few statements. */
    insertAll: Effect.fn("ServerRepo.insertAll")(function* (
      records: ReadonlyArray<ServerRecord>
    ): Writing<ReadonlyArray<InsertOutcome>> {
      if (records.length === 0) return []
      const outcome = yield* insertTogether(records)
      // Some collide with each other or with existing ones: inserting one by one shows which.
      return outcome === "port-taken" && records.length > 1
        ? yield* Effect.forEach(records, insert)
        : records.map(() => outcome)
    })
  }
}

const reads = (sql: SqlClient.SqlClient) => {
  const find = (ids: ReadonlyArray<ServerId>) =>
    byIds(ids, (some) =>
      readServers(sql, sql`SELECT * FROM servers WHERE ${sql.in("id", some)} ORDER BY id`)
    ).pipe(inSpan("ServerRepo.find"))

  return {
    find,
    /** Returns the record, locked until the transaction ends. */
    lock: Effect.fn("ServerRepo.lock")(
      (id: ServerId): Write<ServerRecord | undefined> =>
        readServer(sql, sql`SELECT * FROM servers WHERE id = ${id}`)
    ),
    lockAll: (ids: ReadonlyArray<ServerId>): Write<ReadonlyMap<ServerId, ServerRecord>> =>
      Effect.map(find(ids), (found) => new Map(found.map((record) => [record.id, record]))),
    sequences: (ids: ReadonlyArray<ServerId>) =>
      byIds(ids, (some) =>
        readSequences(sql`SELECT id, node_id, last_sequence FROM servers WHERE ${sql.in("id", some)}`)
      ).pipe(inSpan("ServerRepo.sequences")),
    named: (text: string) =>
      readServers(
        sql,
        sql`SELECT * FROM servers
          WHERE id = ${text} OR name = ${text} OR substr(id, 1, ${text.length}) = ${text} ORDER BY id`
      ),
    /** Reads every record by id, in pages: one that is inserted meanwhile may be missing. */
    all: Effect.gen(function* () {
      const records: Array<ServerRecord> = []
      while (true) {
        const after = records.at(-1)?.id ?? ""
        const page = yield* readServers(
          sql,
          sql`SELECT * FROM servers WHERE id > ${after} ORDER BY id LIMIT ${PAGE}`
        )
        records.push(...page)
        if (page.length < PAGE) return records
        yield* Effect.yieldNow
      }
    })
  }
}

const updates = (sql: SqlClient.SqlClient) => ({
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
    const replace = Effect.gen(function* () {
      yield* insertPorts(
        sql,
        next.filter((one) => !among(old)(one))
      )
      for (const { address, node_id, port } of old.filter((one) => !among(next)(one))) {
        yield* sql`DELETE FROM ports WHERE node_id = ${node_id} AND address = ${address} AND port = ${port}`
      }
      yield* sql`UPDATE servers SET ${sql.update(values)} WHERE id = ${before.id}`
    })
    return yield* inSavepoint(sql, replace)
  }),
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
  /** Returns unused hashes among the next `most`, and the hash to continue after, or empty to start. */
  unusedDefinitions: (after: string, most: number) => findUnused(sql, after, most),
  deleteUnusedDefinitions: (hashes: ReadonlyArray<string>) => write(deleteUnused(sql, hashes))
})

/** Records of servers and their ports. Rows that do not decode are defects. */
export class ServerRepo extends Context.Service<ServerRepo>()("muster/store/ServerRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => {
    const removals = markTable(sql, "removals")
    const suspects = markTable(sql, "suspects")
    return {
      ...insertions(sql),
      ...reads(sql),
      ...updates(sql),
      /** Records whether the removal of a server has begun, for a continuation after a crash. */
      setRemoving: removals.set,
      /** Records whether a removal that has begun keeps the files. */
      setKeeps: (id: ServerId, keeps: boolean) =>
        write(sql`UPDATE removals SET keeps = ${keeps ? 1 : 0} WHERE server_id = ${id}`),
      /** Whether a removal that has begun keeps the files; nothing if none has, or it has ended. */
      keeps: (id: ServerId) =>
        Effect.map(readKeeps(sql`SELECT keeps FROM removals WHERE server_id = ${id}`), (row) => row?.keeps),
      /** Whether a server was ever up. */
      hasRun: (id: ServerId) => hasRows(sql`SELECT id FROM servers WHERE id = ${id} AND has_run = 1`),
      setHasRun: (id: ServerId) => write(sql`UPDATE servers SET has_run = 1 WHERE id = ${id}`),
      isRemoving: (id: ServerId): Write<boolean> =>
        hasRows(sql`SELECT server_id FROM removals WHERE server_id = ${id}`),
      removing: removals.all,
      /** Records whether the node must be asked for a server; false if there is no such record. */
      setSuspected: suspects.set,
      suspected: suspects.all
    }
  })
}) {
  static readonly layer = Layer.effect(ServerRepo, ServerRepo.make)
}
