import { Context, Effect, Layer, Option, Stream } from "effect"
import type { SqlError } from "effect/sql"
import type { Unavailable } from "../../domain/errors.ts"
import { type JournalEntry, serverOf } from "../../domain/Journal.ts"
import type { Migration } from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import type { ServerStatus } from "../../domain/ServerStatus.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { ServerTable } from "./ServerTable.ts"
import type { Include } from "./summary.ts"

/**
 * The read model of the servers: every record with its encoded summaries, in memory, kept up to date by the
 * journal. A write is visible here before it returns (read your own writes).
 */
export class ServerIndex extends Context.Service<
  ServerIndex,
  {
    /** JSON array of summaries, by id; nothing is computed when nothing changed since the last call. */
    list(include: Include): Effect.Effect<Uint8Array>
    readonly ids: Effect.Effect<ReadonlyArray<string>>
    /** JSON of one summary. */
    summary(id: string, include: Include): Effect.Effect<Option.Option<Uint8Array>>
    /** `last_sequence` is not kept up to date here: ask the store for it. */
    find(id: string): Effect.Effect<Option.Option<ServerRecord>>
    /**
     * {@link find}; one that is not known here, or not on the node that is given, is looked for among what others have
     * committed.
     */
    lookUp(id: string, node_id?: string): Effect.Effect<Option.Option<ServerRecord>, Unavailable>
    readonly records: Effect.Effect<ReadonlyArray<ServerRecord>>
    onNode(node_id: string): Effect.Effect<ReadonlyArray<ServerRecord>>
    /** The migration of a server, also a failed one. */
    migrationOf(id: string): Effect.Effect<Migration | undefined>
    readonly migrations: Effect.Effect<ReadonlyArray<Migration>>
    /** The node that a server comes from which is arriving at `node_id`. */
    originOf(node_id: string, id: string): Effect.Effect<string | undefined>
    readonly counts: Effect.Effect<ReadonlyMap<ServerStatus, number>>
    /**
     * Runs a write that creates `record`, so that the index need not read the row again that it was just made from.
     */
    creating<A, E, R>(record: ServerRecord, write: Effect.Effect<A, E, R>): Effect.Effect<A, E, R>
    /** Whether a write of this process is creating the server right now. */
    isCreating(id: string): boolean
  }
>()("muster/servers/ServerIndex") {
  static readonly layer = Layer.effect(
    ServerIndex,
    Effect.gen(function* () {
      const journal = yield* Journal
      const registry = yield* NodeRegistry
      const servers = yield* ServerRepo
      const migrationRepo = yield* MigrationRepo
      const store = yield* Store
      const read = <A>(query: Effect.Effect<A, SqlError.SqlError>) => store.read(query)
      const table = new ServerTable((node_id) => registry.nameOf(node_id))
      const creating = new Map<string, ServerRecord>()
      const migrations = new Map<string, Migration>()
      /** Entries that came before the first load; undefined once it is done. */
      let early: Array<JournalEntry> | undefined = []

      const apply = Effect.fnUntraced(function* (entries: ReadonlyArray<JournalEntry>) {
        const foreign: Array<string> = []
        const created = new Map<string, ServerRecord>()
        for (const { change } of entries) {
          if (change.topic !== "server:created") continue
          const own = creating.get(change.server_id)
          if (own === undefined) foreign.push(change.server_id)
          else created.set(own.id, own)
        }
        const rows =
          foreign.length === 0
            ? []
            : yield* Effect.orDie(Effect.retry(read(servers.find(foreign)), databaseRetrySchedule))
        for (const row of rows) created.set(row.id, row)
        for (const { change } of entries) {
          const id = serverOf(change)
          if (id === undefined) continue
          switch (change.topic) {
            case "server:created": {
              const record = created.get(id)
              if (record !== undefined) table.add(record)
              break
            }
            case "status":
              table.update(id, { status: change.payload })
              break
            case "server:install":
              table.update(id, { install: change.payload })
              break
            case "server:start-pending":
              table.update(id, { start_pending: change.payload })
              break
            case "server:placed": {
              const record = table.get(id)
              if (record !== undefined) table.add({ ...record, ...change.payload })
              break
            }
            case "server:move":
              if (change.payload === null) migrations.delete(id)
              else migrations.set(id, change.payload)
              break
            case "deleted":
              table.remove(id)
              migrations.delete(id)
              break
          }
        }
      })

      yield* journal.follow("read-model", (entries) => {
        if (early === undefined) return apply(entries)
        early.push(...entries)
        return Effect.void
      })
      for (const record of yield* read(servers.all)) table.add(record)
      for (const migration of yield* read(migrationRepo.all)) migrations.set(migration.server_id, migration)
      while (early !== undefined) {
        const batch: Array<JournalEntry> = early
        if (batch.length === 0) {
          early = undefined
        } else {
          early = []
          yield* apply(batch)
        }
      }

      yield* registry.changes.pipe(
        Stream.runForEach((change) =>
          change.kind === "connected" ? Effect.sync(() => table.rename(change.node_id)) : Effect.void
        ),
        Effect.forkScoped({ startImmediately: true })
      )

      const find = (id: string) => Effect.sync(() => Option.fromUndefinedOr(table.get(id)))

      return ServerIndex.of({
        list: (include) => Effect.sync(() => table.list(include)),
        ids: Effect.sync(() => table.ids),
        summary: (id, include) => Effect.sync(() => Option.fromUndefinedOr(table.summary(id, include))),
        find,
        lookUp: Effect.fnUntraced(function* (id, node_id) {
          const record = table.get(id)
          const isBehind = record === undefined || (node_id !== undefined && record.node_id !== node_id)
          if (isBehind) yield* journal.catchUp
          return yield* find(id)
        }),
        records: Effect.sync(() => table.records),
        onNode: (node_id) => Effect.sync(() => table.onNode(node_id)),
        migrationOf: (id) => Effect.sync(() => migrations.get(id)),
        migrations: Effect.sync(() => [...migrations.values()]),
        originOf: (node_id, id) =>
          Effect.sync(() => {
            const migration = migrations.get(id)
            const arriving = migration?.phase === "arriving" && table.get(id)?.node_id === node_id
            return arriving ? migration.from_node : undefined
          }),
        counts: Effect.sync(() => table.counts),
        creating: (record, write) =>
          Effect.acquireUseRelease(
            Effect.sync(() => creating.set(record.id, record)),
            () => write,
            () => Effect.sync(() => creating.delete(record.id))
          ),
        isCreating: (id) => creating.has(id)
      })
    })
  )
}
