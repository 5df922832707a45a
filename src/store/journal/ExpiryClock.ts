import { Clock, Context, Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { databaseMillis } from "../sql/dialect.ts"
import { IntColumn, readRows } from "../sql/rows.ts"
import { type Look, TrustedTime } from "./trustedTime.ts"

/** Between two looks, so that a jump is noticed when nothing asks for the time. */
const LOOK_EVERY = "10 seconds"
/** Between two notes of the time in the database, in milliseconds: less than a jump, and rare for an idle service. */
const NOTE_EVERY_MILLIS = 600_000

/**
 * The time of day that expiry goes by: that of keys, tickets, idempotency keys and the journal. A clock that jumps by
 * more than an hour is believed once it has held for ten minutes, also if the jump happened while the service was off.
 */
export const ExpiryClock = Context.Reference<{
  /** Milliseconds since the epoch, by the clock of this machine. */
  readonly millis: Effect.Effect<number>
  /** The same by the clock of the database, which all replicas share. */
  readonly databaseMillis: Effect.Effect<number, SqlError.SqlError>
  /** Writes the time down for the next start, if it is due; a mutation. */
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

/** Logs what a look has found. */
const tell = (clock: string, { ahead, news }: Look): Effect.Effect<void> => {
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
  // Of a database that no such service has used yet. Entries may bear the time of a clock that had jumped.
  const newestOf = readTimes(sql`SELECT at FROM journal WHERE cursor = (SELECT MAX(cursor) FROM journal)`)
  const [found = (yield* newestOf)[0]] = yield* noteOf
  /** The last time that the database knows of; without one the clock is believed. */
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
      yield* tell(name, look)
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

/** The clock of a service. A database that can be opened and not be read is a defect. */
export const layerExpiryClock = Layer.effect(ExpiryClock, Effect.orDie(make))
