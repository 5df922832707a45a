import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs"
import { dirname } from "node:path"
import { Context, Data, Effect, Layer, Option, type Scope } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import {
  type DatabaseUrl,
  describeDatabase,
  type PostgresUrl,
  type SqliteUrl
} from "../../../shared/config/DatabaseUrl.ts"
import { clientOf, mustExist } from "../layers/layerDatabase.ts"
import { currentSchema, migrate, refusal, schemaVersion } from "../migrations/migrate.ts"
import { snapshotOf } from "../sql/Backend.ts"
import { insertRows } from "../sql/rows.ts"
import { StoreStartError } from "../sql/sqlErrors.ts"
import { lockFileOf, openDatabase, takeServiceLock } from "../sqlite/database.ts"
import { countRows, type Digest, digestOf, tableNames } from "./tables.ts"

/** The copy was not made; the target is unchanged. */
class CopyFailed extends Data.TaggedError("CopyFailed")<{
  readonly message: string
  readonly cause?: unknown
}> {}

export interface CopiedTable extends Digest {
  readonly table: string
}

/** The only table with rows in a new database. */
const COUNTERS = "counters"

/** Refuses a target with any content: a copy never mixes two installations. */
const checkEmpty = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, to: DatabaseUrl) {
  for (const table of yield* tableNames(sql)) {
    const used =
      table === COUNTERS
        ? yield* sql`SELECT name FROM ${sql(COUNTERS)} WHERE value <> 0`
        : (yield* countRows(sql, table)) === 0
          ? []
          : [table]
    if (used.length > 0) {
      return yield* new CopyFailed({
        message: `${describeDatabase(to)} is not empty (${table} has rows): name a new database`
      })
    }
  }
})

const checkSchema = Effect.fnUntraced(function* (from: DatabaseUrl) {
  const refused = yield* refusal
  if (Option.isSome(refused)) return yield* refused.value
  const version = yield* currentSchema
  if (version === schemaVersion) return
  return yield* new CopyFailed({
    message: `${describeDatabase(from)} has schema ${version}, this version has ${schemaVersion}: run \`muster db migrate\` on it first`
  })
})

const copyTables = Effect.fnUntraced(function* (source: SqlClient.SqlClient, target: SqlClient.SqlClient) {
  const tables = yield* tableNames(target)
  const foreign = (yield* tableNames(source)).find((table) => !tables.includes(table))
  if (foreign !== undefined) {
    return yield* new CopyFailed({ message: `the table ${foreign} is none of muster's: move it elsewhere` })
  }
  yield* target`DELETE FROM ${target(COUNTERS)}`
  const copied: Array<CopiedTable> = []
  for (const table of tables) {
    const wanted = yield* digestOf(source, table, (rows) => insertRows(target, table, rows))
    // Read back from the target.
    const found = yield* digestOf(target, table)
    if (found.rows !== wanted.rows || found.hash !== wanted.hash) {
      return yield* new CopyFailed({
        message: `${table} is not the same after the copy (${wanted.rows} rows, then ${found.rows}): nothing was kept`
      })
    }
    copied.push({ table, ...wanted })
  }
  return copied
})

const inUse = (url: DatabaseUrl, cause?: unknown) =>
  StoreStartError.of("InUse", `a muster service runs on ${describeDatabase(url)}: stop it first`, cause)

const lockPostgres = Effect.fnUntraced(function* (url: PostgresUrl) {
  const { tryServiceLock } = yield* Effect.promise(() => import("../postgres/session.ts"))
  if (!(yield* tryServiceLock(url))) return yield* inUse(url)
})

/** Keeps services off the database until the scope closes. @error StoreStartError `InUse`: a service runs on it */
export const lockDatabase = (url: DatabaseUrl): Effect.Effect<void, StoreStartError, Scope.Scope> =>
  url._tag === "Postgres"
    ? lockPostgres(url)
    : takeServiceLock(lockFileOf(url.filename), url.filename).pipe(
        Effect.mapError((error) => (error.reason === "InUse" ? inUse(url, error) : error))
      )

