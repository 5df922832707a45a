import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { TargetSettings } from "../../../contract/domain/BackupTarget.ts"
import { TimeText } from "../../../contract/domain/nowText.ts"
import { upsertRows } from "../sql/insertRows.ts"
import { countOf, firstRow, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import type { Writing } from "../sql/Transaction.ts"

/** A target that a caller has defined. */
export const BackupTargetRecord = Schema.Struct({
  id: Schema.String,
  created_at: TimeText,
  settings: JsonColumn(TargetSettings),
  /** Its secret, encrypted; null if it has none. */
  sealed: Schema.NullOr(Schema.String)
})
export type BackupTargetRecord = typeof BackupTargetRecord.Type

const encode = writeRow(BackupTargetRecord)
const readAll = readRows(BackupTargetRecord)
const readOne = firstRow(BackupTargetRecord)

/** Targets of backups (spec 12.6). */
export class BackupTargetRepo extends Context.Service<BackupTargetRepo>()("muster/store/BackupTargetRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return {
      all: readAll(sql`SELECT * FROM backup_targets ORDER BY id`),
      find: (id: string) => readOne(sql`SELECT * FROM backup_targets WHERE id = ${id}`),
      /** Adds or replaces a target. */
      put: Effect.fn("BackupTargetRepo.put")(function* (record: BackupTargetRecord): Writing {
        yield* upsertRows(sql, "backup_targets", "id", [yield* encode(record)])
      }),
      remove: Effect.fn("BackupTargetRepo.remove")(function* (id: string): Writing {
        yield* sql`DELETE FROM backup_targets WHERE id = ${id}`
      }),
      /** Number of backups in a target. */
      backupsIn: (id: string) => countOf(sql`SELECT COUNT(*) AS count FROM backups WHERE target = ${id}`)
    }
  })
}) {
  static readonly layer = Layer.effect(BackupTargetRepo, BackupTargetRepo.make)
}
