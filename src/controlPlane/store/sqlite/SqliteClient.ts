import { Context, Effect, Layer, Predicate, Schedule, Semaphore, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError, Statement } from "effect/sql"
import { Freshness } from "../journal/Journal.ts"
import type { StoreStartError } from "../sql/sqlErrors.ts"
import { type Database, openDatabase, type Query, sqlError } from "./database.ts"

const BEGIN = "BEGIN IMMEDIATE"

/** The time that SQLite waits for a lock while a connection opens, and for later reads: it blocks the thread. */
const BUSY_TIMEOUT_MILLIS = 50

/** A write transaction waits up to 5 seconds for another process, outside SQLite, which would block the thread. */
const waitForWriter = Schedule.max([Schedule.spaced("20 millis"), Schedule.recurs(250)])

/** The wait of an opening connection for another process: 1 second. */
const waitForOpen = Schedule.max([Schedule.spaced("50 millis"), Schedule.recurs(10)])

const common = `
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  PRAGMA foreign_keys = ON;
  PRAGMA journal_size_limit = 67108864;
`

/**
 * `SqlClient` over `node:sqlite` in WAL mode with `synchronous = FULL`. Transactions share one write connection, one
 * at a time; other statements see the last commit on a read-only one and never wait.
 */
export const SqliteClient = {
  /** @param options.filename path of the database; made with mode 0600 if missing */
  layer: (options: {
    readonly filename: string
  }): Layer.Layer<SqlClient.SqlClient | Freshness, StoreStartError> =>
    Layer.effectContext(make(options)).pipe(Layer.provide(Reactivity.layer))
}

const make = Effect.fnUntraced(function* (options: { readonly filename: string }) {
  const open = (setup: string) =>
    openDatabase({ filename: options.filename, busyTimeoutMillis: BUSY_TIMEOUT_MILLIS, setup }).pipe(
      // Two processes that open a new file at the same time collide for a moment.
      Effect.retry({ while: (error) => error.reason === "Locked", schedule: waitForOpen })
    )
  // Closed in reverse order: the writer last, for the final checkpoint.
  const writing = yield* open(`${common} PRAGMA busy_timeout = 0;`)
  const writer = makeConnection(writing)
  const reader = makeConnection(yield* open(`${common} PRAGMA query_only = ON;`))

  const reading = SqlClient.makeSqliteAcquirers({
    connection: Effect.succeed(reader),
    semaphore: yield* Semaphore.make(1)
  })
  const transactions = SqlClient.makeSqliteAcquirers({
    connection: Effect.succeed(writer),
    semaphore: yield* Semaphore.make(1),
    isTransaction: (connection) => connection.isTransaction
  })
  const client = yield* SqlClient.make({
    driver: "sqlite-node",
    compiler: Statement.makeCompilerSqlite(),
    spanAttributes: [["db.system.name", "sqlite"]],
    acquirer: reading.acquirer,
    borrower: reading.borrower,
    transactionAcquirer: transactions.transactionAcquirer,
    onCommitFailure: transactions.onCommitFailure,
    isTransaction: transactions.isTransaction,
    beginTransaction: BEGIN,
    prepareTransactionControls: true,
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`
  })
  return Context.make(SqlClient.SqlClient, client).pipe(
    Context.add(Freshness, Freshness.of({ stamp: oncePerTurn(() => outsideChanges(writing)) }))
  )
})

/** Calls a function at most once in a turn of the event loop, whose requests have arrived together. */
const oncePerTurn = <A>(read: () => A): (() => A) => {
  let known: { readonly value: A } | undefined
  return () => {
    if (known !== undefined) return known.value
    known = { value: read() }
    setImmediate(() => {
      known = undefined
    })
    return known.value
  }
}

/** The value changes when another process commits: in this process only the writer writes. */
const outsideChanges = (writer: Database): number | undefined => {
  try {
    const [row] = writer.all(dataVersion)
    return Predicate.hasProperty(row, "data_version") ? Number(row.data_version) : undefined
  } catch {
    // The file cannot be read now: the next statement reports why.
    return undefined
  }
}

const dataVersion: Query = {
  sql: "PRAGMA data_version",
  params: [],
  rows: "objects",
  bigints: false,
  prepare: "cached"
}

interface SqliteConnection extends SqlConnection.Connection {
  readonly isTransaction: boolean
}

const makeConnection = (database: Database): SqliteConnection => {
  // Some errors (disk full, I/O) make SQLite roll back; the following statements would then commit one by one.
  let inTransaction = false

  const use = <A>(operation: string, run: () => A): Effect.Effect<A, SqlError.SqlError> =>
    Effect.suspend(() => {
      if (inTransaction && !database.isTransaction) return Effect.fail(rolledBack(operation))
      try {
        return Effect.succeed(run())
      } catch (cause) {
        return Effect.fail(sqlError(cause, operation))
      }
    })

  const rows = (query: Omit<Query, "bigints">) =>
    Effect.withFiber<ReadonlyArray<unknown>, SqlError.SqlError>((fiber) =>
      use("execute", () => database.all({ ...query, bigints: fiber.getRef(SqlClient.SafeIntegers) }))
    )

  const control = (sql: string): Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError> | undefined => {
    switch (sql) {
      case BEGIN:
        return Effect.suspend(() => {
          inTransaction = false
          return use("begin", () => {
            const none = database.all({ sql, params: [], rows: "objects", bigints: false, prepare: "cached" })
            inTransaction = true
            return none
          })
        }).pipe(
          Effect.retry({
            while: (error) => error.reason._tag === "LockTimeoutError",
            schedule: waitForWriter
          })
        )
      case "COMMIT":
      case "ROLLBACK":
        return Effect.tap(rows({ sql, params: [], rows: "objects", prepare: "cached" }), () =>
          Effect.sync(() => {
            inTransaction = false
          })
        )
      default:
        return undefined
    }
  }

  const objects = (sql: string, params: ReadonlyArray<unknown>, prepare: "cached" | "once") =>
    // The connection's contract has rows of `any`; the author of a statement decodes them.
    (control(sql) ?? rows({ sql, params, rows: "objects", prepare })) as ReturnType<
      SqlConnection.Connection["execute"]
    >

  const transform = (
    result: ReturnType<SqlConnection.Connection["execute"]>,
    transformRows: Parameters<SqlConnection.Connection["execute"]>[2]
  ) => (transformRows === undefined ? result : Effect.map(result, transformRows))

  const arrays = (sql: string, params: ReadonlyArray<unknown>, prepare: "cached" | "once") =>
    rows({ sql, params, rows: "arrays", prepare }) as ReturnType<SqlConnection.Connection["executeValues"]>

  return {
    get isTransaction() {
      return database.isTransaction
    },
    execute: (sql, params, transformRows) => transform(objects(sql, params, "cached"), transformRows),
    executeUnprepared: (sql, params, transformRows) => transform(objects(sql, params, "once"), transformRows),
    executeValues: (sql, params) => arrays(sql, params, "cached"),
    executeValuesUnprepared: (sql, params) => arrays(sql, params, "once"),
    executeRaw: (sql, params) =>
      use("execute", () => database.raw({ sql, params, rows: "objects", bigints: false, prepare: "cached" })),
    // Rows are read at once: an open statement would hold the connection.
    executeStream: (sql, params, transformRows) =>
      Stream.fromIterableEffect(transform(objects(sql, params, "cached"), transformRows))
  }
}

const rolledBack = (operation: string) =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({
      cause: undefined,
      message: "SQLite has rolled the transaction back after an error",
      operation
    })
  })