const open = (url: DatabaseUrl) =>
  Effect.map(Layer.build(clientOf(url)), (context) => Context.get(context, SqlClient.SqlClient))

/**
 * Copies an installation into an empty database, verified, or not at all. No service runs on either meanwhile.
 * @error StoreStartError one of them cannot be opened, or a service runs on it
 * @error CopyFailed the source has another schema, the target is not empty, or the copy differs
 */
export const copyDatabase = Effect.fn("copyDatabase")(
  function* (from: DatabaseUrl, to: DatabaseUrl) {
    if (describeDatabase(from) === describeDatabase(to)) {
      return yield* new CopyFailed({ message: "source and target are the same database" })
    }
    yield* mustExist(from)
    yield* lockDatabase(from)
    const source = yield* open(from)
    yield* Effect.provideService(checkSchema(from), SqlClient.SqlClient, source)
    yield* lockDatabase(to)
    const target = yield* open(to)
    yield* Effect.provideService(migrate, SqlClient.SqlClient, target)
    return yield* checkEmpty(target, to).pipe(
      Effect.andThen(
        // A consistent view of all tables. The target's transaction is the outer one and ends last.
        Effect.provideService(
          source.withTransaction(copyTables(source, target)),
          SqlClient.BeginTransaction,
          snapshotOf(source)
        )
      ),
      target.withTransaction
    )
  },
  Effect.scoped,
  Effect.catchIf(SqlError.isSqlError, (cause) =>
    Effect.fail(
      new CopyFailed({ message: `the copy has failed, nothing of it was kept: ${cause.message}`, cause })
    )
  )
)

/** There is no backup; an existing file is untouched. */
class BackupFailed extends Data.TaggedError("BackupFailed")<{
  readonly message: string
  readonly cause?: unknown
}> {}

const syncPath = (path: string): void => {
  const descriptor = openSync(path, "r")
  fsyncSync(descriptor)
  closeSync(descriptor)
}

/**
 * Writes a consistent copy of a SQLite database in use to a new file (mode 0600), checked before it gets its name.
 * @error BackupFailed the file exists, cannot be written, or is damaged
 */
export const backupDatabase = Effect.fn("backupDatabase")(function* (from: SqliteUrl, file: string) {
  yield* mustExist(from)
  if (existsSync(file)) {
    return yield* new BackupFailed({ message: `${file} exists already: name a new file` })
  }
  const partial = `${file}.partial`
  const attempt = <A>(run: () => A) =>
    Effect.try({
      try: run,
      catch: (cause) =>
        new BackupFailed({
          message: `the backup ${file} cannot be written: ${cause instanceof Error ? cause.message : cause}`,
          cause
        })
    })
  yield* Effect.gen(function* () {
    // Made here, so that no other user can read it at any moment.
    yield* attempt(() => {
      rmSync(partial, { force: true })
      closeSync(openSync(partial, "wx", 0o600))
    })
    yield* Effect.scoped(
      Effect.flatMap(
        openDatabase({ filename: from.filename, busyTimeoutMillis: 5_000, setup: "PRAGMA query_only = OFF" }),
        (database) =>
          attempt(() => {
            database.all("VACUUM INTO ?", [partial])
          })
      )
    )
    const found = yield* Effect.scoped(
      Effect.flatMap(
        openDatabase({ filename: partial, busyTimeoutMillis: 0, setup: "PRAGMA query_only = ON" }),
        (database) => attempt(() => JSON.stringify(database.all("PRAGMA integrity_check")))
      )
    )
    if (found !== '[{"integrity_check":"ok"}]') {
      return yield* new BackupFailed({ message: `the backup is damaged: ${found}` })
    }
    yield* attempt(() => {
      syncPath(partial)
      renameSync(partial, file)
      syncPath(dirname(file))
    })
  }).pipe(Effect.ensuring(Effect.sync(() => rmSync(partial, { force: true }))))
})
