import { Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { AuditEntry } from "../../../contract/domain/AuditEntry.ts"
import type { AuditRecord } from "../../../contract/domain/AuditedRequest.ts"
import { type AuditBounds, type AuditQuery, auditTable } from "../audit/auditTable.ts"

/** Entries of the audit log (spec 6.6). A write of an audited request adds its entry by itself. */
export class AuditRepo extends Context.Service<
  AuditRepo,
  {
    /** Adds entries, or replaces them by their ids. */
    put(records: ReadonlyArray<AuditRecord>): Effect.Effect<void, SqlError.SqlError>
    /** Returns entries, newest first. */
    find(query: AuditQuery): Effect.Effect<ReadonlyArray<AuditEntry>, SqlError.SqlError>
    /** Deletes at most `most` entries that exceed a bound, the oldest; returns their number, 0 only if none is left. */
    prune(bounds: AuditBounds, most: number): Effect.Effect<number, SqlError.SqlError>
    /** The bytes of all entries, about as many as the database needs for them. */
    readonly size: Effect.Effect<number, SqlError.SqlError>
  }
>()("muster/store/AuditRepo") {
  static readonly layer = Layer.effect(
    AuditRepo,
    Effect.map(SqlClient.SqlClient, (sql) => AuditRepo.of(auditTable(sql)))
  )
}
