import { Clock, Context, Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { databaseMillis } from "../sql/dialect.ts"
import { IntColumn, readRows } from "../sql/rows.ts"
import { type Look, TrustedTime } from "./trustedTime.ts"

/** Interval of the checks that notice a jump when nothing reads the time. */
const LOOK_EVERY = "10 seconds"
/** Milliseconds between two records of the time in the database: less than a jump, and rare for an idle service. */
const NOTE_EVERY_MILLIS = 600_000

/**
 * The time of day for the expiry of keys, tickets, idempotency keys and journal entries. A clock that jumps by more
 * than an hour is trusted once it has held for ten minutes, also if it jumped while the service was off.
 */
export const ExpiryClock = Context.Reference<{
  /** Milliseconds since the epoch, by the clock of this host. */
  readonly millis: Effect.Effect<number>
  /** Milliseconds since the epoch, by the clock of the database, which all replicas share. */
  readonly databaseMillis: Effect.Effect<number, SqlError.SqlError>
  /** Records the time for the next start, if due; a mutation. */
  readonly note: Effect.Effect<void, SqlError.SqlError>
  /** Whether {@link note} is due. */
  readonly isNoteDue: Effect.Effect<boolean>
}>("muster/store/ExpiryClock", {
  defaultValue: () => ({
    millis: Clock.currentTimeMillis,
    databaseMillis: Clock.currentTimeMillis,
    note: Effect.void,
    isNoteDue: Effect.succeed(false)
  })
})

const readTimes = readRows(Schema.Struct({ at: Schema.NullOr(IntColumn) }))

const hours = (millis: number) => `${Math.round(Math.abs(millis) / 360_000) / 10} h`

/** Logs the result of a check. */
const logResult = (clock: string, { ahead, news }: Look): Effect.Effect<void> => {
  switch (news) {
    case "jumped":
      return Effect.logWarning(
        `${clock} jumped ${hours(ahead)} ${ahead > 0 ? "forwards" : "back"}: expiry goes by the time before it until it has held for 10 minutes`
      )
    case "accepted":
      return Effect.logInfo(`${clock} has held for 10 minutes: expiry goes by it again`)
    case "returned":
      return Effect.logInfo(`${clock} is right again: nothing has expired by the jump`)
    default:
      return Effect.void
  }
}

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const noteOf = readTimes(sql`SELECT value AS at FROM counters WHERE name = 'clock'`)
  // For a database without a recorded time. Its entries may have the time of a clock that jumped.
  const newestOf = readTimes(sql`SELECT at FROM journal WHERE cursor = (SELECT MAX(cursor) FROM journal)`)
  const [found = (yield* newestOf)[0]] = yield* noteOf
  /** The last time in the database; without one, the clock is trusted. */
  const known = found?.at ?? undefined

  const trusted = Effect.fnUntraced(function* <E>(name: string, source: Effect.Effect<number, E>) {
    const first = yield* source
    const time = new TrustedTime(known ?? first, yield* elapsedMillis)
    const opening = time.look(first, yield* elapsedMillis)
    if (opening.news === "jumped") {
      yield* Effect.logInfo(
        `${name} is ${hours(opening.ahead)} ${opening.ahead > 0 ? "ahead of" : "behind"} the last time that the database knows: nothing expires by it for 10 minutes`
      )
    }
    const millis = Effect.gen(function* () {
      const look = time.look(yield* source, yield* elapsedMillis)
      yield* logResult(name, look)
      return look.millis
    })
    return { millis, isHeld: () => time.isHeld }
  })

  const own = yield* trusted("the clock of this machine", Clock.currentTimeMillis)
  const shared = yield* sql.onDialectOrElse({
    sqlite: () => Effect.succeed<{ readonly millis: Effect.Effect<number, SqlError.SqlError> }>(own),
    orElse: () => trusted("the clock of the database", databaseMillis(sql))
  })
  yield* own.millis.pipe(Effect.repeat(Schedule.spaced(LOOK_EVERY)), Effect.forkScoped)

  let noted = known ?? 0
  const isNoteDue = Effect.map(
    own.millis,
    (now) => !own.isHeld() && Math.abs(now - noted) >= NOTE_EVERY_MILLIS
  )
  return {
    millis: own.millis,
    databaseMillis: shared.millis,
    isNoteDue,
    note: Effect.gen(function* () {
      const now = yield* own.millis
      yield* sql`INSERT INTO counters ${sql.insert({ name: "clock", value: Math.round(now) })}
        ON CONFLICT (name) DO UPDATE SET value = excluded.value`
      noted = now
    })
  }
})

/** The clock of a service. A database that opens but cannot be read is a defect. */
export const layerExpiryClock = Layer.effect(ExpiryClock, Effect.orDie(make))
