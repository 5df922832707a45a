/** The only module that knows `node:sqlite`; everything is synchronous. */

import { chmodSync, closeSync, openSync, statSync } from "node:fs"
import { dirname } from "node:path"
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite"
import { Effect, Layer, Predicate, type Scope } from "effect"
import { SqlError } from "effect/sql"
import { RecentMap } from "../../../shared/work/RecentMap.ts"
import { StoreStartError } from "../sql/sqlErrors.ts"

/** Prepared statements per connection; the least recently used is dropped first. */
const STATEMENT_CACHE_SIZE = 256

/** One connection to a SQLite file. Methods throw the exceptions of `node:sqlite`: see {@link sqlError}. */
export class Database {
  readonly #database: DatabaseSync
  readonly #statements = new RecentMap<string, StatementSync>(STATEMENT_CACHE_SIZE)

  constructor(filename: string, busyTimeoutMillis: number) {
    this.#database = new DatabaseSync(filename, { timeout: busyTimeoutMillis })
  }

  get isTransaction(): boolean {
    return this.#database.isTransaction
  }

  /** Runs one or more statements without parameters. */
  exec(sql: string): void {
    this.#database.exec(sql)
  }

  /** Returns the rows of a statement. An integer beyond 2^53 is an error, never a wrong number. */
  all(sql: string, params: ReadonlyArray<unknown> = []): ReadonlyArray<Record<string, unknown>> {
    const statement = this.#statements.get(sql) ?? this.#database.prepare(sql)
    this.#statements.set(sql, statement)
    return statement.all(...params.map(toInput))
  }

  close(): void {
    this.#database.close()
  }
}

const toInput = (value: unknown): SQLInputValue => {
  if (typeof value === "boolean") return value ? 1 : 0
  // SQLite refuses a value that it cannot bind (an object) with an error.
  return (value ?? null) as SQLInputValue
}

/** Returns SQLite's extended result code; 0 if the error is another one. */
const errcode = (cause: unknown): number =>
  Predicate.hasProperty(cause, "errcode") && typeof cause.errcode === "number" ? cause.errcode : 0

const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

/** Extended result codes of a violated unique or primary key: PRIMARYKEY, UNIQUE, ROWID. */
const uniqueCodes: ReadonlySet<number> = new Set([1555, 2067, 2579])
const BUSY = 5
const LOCKED = 6
/** Failures of the database, not of the statement: PERM, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, AUTH, NOTADB. */
const away: ReadonlySet<number> = new Set([3, 7, 8, 10, 11, 13, 14, 15, 23, 26])

const reasonOf = (cause: unknown, operation: string): SqlError.SqlErrorReason => {
  const props = { cause, message: messageOf(cause), operation }
  const code = errcode(cause)
  const primary = code & 0xff
  if (uniqueCodes.has(code)) {
    return new SqlError.UniqueViolation({ ...props, constraint: props.message.replace(/^.*: /, "") })
  }
  if (primary === BUSY || primary === LOCKED) return new SqlError.LockTimeoutError(props)
  const isClosed = Predicate.hasProperty(cause, "code") && cause.code === "ERR_INVALID_STATE"
  return isClosed || away.has(primary)
    ? new SqlError.ConnectionError(props)
    : new SqlError.UnknownError(props)
}

export const sqlError = (cause: unknown, operation: string): SqlError.SqlError =>
  new SqlError.SqlError({ reason: reasonOf(cause, operation) })

const startError = (cause: unknown, filename: string): StoreStartError => {
  const primary = errcode(cause) & 0xff
  if (primary === 26 || primary === 11) {
    return StoreStartError.of(
      "NotADatabase",
      `${filename} is not a database, or is damaged: move it away or restore a backup`,
      cause
    )
  }
  if (primary === BUSY || primary === LOCKED) {
    return StoreStartError.of(
      "Locked",
      `the database ${filename} is locked by another process: end it, or wait until it is done`,
      cause
    )
  }
  return StoreStartError.of(
    "CannotOpen",
    `cannot open the database ${filename}: ${messageOf(cause)}. Check that its folder exists and can be written`,
    cause
  )
}

/** Makes a missing file with mode 0600. It opens no existing one: closing it would drop this process's locks. */
const secure = (filename: string): void => {
  const found = statSync(filename, { throwIfNoEntry: false })
  if (found === undefined) closeSync(openSync(filename, "a", 0o600))
  else if (found.isFile() && (found.mode & 0o077) !== 0) chmodSync(filename, 0o600)
}

/** Opens `filename` (made if missing, mode 0600), runs `setup` on it, and closes it with the scope. */
export const openDatabase = Effect.fnUntraced(function* (options: {
  readonly filename: string
  readonly busyTimeoutMillis: number
  readonly setup: string
}): Effect.fn.Return<Database, StoreStartError, Scope.Scope> {
  const attempt = <A>(run: () => A) =>
    Effect.try({ try: run, catch: (cause) => startError(cause, options.filename) })
  yield* attempt(() => secure(options.filename))
  const opened = Effect.tap(
    attempt(() => new Database(options.filename, options.busyTimeoutMillis)),
    (database) =>
      Effect.tapError(
        attempt(() => database.exec(options.setup)),
        () => Effect.sync(() => database.close())
      )
  )
  return yield* Effect.acquireRelease(opened, (database) => Effect.sync(() => database.close()))
})

/** The lock file of a database, beside it: `muster.lock` for `muster.db`. */
export const lockFileOf = (database: string): string => `${database.replace(/\.db$/, "")}.lock`

/** Returns the system's reason without the path of the lock file, which the operator did not name. */
const lockReasonOf = ({ cause, message }: StoreStartError): string =>
  cause instanceof Error ? cause.message.replace(/, \w+ '.*'$/s, "") : message

/** Returns the error in terms of the locked database or folder. */
const concerning = (error: StoreStartError, filename: string, database: string | undefined) => {
  const { cause } = error
  switch (error.reason) {
    case "Locked":
      return StoreStartError.of(
        "InUse",
        `another muster service runs on the same data (${filename} is locked): stop it, or use another data folder`,
        cause
      )
    case "NotADatabase":
      return StoreStartError.of(
        "NotADatabase",
        `${filename} is not a lock file of muster: move it away`,
        cause
      )
    default: {
      const what = database === undefined ? `data folder ${dirname(filename)}` : `database ${database}`
      return StoreStartError.of(
        error.reason,
        `cannot open the ${what}: ${lockReasonOf(error)}. Check that ${database === undefined ? "it" : "its folder"} exists and can be written`,
        cause
      )
    }
  }
}

/** Takes the lock until the scope closes. Without `database`, the folder of the file is locked. */
export const takeServiceLock = (
  filename: string,
  database?: string
): Effect.Effect<void, StoreStartError, Scope.Scope> =>
  openDatabase({
    filename,
    busyTimeoutMillis: 0,
    setup: "PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE"
  }).pipe(
    Effect.asVoid,
    Effect.mapError((error) => concerning(error, filename, database))
  )

/** An exclusive SQLite transaction, released at every end of the process. Commands do not take it. */
export const ServiceLock = {
  /**
   * The file `filename` is made if missing, never removed; `database` is the locked one, if any.
   * @error StoreStartError `InUse`: another service holds it
   */
  layer: (options: {
    readonly filename: string
    readonly database?: string
  }): Layer.Layer<never, StoreStartError> =>
    Layer.effectDiscard(takeServiceLock(options.filename, options.database))
}
