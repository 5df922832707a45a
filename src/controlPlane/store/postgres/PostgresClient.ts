import { PgClient, type PgConnection } from "@effect/sql-pg"
import { Context, Duration, Effect, Layer, Pool, Schedule, type Scope, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import type { PostgresUrl } from "../../../shared/config/DatabaseUrl.ts"
import { Backend } from "../sql/Backend.ts"
import type { StoreStartError } from "../sql/sqlErrors.ts"
import { Availability, postgresBackend } from "./backend.ts"
import {
  connectionError,
  defaultTimeouts,
  explained,
  isStarting,
  isUnreachable,
  openSession,
  type Session,
  startError,
  type Timeouts
} from "./session.ts"

/** Each connection has one borrower. While the database is unavailable, no caller waits for one. */
const makeSessionPool = Effect.fnUntraced(function* (options: {
  readonly url: PostgresUrl
  readonly size: number
  readonly timeouts: Timeouts
  readonly availability: Availability
}) {
  const { availability, size, timeouts, url } = options
  /** Opens a connection, and records the result as the availability of the database. */
  const open = openSession(url, timeouts).pipe(
    Effect.tap(() => availability.found),
    Effect.tapError((error) => (isUnreachable(error) ? availability.lost(error.message) : Effect.void))
  )
  const pool = yield* Pool.makeWithTTL({
    acquire: Effect.andThen(availability.check, open),
    min: 0,
    max: size,
    timeToLive: Duration.infinity
  })
  let closed = false
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      closed = true
    })
  )
  const take: Effect.Effect<Session, SqlError.SqlError, Scope.Scope> = Effect.gen(function* () {
    if (closed) return yield* connectionError("the store is closed", "connect")
    yield* availability.check
    const session = yield* Pool.get(pool)
    if (session.isOpen()) return session
    // The watchdog bounds the responses to borrowers; the next caller learns that the database is away.
    yield* Pool.invalidate(pool, session)
    return yield* take
  })
  return { take, open }
})

export interface PostgresOptions {
  readonly url: PostgresUrl
  /** Connections for statements; one more follows the journal. Default: 10. */
  readonly poolSize?: number
  /** Milliseconds without an answer after which the database counts as unavailable. Default: 650. */
  readonly answerMillis?: number
}

const POOL_SIZE = 10
const ANSWER_MILLIS = 650
/** Interval of the attempts to reach an unavailable database. */
const PROBE_EVERY = "200 millis"
/** The wait for a server that is starting: 10 seconds. */
const waitForStart = Schedule.max([Schedule.spaced("100 millis"), Schedule.recurs(100)])
/**
 * The part of the time of an answer that a transaction waits for a lock: less than the watchdog's bound. Writers wait
 * first, so none deadlock.
 */
const LOCK_PART = 0.7

/** The parts that the journal's tail needs beside the client. */
export class PostgresSessions extends Context.Service<
  PostgresSessions,
  {
    readonly open: Effect.Effect<Session, SqlError.SqlError, Scope.Scope>
    /** Distinguishes this process's notifications from others'. */
    readonly origin: string
  }
>()("muster/store/PostgresSessions") {}

/** Detects a silent database and reconnects. Statements outside a transaction are read-only. */
export const PostgresClient = {
  /** @error StoreStartError the database cannot be reached, or refuses */
  layer: ({
    answerMillis = ANSWER_MILLIS,
    poolSize = POOL_SIZE,
    url
  }: PostgresOptions): Layer.Layer<SqlClient.SqlClient | Backend | PostgresSessions, StoreStartError> =>
    Layer.effectContext(
      make(url, poolSize, { answerMillis, lockMillis: Math.round(answerMillis * LOCK_PART) })
    ).pipe(Layer.provide(Reactivity.layer)),

  /** A client without deadlines, for migrations and copies. */
  layerPatient: (url: PostgresUrl): Layer.Layer<SqlClient.SqlClient, StoreStartError> =>
    Layer.effectContext(
      Effect.map(make(url, 2, defaultTimeouts), (context) => Context.pick(SqlClient.SqlClient)(context))
    ).pipe(Layer.provide(Reactivity.layer))
}

