import { Effect, Option, Semaphore } from "effect"
import type { Drain, DrainChoices } from "../../domain/Drain.ts"
import type { NodeId } from "../../domain/Id.ts"
import { nowText } from "../../domain/nowText.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store, Transaction } from "../../store/Store.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { makeMigrationRecords } from "../records/migrationRecords.ts"

/** The drains of nodes in the database, as memory follows them. */
export const makeDrains = Effect.gen(function* () {
  const index = yield* ServerIndex
  const migrations = yield* MigrationRepo
  const records = yield* makeMigrationRecords
  const servers = yield* ServerRepo
  const store = yield* Store
  /** By node. */
  let known: ReadonlyMap<NodeId, Drain> = new Map()
  let isStale = true
  const reading = yield* Semaphore.make(1)
  const markStale = () => {
    isStale = true
  }
  const refresh = Effect.suspend(() => {
    if (!isStale) return Effect.succeed(known)
    isStale = false
    return store.read(migrations.drains).pipe(
      Effect.map((rows) => {
        known = new Map(rows.map((row) => [row.node_id, row]))
        return known
      }),
      Effect.onError(() => Effect.sync(markStale))
    )
  }).pipe(reading.withPermit)
  /** Begins or ends the drain of a node, and forgets its failed migrations: they are tried again. */
  const change = Effect.fnUntraced(function* (
    node_id: NodeId,
    drain: ReturnType<typeof migrations.endDrain>
  ) {
    const failed = (yield* index.migrations).filter(
      (migration) => migration.phase === "failed" && migration.from_node === node_id
    )
    yield* store.write(
      Effect.gen(function* () {
        yield* drain
        const transaction = yield* Transaction
        yield* transaction.append({ topic: "node:evacuation", node_id })
        for (const { server_id } of failed) {
          const record = Option.getOrUndefined(yield* servers.lock(server_id))
          const migration = Option.getOrUndefined(yield* migrations.find(server_id))
          if (record !== undefined && migration?.phase === "failed") yield* records.forget(record)
        }
      })
    )
  })

  return {
    /** Begins the drain of a node. */
    begin: Effect.fn("NodeDrainer.begin")(function* (node_id: NodeId, choices: DrainChoices = {}) {
      const { deadline_at = null, notify = null, notify_seconds = null, parallel = null } = choices
      const asked_at = yield* nowText
      const drain = { node_id, asked_at, parallel, deadline_at, notify, notify_seconds, notified: false }
      yield* change(node_id, migrations.beginDrain(drain))
    }),
    /** Records that the servers that the deadline stops have got the line. */
    setNotified: Effect.fnUntraced(function* (node_id: NodeId) {
      yield* store.write(
        Effect.gen(function* () {
          yield* migrations.setNotified(node_id)
          const transaction = yield* Transaction
          yield* transaction.append({ topic: "node:evacuation", node_id })
        })
      )
      markStale()
    }),
    end: Effect.fn("NodeDrainer.end")((node_id: NodeId) => change(node_id, migrations.endDrain(node_id))),
    /** The node's drain may have begun or ended. */
    markStale,
    /** Reads the drains, if they may have changed. */
    all: refresh,
    /** The drain of a node, as far as it is known. */
    of: (node_id: NodeId) => Effect.map(Effect.ignore(refresh), () => known.get(node_id))
  } as const
})
export type Drains = Effect.Success<typeof makeDrains>
