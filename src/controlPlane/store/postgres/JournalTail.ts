import { Clock, Context, Deferred, Effect, Layer, Queue, Schedule, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { elapsedMillisOf } from "../../../shared/work/elapsed.ts"
import { Freshness, Journal } from "../journal/Journal.ts"
import { Leadership, LeaderTerm } from "../Leadership.ts"
import { advisoryLocks, JOURNAL_CHANNEL } from "../sql/Backend.ts"
import { readRows } from "../sql/rows.ts"
import { absorbSqlErrors, StoreStartError } from "../sql/sqlErrors.ts"
import { parseNotification } from "./backend.ts"
import { PostgresSessions } from "./PostgresClient.ts"
import type { Session } from "./session.ts"

/** Interval of the heartbeats on the connection; each also checks for entries whose notification was lost. */
const HEARTBEAT = "1 second"
/** The server ends a session that is silent for this long, and releases its locks: its process is frozen or cut off. */
const SILENCE_MILLIS = 8_000
/** Earlier than that, a process that was frozen assumes that it is no longer the leader. */
const MINE_MILLIS = 5_000
/** Interval of that check. */
const LOOK = "500 millis"
const RECONNECT = "200 millis"

const readNewest = readRows(Schema.Struct({ value: Schema.Int }))
const readAnswer = readRows(Schema.Struct({ yes: Schema.Boolean }))

/** The number of processes with the lock that every service on this database shares. */
const SERVING = `(SELECT count(*) FROM pg_locks
  WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) + objid::bigint = ${advisoryLocks.service})`

class BeingCopied extends Schema.TaggedError<BeingCopied>()("BeingCopied", {}) {}

/**
 * Follows the commits of other replicas on its own connection: a notification wakes it, a slow check replaces a lost
 * one, and a new connection reads missed entries. The session also holds the locks of the leader and of the service.
 */
export const JournalTail = {
  layer: Layer.effectContext(
    Effect.gen(function* () {
      const followers = yield* Journal
      const { open, origin } = yield* PostgresSessions
      const ready = yield* Deferred.make<void, SqlError.SqlError | BeingCopied>()
      const clock = yield* Clock.Clock
      const now = () => elapsedMillisOf(clock)
      const turn = new LeaderTerm()
      /** Whether the session has the leader's lock; `alive`: when the last answered statement was sent. */
      let locked = false
      let alive = Number.NEGATIVE_INFINITY
      const isMine = () => locked && now() - alive < MINE_MILLIS
      /** The number of the session while it follows; `sessions` counts them. */
      let following: number | undefined
      let sessions = 0
      /** Two processes that start at once may both be the first. */
      let isFirst = false

      const life = Effect.gen(function* () {
        const session = yield* open
        const pinned = yield* session.connection.pin
        const query = (statement: string, params: ReadonlyArray<unknown> = []) =>
          Effect.map(session.run(pinned.query(statement, params)), ({ rows }) => rows)
        const asks = (statement: string) =>
          Effect.map(readAnswer(query(statement)), ([row]) => row?.yes === true)

        const heartbeat = Effect.gen(function* () {
          const free = locked
            ? true
            : yield* asks(`SELECT pg_try_advisory_lock(${advisoryLocks.leadership}) AS yes`)
          const sent = now()
          const [counter] = yield* readNewest(query("SELECT value FROM counters WHERE name = 'journal'"))
          if (counter !== undefined) yield* followers.catchUpTo(counter.value)
          // The commits of the previous leader are known by now.
          alive = sent
          locked = free
          if (isMine()) turn.begin()
        })

        if (sessions === 0) isFirst = yield* asks(`SELECT ${SERVING} = 0 AS yes`)
        if (!(yield* asks(`SELECT pg_try_advisory_lock_shared(${advisoryLocks.service}) AS yes`))) {
          return yield* new BeingCopied()
        }
        // Servers before PostgreSQL 14 know only the second form.
        yield* query(
          `SELECT set_config(name, '${SILENCE_MILLIS}', false) FROM pg_settings
           WHERE name IN ('idle_session_timeout', 'tcp_user_timeout')`
        )
        const received = yield* listen(session, pinned)
        yield* heartbeat
        sessions += 1
        following = sessions
        yield* Deferred.succeed(ready, undefined)
        const follow = Effect.flatMap(Queue.takeAll(received), (notifications) => {
          const newest = notifications
            .map(({ payload }) => parseNotification(payload))
            .filter((notification) => notification.origin !== origin)
            .reduce((highest, { newest }) => Math.max(highest, newest), 0)
          return followers.catchUpTo(newest)
        })
        yield* Effect.raceFirst(
          Effect.forever(follow),
          Effect.forever(Effect.andThen(Effect.sleep(HEARTBEAT), heartbeat))
        )
      }).pipe(
        Effect.scoped,
        // The locks ended with the session.
        Effect.onExit(() =>
          Effect.sync(() => {
            locked = false
            turn.end()
            following = undefined
          })
        )
      )

      yield* life.pipe(
        Effect.catch((error) =>
          Effect.andThen(
            Deferred.fail(ready, error),
            Effect.logDebug(`the connection of the journal is lost: ${error.message}`)
          )
        ),
        Effect.repeat(Schedule.spaced(RECONNECT)),
        Effect.forkScoped
      )
      // A silent server, or a paused process: no other signal comes in time.
      yield* Effect.sync(() => {
        if (turn.isLeader && !isMine()) turn.end()
      }).pipe(Effect.repeat(Schedule.spaced(LOOK)), Effect.forkScoped)
      yield* Effect.mapError(Deferred.await(ready), cannotFollow)
      const duties = Leadership.of({
        isSingle: false,
        isFirst,
        // One of them is this process.
        othersServe: absorbSqlErrors(
          Effect.scoped(
            Effect.gen(function* () {
              const { connection, run } = yield* open
              const { rows } = yield* run(connection.query(`SELECT ${SERVING} > 1 AS yes`))
              const [answer] = yield* readAnswer(Effect.succeed(rows))
              return answer?.yes === true
            })
          )
        ),
        isLeader: Effect.sync(() => turn.isLeader && isMine()),
        whileLeader: turn.whileLeader
      })
      return Context.make(Leadership, duties).pipe(
        Context.add(
          Freshness,
          Freshness.of({ stamp: () => (now() - alive < MINE_MILLIS ? following : undefined) })
        )
      )
    })
  )
}

const listen = Effect.fnUntraced(function* (session: Session, pinned: Session["connection"]) {
  const received = yield* session.run(pinned.listen(JOURNAL_CHANNEL))
  // Otherwise the end of the scope would run UNLISTEN, and wait for a server that may be silent.
  yield* Effect.addFinalizer(() => session.abandon)
  return received
})

const cannotFollow = (cause: SqlError.SqlError | BeingCopied) =>
  cause._tag === "BeingCopied"
    ? StoreStartError.of("InUse", "the database is being copied: wait until `muster db copy` is done")
    : StoreStartError.of("Failed", `the journal cannot be followed: ${cause.message}`, cause)
