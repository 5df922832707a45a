/** The only module that knows `node:sqlite`; everything is synchronous. */
import { chmodSync, closeSync, openSync, statSync } from "node:fs"
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite"
import { Effect, Predicate, type Scope } from "effect"
import { SqlError } from "effect/sql"
import { StoreStartError } from "../sql/sqlErrors.ts"

/** Prepared statements per connection; the least recently used is dropped first. */
const STATEMENT_CACHE_SIZE = 256

export interface Query {
  readonly sql: string
  readonly params: ReadonlyArray<unknown>
  readonly rows: "objects" | "arrays"
  /** Reads integers as `bigint`; without it, an integer beyond 2^53 is an error, never a wrong number. */
  readonly bigints: boolean
  readonly prepare: "cached" | "once"
}

/** One connection to a SQLite file. Methods throw the exceptions of `node:sqlite`: see {@link sqlError}. */
export class Database {
  readonly #database: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()

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

  all(query: Query): ReadonlyArray<unknown> {
    return this.#statement(query).all(...query.params.map(toInput))
  }

  /** Returns the rows of a statement, or the number of changes. */
  raw(query: Query): unknown {
    const statement = this.#statement(query)
    const params = query.params.map(toInput)
    return statement.columns().length > 0 ? statement.all(...params) : statement.run(...params)
  }

  close(): void {
    this.#statements.clear()
    this.#database.close()
  }

  #statement(query: Query): StatementSync {
    if (query.prepare === "once") return this.#prepare(query)
    const key = `${query.rows === "arrays" ? "a" : "o"}${query.bigints ? "b" : "n"}${query.sql}`
    const known = this.#statements.get(key)
    const statement = known ?? this.#prepare(query)
    if (known !== undefined) this.#statements.delete(key)
    this.#statements.set(key, statement)
    if (this.#statements.size > STATEMENT_CACHE_SIZE) {
      for (const oldest of this.#statements.keys()) {
        this.#statements.delete(oldest)
        break
      }
    }
    return statement
  }

  #prepare(query: Query): StatementSync {
    const statement = this.#database.prepare(query.sql)
    if (query.rows === "arrays") statement.setReturnArrays(true)
    if (query.bigints) statement.setReadBigInts(true)
    return statement
  }
}

const toInput = (value: unknown): SQLInputValue => {
  switch (typeof value) {
    case "string":
    case "number":
    case "bigint":
      return value
    case "boolean":
      return value ? 1 : 0
    case "undefined":
      return null
    default:
      // SQLite refuses a value that it cannot bind (an object) with an error.
      return value instanceof Date ? value.toISOString() : (value as SQLInputValue)
  }
}

const errcode = (cause: unknown): number | undefined =>
  Predicate.hasProperty(cause, "errcode") && typeof cause.errcode === "number" ? cause.errcode : undefined

const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

/** Extended result codes of a violated unique or primary key: PRIMARYKEY, UNIQUE, ROWID. */
const uniqueCodes: ReadonlySet<number> = new Set([1555, 2067, 2579])
const uniquePrefix = "UNIQUE constraint failed: "

export const sqlError = (cause: unknown, operation: string): SqlError.SqlError => {
  const code = errcode(cause)
  const props = { cause, message: messageOf(cause), operation }
  return new SqlError.SqlError({ reason: reasonOf(code, props) })
}

const reasonOf = (
  code: number | undefined,
  props: { readonly cause: unknown; readonly message: string; readonly operation: string }
): SqlError.SqlErrorReason => {
  if (code === undefined) {
    return Predicate.hasProperty(props.cause, "code") && props.cause.code === "ERR_INVALID_STATE"
      ? new SqlError.ConnectionError(props)
      : new SqlError.UnknownError(props)
  }
  if (uniqueCodes.has(code)) {
    const constraint = props.message.startsWith(uniquePrefix)
      ? props.message.slice(uniquePrefix.length)
      : "unknown"
    return new SqlError.UniqueViolation({ ...props, constraint })
  }
  switch (code & 0xff) {
    case 1: // ERROR: usually a statement that cannot be parsed
      return new SqlError.SqlSyntaxError(props)
    case 3: // PERM
    case 8: // READONLY
      return new SqlError.AuthorizationError(props)
    case 5: // BUSY
    case 6: // LOCKED
      return new SqlError.LockTimeoutError(props)
    case 7: // NOMEM
    case 10: // IOERR
    case 11: // CORRUPT
    case 13: // FULL
    case 14: // CANTOPEN
    case 15: // PROTOCOL
    case 26: // NOTADB
      return new SqlError.ConnectionError(props)
    case 19: // CONSTRAINT
      return new SqlError.ConstraintError(props)
    case 23: // AUTH
      return new SqlError.AuthenticationError(props)
    default:
      return new SqlError.UnknownError(props)
  }
}

export const startError = (cause: unknown, filename: string): StoreStartError => {
  const code = errcode(cause)
  const primary = code === undefined ? undefined : code & 0xff
  if (primary === 26 || primary === 11) {
    return new StoreStartError({
      reason: "NotADatabase",
      message: `${filename} is not a database, or is damaged: move it away or restore a backup`,
      cause
    })
  }
  if (primary === 5 || primary === 6) {
    return new StoreStartError({
      reason: "Locked",
      message: `the database ${filename} is locked by another process: end it, or wait until it is done`,
      cause
    })
  }
  return new StoreStartError({
    reason: "CannotOpen",
    message: `cannot open the database ${filename}: ${messageOf(cause)}. Check that its folder exists and can be written`,
    cause
  })
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
