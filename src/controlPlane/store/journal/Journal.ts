import { Context, Effect, Layer, Option, type Scope, Stream } from "effect"
import { SqlClient } from "effect/sql"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { JournalBounds, JournalEntry } from "../../../contract/domain/Journal.ts"
import { absorbSqlErrors } from "../sql/sqlErrors.ts"
import { type FollowerStage, JournalFollowers } from "./JournalFollowers.ts"
import { journalTable } from "./journalTable.ts"

/** Entries per read. */
const PAGE = 1_000

/**
 * The only source of events: an append-only table, written in the transaction of each change, with a gapless cursor in
 * commit order.
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
    /** The cursor up to which every read model has applied the entries. */
    readonly applied: Effect.Effect<number>
    /** Streams the committed entries after `cursor`, oldest first, in pages. */
    after(cursor: number): Stream.Stream<JournalEntry, Unavailable>
    /**
     * Publishes all commits of other processes to the followers; for a caller whose view may be behind. A follower must
     * not call it: it would wait for itself.
     */
    readonly catchUp: Effect.Effect<void, Unavailable>
    readonly bounds: Effect.Effect<JournalBounds, Unavailable>
  }
>()("muster/store/Journal") {
  static readonly layer = Layer.effect(
    Journal,
    Effect.gen(function* () {
      const table = journalTable(yield* SqlClient.SqlClient)
      const { applied, catchUp, register } = yield* JournalFollowers
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

      return Journal.of({ follow: register, applied, after, bounds, catchUp: absorbSqlErrors(catchUp) })
    })
  )
}
