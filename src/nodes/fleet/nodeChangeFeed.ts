import { Effect, Schedule, type Scope, Semaphore } from "effect"
import type { Unavailable } from "../../domain/errors.ts"
import type { Change } from "../../domain/Journal.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { type NodeRecord, NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { Transaction } from "../../store/write/Transaction.ts"
import { Fleet } from "./Fleet.ts"

type NodeNews = Extract<Change, { readonly topic: "node:changed" }>["payload"]

/** The change of a node that an entry tells of: its id, and what others are to be told of it. */
const newsOf = (change: Change): ReadonlyArray<{ readonly node_id: string; readonly news?: NodeNews }> => {
  switch (change.topic) {
    case "node:changed":
      return [{ node_id: change.payload.node_id, news: change.payload }]
    case "node:reach":
      return [{ node_id: change.payload }]
    default:
      return []
  }
}

/** Between two attempts to read what has changed. */
const AGAIN = "100 millis"

/** Adds to the journal that the record of a node has changed, in the transaction that changes it. */
export const appendNodeChanged = (node_id: string, kind: NodeNews["kind"]) =>
  Effect.flatMap(Transaction, (transaction) =>
    transaction.append({ topic: "node:changed", server_id: "", payload: { node_id, kind } }, "")
  )

/** {@link appendNodeChanged} that it is another than before whether a node can be called. */
export const appendReachabilityChanged = (node_id: string) =>
  Effect.flatMap(Transaction, (transaction) =>
    transaction.append({ topic: "node:reach", server_id: "", payload: node_id }, "")
  )

/**
 * Keeps the nodes in memory as their records are, whichever replica changes them: what the journal tells is read again,
 * and only then passed on.
 *
 * @param options.onRecord a node as it is now, before it is put into memory; undefined: it is gone
 * @param options.onNews   each entry of the journal once, when memory has followed it
 * @returns reads nodes again that memory may be behind with
 */
export const followNodeChanges = Effect.fnUntraced(function* (options: {
  readonly onRecord: (node_id: string, record: NodeRecord | undefined) => void
  readonly onNews: (news: NodeNews) => void
}): Effect.fn.Return<
  (node_ids: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>,
  Unavailable,
  Fleet | Journal | NodeRepo | Store | Scope.Scope
> {
  const fleet = yield* Fleet
  const journal = yield* Journal
  const repo = yield* NodeRepo
  const store = yield* Store
  // What was read first is not put in its place last.
  const oneAtATime = yield* Semaphore.make(1)

  const put = (id: string, record: NodeRecord | undefined) => {
    options.onRecord(id, record)
    if (record === undefined) fleet.forget(id)
    else fleet.put(record)
  }
  const refresh = (ids: ReadonlyArray<string>) =>
    oneAtATime.withPermit(
      Effect.map(store.read(repo.find(ids)), (records) => {
        const found = new Map(records.map((record) => [record.id, record]))
        for (const id of ids) put(id, found.get(id))
      })
    )

  yield* journal.follow((entries) => {
    const told = entries.flatMap(({ change }) => newsOf(change))
    if (told.length === 0) return Effect.void
    const ids = [...new Set(told.map(({ node_id }) => node_id))]
    const news = told.flatMap(({ news }) => (news === undefined ? [] : [news]))
    return refresh(ids).pipe(
      Effect.tapError((error) => Effect.logDebug(`nodes cannot be read yet: ${error.detail}`)),
      // Nothing of what comes after it can be told before.
      Effect.retry(Schedule.spaced(AGAIN)),
      Effect.orDie,
      Effect.andThen(Effect.sync(() => news.forEach(options.onNews)))
    )
  })
  yield* oneAtATime.withPermit(
    Effect.map(store.read(repo.all), (records) => {
      for (const record of records) put(record.id, record)
    })
  )
  return refresh
})
