import { readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { PgConnection, PgTypes } from "@effect/sql-pg"
import { Duration, Effect, Result, type Scope } from "effect"
import { SqlError } from "effect/sql"
import { describeDatabase, type PostgresUrl } from "../../../shared/config/DatabaseUrl.ts"
import { advisoryLocks } from "../sql/Backend.ts"
import { StoreStartError, sqlState } from "../sql/sqlErrors.ts"

/** Codes, or their first two characters, of failures of the database itself, not of the statement. */
const away: ReadonlyArray<string> = [
  "08", // the connection
  "53", // no memory, disk or connections left
  "57P", // shut down, starting, dropped
  "58", // I/O
  "40003", // whether the statement was carried out is unknown
  "25006", // read-only: no longer the primary
  "25P03" // idle in a transaction for too long
]

export const connectionError = (message: string, operation: string, cause?: unknown) =>
  new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause, message, operation }) })

/** The reasons whose messages name only the statement. */
const explainedReasons = {
  UnknownError: SqlError.UnknownError,
  SqlSyntaxError: SqlError.SqlSyntaxError,
  ConstraintError: SqlError.ConstraintError,
  LockTimeoutError: SqlError.LockTimeoutError,
  DeadlockError: SqlError.DeadlockError,
  StatementTimeoutError: SqlError.StatementTimeoutError,
  AuthenticationError: SqlError.AuthenticationError,
  AuthorizationError: SqlError.AuthorizationError
}
const isExplained = (tag: string): tag is keyof typeof explainedReasons => tag in explainedReasons

/** Returns the error with a message that explains it, and a reason that names the culprit. */
export const explained = (error: SqlError.SqlError): SqlError.SqlError => {
  const { cause, operation = "execute" } = error.reason
  const said = cause instanceof Error && cause.message !== "" ? cause.message : error.message
  const code = sqlState(error)
  if (code === undefined) {
    return error.reason._tag === "ConnectionError" ? connectionError(said, operation, cause) : error
  }
  const message = `${said} (${code})`
  if (away.some((prefix) => code.startsWith(prefix))) return connectionError(message, operation, cause)
  const tag = error.reason._tag
  if (!isExplained(tag)) return error
  return new SqlError.SqlError({ reason: new explainedReasons[tag]({ cause, message, operation }) })
}

/** A refused or silent server serves no client; a wrong password says nothing about existing connections. */
export const isUnreachable = (error: SqlError.SqlError): boolean => {
  const code = sqlState(error)
  return code === undefined ? error.reason._tag === "ConnectionError" : /^(57P|08|25006)/.test(code)
}

/** Whether the server is starting, or recovering from a crash. */
export const isStarting = (error: SqlError.SqlError): boolean => sqlState(error) === "57P03"

/** Returns the next step by the server's error code; without a code, the server did not answer. */
const hintOf = (code: string | undefined): string => {
  if (code === undefined) return "Check that it runs and that MUSTER_DATABASE_URL names it"
  if (code.startsWith("28")) return "Check the user and the password of MUSTER_DATABASE_URL"
  if (code === "3D000") return "Create the database, or name another in MUSTER_DATABASE_URL"
  if (code === "53300") return "Raise its max_connections, or lower MUSTER_DATABASE_POOL"
  return "Check MUSTER_DATABASE_URL"
}

export const startError = (error: SqlError.SqlError, url: PostgresUrl): StoreStartError => {
  const code = sqlState(error)
  const why = code === undefined ? messageOf(error.reason.cause) || error.message : error.message
  return StoreStartError.of(
    "CannotOpen",
    `cannot open the database (${describeDatabase(url)}): ${why}. ${hintOf(code)}`,
    error
  )
}

/** An attempt at several addresses fails with several errors and no message of its own. */
const messageOf = (cause: unknown): string => {
  if (cause instanceof AggregateError) return cause.errors.map(messageOf).join(", ")
  return cause instanceof Error ? cause.message : ""
}

export interface Timeouts {
  /** Milliseconds without a byte on a connection that owes an answer; infinite: no bound. */
  readonly answerMillis: number
  /** Milliseconds that a statement may wait for a lock; 0 for no bound. */
  readonly lockMillis: number
}

/** The bounds of a migration or a copy. */
export const defaultTimeouts: Timeouts = { answerMillis: Number.POSITIVE_INFINITY, lockMillis: 0 }

/** Milliseconds for a connection attempt if there is no other bound. */
const CONNECT_MILLIS = 10_000
/** The time that a process frozen in a transaction can delay the others. */
const IDLE_IN_TRANSACTION_MILLIS = 2_000
const KEEP_ALIVE_MILLIS = 10_000
const LINGER_MILLIS = 1_000

/** Checks without new bytes after which a peer counts as silent. */
const LOOKS = 8

/**
 * Ends a connection whose peer does not answer: the system alone waits for minutes, or for ever. The watchdog counts
 * checks, not time: after a pause of this process, waiting bytes are read before the next check.
 */
class Watchdog {
  readonly #socket: Socket
  readonly #within: number
  #timer: NodeJS.Timeout | undefined
  #read = 0
  #silent = 0

  /** @param within milliseconds of silence; infinite: no bound */
  constructor(socket: Socket, within: number) {
    this.#socket = socket
    this.#within = within
  }

