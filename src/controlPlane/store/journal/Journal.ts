import { Context, Effect, Layer, Option, Stream } from "effect"
import { SqlClient } from "effect/sql"
import type { Change } from "../../../contract/domain/Journal.ts"
import { absorbSqlErrors } from "../sql/sqlErrors.ts"
import { type FollowerStage, JournalFollowers } from "./JournalFollowers.ts"
import { journalTable } from "./journalTable.ts"

const PAGE = 1_000

/** The only source of events: a table with a gapless cursor in commit order, written with each change. */
export class Journal extends Context.Service<Journal>()("muster/store/Journal", {
  make: Effect.gen(function* () {
    const table = journalTable(yield* SqlClient.SqlClient)
    const { applied, catchUp, register } = yield* JournalFollowers
    const bounds = absorbSqlErrors(table.bounds)

    const pagesUpTo = (newest: number, cursor: number) =>
      Stream.paginate(cursor, (after) =>
        Effect.map(absorbSqlErrors(table.page(after, newest, PAGE)), (entries) => {
          const last = entries.at(-1)
          const next = last === undefined || last.cursor >= newest ? Option.none() : Option.some(last.cursor)
          return [entries, next] as const
        })
      )
    const after = (cursor: number) =>
      Stream.unwrap(Effect.map(bounds, ({ newest }) => pagesUpTo(newest, cursor)))

    return {
      /**
       * Calls `follower` with every committed batch, in order, until the scope closes, before the write returns.
       * Followers are called by stage, then in the order of registration.
       */
      follow: register,
      /** The cursor up to which every read model has applied the entries. */
      applied,
      after,
      bounds,
      /** Publishes commits of other processes now. A follower must not call it: it would wait for itself. */
      catchUp: absorbSqlErrors(catchUp)
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
