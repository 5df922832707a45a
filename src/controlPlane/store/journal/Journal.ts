import { Context, Effect, Fiber, Layer, Option, Semaphore, Stream } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Change, JournalEntry } from "../../../contract/domain/Journal.ts"
import { absorbSqlErrors, StoreStartError } from "../sql/sqlErrors.ts"
import { journalTable } from "./journalTable.ts"

export type Follower = (entries: ReadonlyArray<JournalEntry>) => Effect.Effect<void>

/** First the read models in memory, then the controllers that act on them, then the events for clients. */
const stages = ["read-model", "controllers", "publish"] as const
export type FollowerStage = (typeof stages)[number]

const PAGE = 1_000

/**
 * The only source of events: a table with a gapless cursor in commit order, written with each change. Followers receive
 * each committed entry exactly once, in the order of the cursors.
 */
export class Journal extends Context.Service<Journal>()("muster/store/Journal", {
  make: Effect.gen(function* () {
    const table = journalTable(yield* SqlClient.SqlClient)
    const oneAtATime = yield* Semaphore.make(1)
    const scope = yield* Effect.scope
    let followers: ReadonlyArray<{ readonly stage: FollowerStage; readonly call: Follower }> = []
    let delivered = (yield* Effect.mapError(table.bounds, cannotRead)).newest

    let applied = delivered

    const follow = Effect.fnUntraced(function* (stage: FollowerStage, follower: Follower) {
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          const registration = { stage, call: follower }
          followers = [...followers, registration].toSorted(
            (one, other) => stages.indexOf(one.stage) - stages.indexOf(other.stage)
          )
          return registration
        }),
        (registration) =>
          Effect.sync(() => {
            followers = followers.filter((other) => other !== registration)
          })
      )
    })

    const deliver = Effect.fnUntraced(function* (entries: ReadonlyArray<JournalEntry>) {
      const last = entries.at(-1)
      if (last === undefined) return
      delivered = last.cursor
      for (const follower of followers) {
        if (follower.stage !== "read-model") applied = last.cursor
        yield* Effect.catchCause(follower.call(entries), (cause) =>
          Effect.logError("a follower of the journal has failed", cause)
        )
      }
      applied = last.cursor
    })

    const readUpTo = Effect.fnUntraced(function* (cursor: number) {
      while (delivered < cursor) {
        const entries = yield* table.page(delivered, cursor, PAGE)
        const first = entries[0]
        if (first === undefined) {
          yield* missed(delivered + 1, cursor)
          delivered = cursor
        } else {
          if (first.cursor > delivered + 1) yield* missed(delivered + 1, first.cursor - 1)
          yield* deliver(entries)
        }
      }
    })

    const fresh = (entries: ReadonlyArray<JournalEntry>) =>
      Effect.suspend(() => deliver(entries.filter((entry) => entry.cursor > delivered)))

    const publish = Effect.fnUntraced(function* (entries: ReadonlyArray<JournalEntry>) {
      const first = entries[0]
      if (first === undefined) return
      yield* readUpTo(first.cursor - 1)
      yield* fresh(entries)
    }, oneAtATime.withPermit)

    /** Continues if the caller is interrupted: half-published entries would be lost for the other followers. */
    const toItsEnd = (work: Effect.Effect<void, SqlError.SqlError>) =>
      Effect.flatMap(Effect.forkIn(oneAtATime.withPermit(work), scope), Fiber.join)

    const bounds = absorbSqlErrors(table.bounds)

    const pagesUpTo = (newest: number, cursor: number) =>
      Stream.paginate(cursor, (after) =>
        Effect.map(absorbSqlErrors(table.page(after, newest, PAGE)), (entries) => {
          const last = entries.at(-1)
          const next = last === undefined || last.cursor >= newest ? Option.none() : Option.some(last.cursor)
          return [entries, next] as const
        })
      )

    return {
      /**
       * Calls `follower` with every committed batch, in order, until the scope closes, before the write returns.
       * Followers are called by stage, then in the order of registration.
       */
      follow,
      /** The cursor up to which every read model has applied the entries. */
      applied: Effect.sync(() => applied),
      after: (cursor: number) => Stream.unwrap(Effect.map(bounds, ({ newest }) => pagesUpTo(newest, cursor))),
      bounds,
      /** Publishes gapless entries after earlier ones of other processes, or nothing if those cannot be read. */
      publish,
      /** Publishes the entries, even if earlier ones of other processes cannot be read. */
      publishAnyway: (entries: ReadonlyArray<JournalEntry>) => oneAtATime.withPermit(fresh(entries)),
      /** Publishes the entries of other processes up to `cursor`. */
      catchUpTo: (cursor: number) => toItsEnd(readUpTo(cursor)),
      /** Publishes commits of other processes now. A follower must not call it: it would wait for itself. */
      catchUp: absorbSqlErrors(toItsEnd(Effect.flatMap(table.bounds, ({ newest }) => readUpTo(newest))))
    }
  })
}) {
  static readonly layer = Layer.effect(Journal, Journal.make)
}

/** Calls `each` with every committed change, as {@link Journal} calls a follower with a batch. */
export const followChanges = (stage: FollowerStage, each: (change: Change) => void) =>
  Effect.flatMap(Journal, (journal) =>
    journal.follow(stage, (entries) =>
      Effect.sync(() => {
        for (const { change } of entries) each(change)
      })
    )
  )

/** This process was disconnected from the database for longer than entries are retained. */
const missed = (from: number, to: number) =>
  Effect.logError(
    `journal entries ${from} to ${to} were removed before they could be read: restart this service to see their changes`
  )

const cannotRead = (cause: SqlError.SqlError) =>
  StoreStartError.of("Failed", `the journal cannot be read: ${cause.message}`, cause)

/** A cache beside the journal's followers is valid without a query while the stamp is the same. */
export class Freshness extends Context.Service<
  Freshness,
  {
    /** Constant while the followers are up to date but for commits in transit; if unset, a query is necessary. */
    readonly stamp: () => number | undefined
  }
>()("muster/store/Freshness") {}