  /** Starts the wait for an answer. */
  start(): void {
    if (!Number.isFinite(this.#within)) return
    this.stop()
    this.#silent = 0
    this.#read = this.#socket.bytesRead
    this.#timer = setInterval(() => this.#look(), this.#within / LOOKS)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    if (this.#socket.bytesRead !== this.#read) {
      this.#read = this.#socket.bytesRead
      this.#silent = 0
      return
    }
    this.#silent += 1
    if (this.#silent < LOOKS) return
    this.stop()
    this.#socket.destroy(new Error(`no response within ${this.#within} ms`))
  }
}

/** One connection. Its statements are never interrupted, only abandoned with the connection. */
export interface Session {
  readonly connection: PgConnection.PgConnection
  /** False once the connection is lost. */
  readonly isOpen: () => boolean
  /** Runs a statement of this session, with its watchdog. */
  readonly run: <A, R>(
    statement: Effect.Effect<A, SqlError.SqlError, R>
  ) => Effect.Effect<A, SqlError.SqlError, R>
  readonly abandon: Effect.Effect<void>
}

/** 64-bit integers as numbers; one beyond 2^53 is an error, never a wrong number. */
const types = PgTypes.makeRegistry()
types.register<number | bigint>(PgTypes.OID.int8, {
  encode: (value) => {
    const bytes = new Uint8Array(8)
    new DataView(bytes.buffer).setBigInt64(0, BigInt(value))
    return Result.succeed(bytes)
  },
  decode: (bytes) => {
    const value = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getBigInt64(0)
    return Number.isSafeInteger(Number(value))
      ? Result.succeed(Number(value))
      : Result.fail(new PgTypes.CodecError({ message: `an integer beyond 2^53: ${value}` }))
  }
})

const certificates = (url: PostgresUrl) =>
  url.sslrootcert === undefined
    ? Effect.succeed({})
    : Effect.try({
        try: () => ({ ssl: { ca: readFileSync(url.sslrootcert ?? "") } }),
        catch: (cause) => connectionError(`sslrootcert cannot be read: ${String(cause)}`, "connect", cause)
      })

/** Opens one connection, closed with the scope. */
export const openSession = Effect.fnUntraced(function* (
  url: PostgresUrl,
  timeouts: Timeouts
): Effect.fn.Return<Session, SqlError.SqlError, Scope.Scope> {
  const ssl = yield* certificates(url)
  const dial = () =>
    url.host.startsWith("/")
      ? connect({ path: `${url.host}/.s.PGSQL.${url.port}` })
      : connect({
          host: url.host,
          port: url.port,
          noDelay: true,
          keepAlive: true,
          keepAliveInitialDelay: KEEP_ALIVE_MILLIS
        })
  const connectMillis = Math.min(timeouts.answerMillis, CONNECT_MILLIS)
  let socket: Socket | undefined
  let watchdog: Watchdog | undefined
  // The connection has sent its end. A peer that does not answer it must not keep the process alive.
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      const left = socket
      left?.unref()
      setTimeout(() => left?.destroy(), LINGER_MILLIS).unref()
    })
  )
  const connection = yield* PgConnection.make({
    url: url.url,
    ...ssl,
    types,
    applicationName: "muster",
    // Sends independent statements together.
    multiplex: true,
    // The watchdog bounds the attempt.
    connectTimeout: Duration.infinity,
    startupParameters: {
      // Only write transactions can change anything.
      default_transaction_read_only: "on",
      lock_timeout: String(timeouts.lockMillis),
      idle_in_transaction_session_timeout: String(
        Number.isFinite(timeouts.answerMillis) ? IDLE_IN_TRANSACTION_MILLIS : 0
      )
    },
    stream: () => {
      const dialled = dial()
      // The client connects again to cancel a statement; the session is the first connection.
      if (socket === undefined) {
        socket = dialled
        watchdog = new Watchdog(dialled, connectMillis)
        watchdog.start()
      }
      return dialled
    }
  }).pipe(
    Effect.mapError(explained),
    Effect.onExit(() => Effect.sync(() => watchdog?.stop()))
  )
  const line = socket
  if (line === undefined) return yield* connectionError("the connection has no socket", "connect")
  let open = true
  line.once("close", () => {
    open = false
  })
  const responses = new Watchdog(line, timeouts.answerMillis)
  /** The number of statements without an answer. */
  let due = 0
  const run: Session["run"] = (statement) =>
    Effect.suspend(() => {
      due += 1
      responses.start()
      return Effect.mapError(statement, explained)
    }).pipe(
      Effect.onExit(() =>
        Effect.sync(() => {
          due -= 1
          if (due === 0) responses.stop()
          else responses.start()
        })
      ),
      Effect.uninterruptible
    )
  return {
    connection,
    isOpen: () => open && !line.destroyed,
    run,
    abandon: Effect.sync(() => {
      line.destroy()
    })
  }
})

/** Takes the services' lock exclusively until the scope closes; false if a service runs. */
export const tryServiceLock = Effect.fnUntraced(
  function* (url: PostgresUrl) {
    const { connection, run } = yield* openSession(url, defaultTimeouts)
    const { rows } = yield* run(
      connection.query(`SELECT pg_try_advisory_lock(${advisoryLocks.service}) AS taken`)
    )
    return rows[0]?.taken === true
  },
  (effect, url) => Effect.mapError(effect, (error) => startError(error, url))
)
