import { Effect, Schedule, type Scope, Semaphore } from "effect"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import type { NodeRecordChange, NodeRecordChangeKind } from "../../../contract/domain/Journal.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { type NodeRecord, NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { Transaction } from "../../store/sql/Transaction.ts"
import { Fleet } from "./Fleet.ts"

type RecordChange = Exclude<NodeRecordChange, { readonly topic: "node:evacuation" }>

const AGAIN = "100 millis"

const append = (change: NodeRecordChange) =>
  Effect.flatMap(Transaction, (transaction) => transaction.append(change))

export const appendNodeChanged = (node_id: NodeId, kind: NodeRecordChangeKind) =>
  append({ topic: "node:changed", node_id, kind })

export const appendReachabilityChanged = (node_id: NodeId) => append({ topic: "node:reach", node_id })

/**
 * Keeps the nodes in memory equal to their records on every replica, and announces the changes.
 * @param options.onRecord called with a record, or nothing if it is deleted, before memory takes it
 * @param options.onChange called with each change once memory has followed it
 * @returns reads the records of nodes again
 */
export const followNodeChanges = Effect.fnUntraced(function* (options: {
  readonly onRecord: (node_id: NodeId, record: NodeRecord | undefined) => void
  readonly onChange: (change: RecordChange) => void
}): Effect.fn.Return<
  (node_ids: ReadonlyArray<NodeId>) => Effect.Effect<void, Unavailable>,
  Unavailable,
  Fleet | Journal | NodeRepo | Store | Scope.Scope
> {
  const fleet = yield* Fleet
  const journal = yield* Journal
  const repo = yield* NodeRepo
  const store = yield* Store
  // An older read must not replace a newer one.
  const oneAtATime = yield* Semaphore.make(1)

  const put = (id: NodeId, record: NodeRecord | undefined) => {
    options.onRecord(id, record)
    if (record === undefined) fleet.forget(id)
    else fleet.put(record)
  }
  const refresh = (ids: ReadonlyArray<NodeId>) =>
    oneAtATime.withPermit(
      Effect.map(store.read(repo.find(ids)), (records) => {
        const found = new Map(records.map((record) => [record.id, record]))
        for (const id of ids) put(id, found.get(id))
      })
    )

  yield* journal.follow("read-model", (entries) => {
    const changes = entries.flatMap(({ change }) =>
      change.topic === "node:changed" || change.topic === "node:reach" ? [change] : []
    )
    if (changes.length === 0) return Effect.void
    return refresh([...new Set(changes.map(({ node_id }) => node_id))]).pipe(
      Effect.tapError((error) => Effect.logDebug(`nodes cannot be read yet: ${error.detail}`)),
      // Later entries must not be announced before these.
      Effect.retry(Schedule.spaced(AGAIN)),
      Effect.orDie,
      Effect.andThen(
        Effect.sync(() => {
          for (const change of changes) options.onChange(change)
        })
      )
    )
  })
  yield* oneAtATime.withPermit(
    Effect.map(store.read(repo.all), (records) => {
      for (const record of records) put(record.id, record)
    })
  )
  return refresh
})
