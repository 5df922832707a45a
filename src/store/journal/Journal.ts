import { Context, Effect, Layer, Option, type Scope, Stream } from "effect"
import { SqlClient } from "effect/sql"
import type { Unavailable } from "../../domain/errors.ts"
import type { JournalBounds, JournalEntry } from "../../domain/Journal.ts"
import { absorbSqlErrors } from "../sql/sqlErrors.ts"
import { type FollowerStage, JournalFollowers } from "./JournalFollowers.ts"
import { journalTable } from "./journalTable.ts"

/** Entries that one read takes. */
const PAGE = 1_000

/**
 * The one place that events come from: an append-only table, written in the same transaction as the change that
 * it tells of, with a gapless cursor in commit order.
 */
export class Journal extends Context.Service<
  Journal,
  {
    /**
     * Calls `follower` with every committed batch, in order, from now on until the scope closes, before the write that
     * caused the batch returns. Followers are called by stage, those of one stage in the order of registration.
     */
    follow(
      stage: FollowerStage,
      follower: (entries: ReadonlyArray<JournalEntry>) => Effect.Effect<void>
    ): Effect.Effect<void, never, Scope.Scope>
    /** Entries after `cursor`, oldest first, as far as they are committed now; read in pages. */
    after(cursor: number): Stream.Stream<JournalEntry, Unavailable>
    /**
     * Hands on to the followers all that other processes have committed by now: for who has found that what they have
     * made of it may be behind. A follower must not do it: it would wait for itself.
     */
    readonly catchUp: Effect.Effect<void, Unavailable>
    readonly bounds: Effect.Effect<JournalBounds, Unavailable>
  }
>()("muster/store/Journal") {
  static readonly layer = Layer.effect(
    Journal,
    Effect.gen(function* () {
      const table = journalTable(yield* SqlClient.SqlClient)
      const { catchUp, register } = yield* JournalFollowers
      const bounds = absorbSqlErrors(table.bounds)

      const pagesUpTo = (newest: number, cursor: number) =>
        Stream.paginate(cursor, (after) =>
          Effect.map(absorbSqlErrors(table.page(after, newest, PAGE)), (entries) => {
            const last = entries.at(-1)
            const next =
              last === undefined || last.cursor >= newest ? Option.none() : Option.some(last.cursor)
            return [entries, next] as const
          })
        )
      const after = (cursor: number) =>
        Stream.unwrap(Effect.map(bounds, ({ newest }) => pagesUpTo(newest, cursor)))

      return Journal.of({ follow: register, after, bounds, catchUp: absorbSqlErrors(catchUp) })
    })
  )
}
