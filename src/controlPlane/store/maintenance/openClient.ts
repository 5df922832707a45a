import { existsSync } from "node:fs"
import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { type DatabaseUrl, describeDatabase } from "../../../shared/config/DatabaseUrl.ts"
import { StoreStartError } from "../sql/StoreStartError.ts"
import { SqliteClient } from "../sqlite/SqliteClient.ts"

/** A client for work on a whole database: no deadlines, no migration. */
export const clientOf = (url: DatabaseUrl): Layer.Layer<SqlClient.SqlClient, StoreStartError> =>
  Layer.fresh(
    url._tag === "Sqlite"
      ? SqliteClient.layer({ filename: url.filename })
      : Layer.unwrap(
          Effect.map(
            Effect.promise(() => import("../postgres/PostgresClient.ts")),
            ({ PostgresClient }) => PostgresClient.layerPatient(url)
          )
        )
  )

/** Fails if a SQLite file is missing: opening would make one. */
export const mustExist = (url: DatabaseUrl, hint = ""): Effect.Effect<void, StoreStartError> =>
  Effect.suspend(() =>
    url._tag === "Postgres" || existsSync(url.filename)
      ? Effect.void
      : Effect.fail(
          new StoreStartError({
            reason: "CannotOpen",
            message: `there is no database yet: ${describeDatabase(url)}${hint}`
          })
        )
  )
