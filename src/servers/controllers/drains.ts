import { Effect, Option, Semaphore } from "effect"
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
  /** By node: when its drain began. */
  let began: ReadonlyMap<NodeId, string> = new Map()
  let isStale = true
  const reading = yield* Semaphore.make(1)
  const markStale = () => {
    isStale = true
  }
  const refresh = Effect.suspend(() => {
    if (!isStale) return Effect.succeed(began)
    isStale = false
    return store.read(migrations.drains).pipe(
      Effect.map((rows) => {
        began = new Map(rows.map((row) => [row.node_id, row.asked_at]))
        return began
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
    begin: Effect.fn("NodeDrainer.begin")(function* (node_id: NodeId) {
      const asked_at = yield* nowText
      yield* change(node_id, migrations.beginDrain({ node_id, asked_at }))
    }),
    end: Effect.fn("NodeDrainer.end")((node_id: NodeId) => change(node_id, migrations.endDrain(node_id))),
    /** The node's drain may have begun or ended. */
    markStale,
    /** Reads the drains, if they may have changed. */
    all: refresh,
    /** When the drain of a node began, as far as it is known. */
    beganAt: (node_id: NodeId) => Effect.map(Effect.ignore(refresh), () => began.get(node_id))
  } as const
})