const make = Effect.fnUntraced(function* (url: PostgresUrl, size: number, timeouts: Timeouts) {
  const availability = new Availability()
  const pool = yield* makeSessionPool({ url, size, timeouts, availability })
  // The first connection shows whether the database is there, and stays for the first statement.
  yield* Effect.scoped(pool.take).pipe(
    // The service and the server may start at the same time.
    Effect.retry({ while: isStarting, schedule: waitForStart }),
    Effect.mapError((error) => startError(error, url))
  )

  // An overdue answer or a failed connection has marked the database as unavailable.
  yield* Effect.andThen(availability.away, Effect.scoped(pool.open)).pipe(
    Effect.ignore,
    Effect.repeat(Schedule.spaced(PROBE_EVERY)),
    Effect.forkScoped
  )

  const acquirer = Effect.map(pool.take, (session) => connectionOf(session, availability))
  const client = yield* SqlClient.make({
    driver: "pg",
    compiler: PgClient.makeCompiler(),
    spanAttributes: [
      ["db.system.name", "postgresql"],
      ["db.namespace", url.database]
    ],
    acquirer,
    borrower: (f) => Effect.scoped(Effect.flatMap(acquirer, f)),
    transactionAcquirer: acquirer,
    beginTransaction: BEGIN,
    commit,
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`,
    prepareTransactionControls: true
  })
  const origin = crypto.randomUUID()
  return Context.make(SqlClient.SqlClient, client).pipe(
    Context.add(Backend, postgresBackend({ sql: client, availability, origin })),
    Context.add(PostgresSessions, { open: pool.open, origin })
  )
})

const commit = (connection: SqlConnection.Connection) => Effect.asVoid(connection.executeRaw(COMMIT, []))

const rolledBack = new SqlError.SqlError({
  reason: new SqlError.UnknownError({
    cause: undefined,
    message: "the transaction was rolled back: one of its statements had failed",
    operation: "commit"
  })
})

const isRolledBack = ({ command }: PgConnection.Result): boolean => command === "ROLLBACK"

const BEGIN = "BEGIN READ WRITE"
const COMMIT = "COMMIT"

/** Whether the answer carries no data. After a failed BEGIN, statements fail: outside they are read-only. */
const isOpening = (sql: string): boolean => sql === BEGIN || sql.startsWith("SAVEPOINT ")
const isRelease = (sql: string): boolean => sql.startsWith("RELEASE SAVEPOINT ")
const endsFailure = (sql: string): boolean => sql.startsWith("ROLLBACK")

/**
 * The begin of a transaction and the statements of savepoints are sent with the next statement without awaiting their
 * answers, which saves a mutation most of its round trips.
 */
const connectionOf = (session: Session, availability: Availability): SqlConnection.Connection => {
  const { connection } = session
  /** Whether a statement of the transaction has failed and was not rolled back. */
  let failed = false
  const run = <A>(statement: Effect.Effect<A, SqlError.SqlError>) =>
    Effect.tapError(session.run(statement), (error) => {
      failed = true
      // The watchdog closed the connection, not the server.
      return error.reason.message?.startsWith("no response within") === true
        ? availability.lost(error.message)
        : Effect.void
    })
  /** The answer comes before that of any later statement of this fiber. */
  const send = (statement: Effect.Effect<unknown, SqlError.SqlError>) =>
    Effect.as(
      Effect.forkChild(Effect.uninterruptible(Effect.ignore(statement)), { startImmediately: true }),
      []
    )
  type Transform = Parameters<SqlConnection.Connection["execute"]>[2]
  const rows = (sql: string, params: ReadonlyArray<unknown>, transform: Transform, prepare: boolean) =>
    Effect.suspend((): ReturnType<SqlConnection.Connection["execute"]> => {
      const query = connection.query(sql, params, prepare)
      if (isOpening(sql) || (isRelease(sql) && !failed)) return send(query)
      return Effect.map(run(query), (result) => {
        if (endsFailure(sql)) failed = false
        return transform === undefined ? result.rows : transform(result.rows)
      })
    })
  return {
    execute: (sql, params, transform) => rows(sql, params, transform, true),
    executeUnprepared: (sql, params, transform) => rows(sql, params, transform, false),
    executeRaw: (sql, params) =>
      Effect.flatMap(run(connection.query(sql, params)), (result) =>
        // PostgreSQL answers the COMMIT of a transaction with a failed statement this way.
        sql === COMMIT && isRolledBack(result) ? Effect.fail(rolledBack) : Effect.succeed(result)
      ),
    executeValues: (sql, params) => run(connection.queryValues(sql, params)),
    executeValuesUnprepared: (sql, params) => run(connection.queryValues(sql, params, false)),
    executeStream: (sql, params, transform) => {
      const rowsOf = Stream.mapError(connection.stream(sql, params), explained)
      return transform === undefined
        ? rowsOf
        : Stream.flatMap(Stream.chunks(rowsOf), (some) => Stream.fromIterable(transform(some)))
    }
  }
}
