import { Clock, Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { type CrashRecord, CrashSummary } from "../../../contract/domain/CrashRecord.ts"
import { ServerId } from "../../../contract/domain/Id.ts"
import type { RestrictedServer } from "../../../contract/domain/Key.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import { equalTo, JsonColumn, newestFirst, type RowPage, readRows, writeRow } from "../sql/rows.ts"
import { allOf, type Writing } from "../sql/Transaction.ts"
import { encodeLabels } from "./serverRows.ts"

/** Crashes of each blueprint that are kept. */
export const CrashesKept = Context.Reference("muster/store/CrashesKept", { defaultValue: () => 20 })

/** Crashes of each server that exists that are kept. */
const KEPT_OF_SERVER = 5
/** One addition removes at most this many crashes, beside those of its server. */
const PRUNED = 100

export interface CrashQuery extends RowPage {
  readonly server_id?: string
  /** Id or name of the server. */
  readonly server?: string
  readonly blueprint_id?: string
  readonly node_id?: string
  /** Milliseconds since the epoch. */
  readonly since?: number
  /** Selects the servers whose crashes count; a deleted server has its last labels. */
  readonly mayRead?: (server: RestrictedServer) => boolean
}

const readRecords = readRows(
  Schema.Struct({ summary: JsonColumn(CrashSummary), lines: JsonColumn(Schema.Array(Schema.String)) })
)
const readSummaries = readRows(Schema.Struct({ summary: JsonColumn(CrashSummary) }))
const readFacts = readRows(
  Schema.Struct({
    id: Schema.String,
    server_id: ServerId,
    blueprint_id: Schema.String,
    labels: Schema.NullOr(JsonColumn(Labels))
  })
)
const encodeSummary = writeRow(JsonColumn(CrashSummary))

/** Records of crashes, newest first; they outlive their servers (spec 3.18). */
export class CrashRepo extends Context.Service<CrashRepo>()("muster/store/CrashRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const kept = yield* CrashesKept

    /** Whether a crash has so many newer ones with the same value in a column. */
    const isBeyond = (column: "blueprint_id" | "server_id", count: number) =>
      sql`EXISTS (SELECT 1 FROM crashes AS newer WHERE newer.${sql(column)} = crashes.${sql(column)}
        AND (newer.recorded_at, newer.id) > (crashes.recorded_at, crashes.id) LIMIT 1 OFFSET ${count - 1})`

    const add = Effect.fn("CrashRepo.add")(function* ({ lines, ...summary }: CrashRecord): Writing {
      const { blueprint_id, id, node_id, server_id, server_name = null } = summary
      const recorded_at = yield* Clock.currentTimeMillis
      const row = {
        id,
        recorded_at,
        server_id,
        server_name,
        blueprint_id,
        node_id,
        lines: JSON.stringify(lines)
      }
      yield* sql`INSERT INTO crashes ${sql.insert({ ...row, summary: yield* encodeSummary(summary) })}`
      // Only these can have left a bound: the older ones of the server, and those that follow the kept ones.
      yield* sql`DELETE FROM crashes WHERE ${isBeyond("blueprint_id", kept)}
        AND (${isBeyond("server_id", KEPT_OF_SERVER)}
          OR NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = crashes.server_id))
        AND (server_id = ${server_id} OR id IN (SELECT id FROM crashes WHERE blueprint_id = ${blueprint_id}
          ORDER BY recorded_at DESC, id DESC LIMIT ${PRUNED} OFFSET ${kept}))`
    })

    const page = newestFirst(sql, "crashes", readRecords, "recorded_at")
    const records = (at: RowPage, where: Statement.Fragment) =>
      Effect.map(page(at, [where]), (rows) => rows?.map(({ lines, summary }) => ({ ...summary, lines })))

    /** The ids of the crashes that a caller may read, newest first. */
    const readable = (where: Statement.Fragment, mayRead: NonNullable<CrashQuery["mayRead"]>) =>
      Effect.map(
        readFacts(sql`SELECT id, server_id, blueprint_id, labels FROM crashes WHERE ${where}
          ORDER BY recorded_at DESC, id DESC`),
        (facts) =>
          facts.flatMap(({ blueprint_id, id, labels, server_id }) =>
            mayRead({ id: server_id, blueprint_id, labels: labels ?? {} }) ? [id] : []
          )
      )

    const find = Effect.fn("CrashRepo.find")(function* (query: CrashQuery) {
      const { after, limit, mayRead, server, since, ...equal } = query
      const where = allOf(sql, [
        ...equalTo(sql, equal),
        server !== undefined && sql`(server_id = ${server} OR server_name = ${server})`,
        since !== undefined && sql`recorded_at >= ${since}`
      ])
      if (mayRead !== undefined) {
        const ids = yield* readable(where, mayRead)
        const place = after === undefined ? -1 : ids.indexOf(after)
        if (after !== undefined && place === -1) return undefined
        const some = ids.slice(place + 1, place + 1 + limit)
        return some.length === 0 ? [] : yield* records({ limit }, sql.in("id", some))
      }
      return yield* records({ limit, after }, where)
    })

    return {
      /** Adds a record. {@link CrashesKept} bounds a blueprint's, except {@link KEPT_OF_SERVER} of each server. */
      add,
      /** Records the last labels and name of a deleted server; its crashes stay with the blueprint's. */
      keepFacts: Effect.fn("CrashRepo.keepFacts")(function* (
        id: ServerId,
        { labels, name = null }: { readonly labels: Labels; readonly name?: string | null }
      ): Writing {
        yield* sql`UPDATE crashes SET labels = ${yield* encodeLabels(labels)}, server_name = ${name}
          WHERE server_id = ${id}`
        yield* sql`DELETE FROM crashes WHERE server_id = ${id} AND ${isBeyond("blueprint_id", kept)}`
      }),
      /** Undefined if no crash has the id `after`, or if the caller may not read it. */
      find,
      last: Effect.map(readSummaries(sql`SELECT summary FROM crashes ORDER BY recorded_at, id`), (rows) => [
        ...new Map(rows.map(({ summary }) => [summary.server_id, summary])).values()
      ])
    }
  })
}) {
  static readonly layer = Layer.effect(CrashRepo, CrashRepo.make)
}
