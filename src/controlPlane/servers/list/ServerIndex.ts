import { randomUUID } from "node:crypto"
import { Context, Effect, Latch, Layer, Option, type Scope, Stream } from "effect"
import type { SqlError } from "effect/sql"
import type { CrashSummary } from "../../../contract/domain/CrashRecord.ts"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { type JournalEntry, serverOf } from "../../../contract/domain/Journal.ts"
import { admits, type RestrictedServer, type Restriction } from "../../../contract/domain/Key.ts"
import type { Migration } from "../../../contract/domain/Migration.ts"
import type { FiguresById, Server, ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerStatus } from "../../../contract/domain/ServerStatus.ts"
import { during } from "../../../shared/work/during.ts"
import { inSlices } from "../../../shared/work/slices.ts"
import { BlueprintStore } from "../../blueprints/BlueprintStore.ts"
import type { Versioned } from "../../http/conditional.ts"
import { type JsonBody, JsonWriter } from "../../http/JsonWriter.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/sqlErrors.ts"
import { afterChange } from "./applyChange.ts"
import { type ListRequest, matches, type ServerFilter } from "./ServerFilter.ts"
import { ServerTable } from "./ServerTable.ts"
import { type Encoded, withStats } from "./SummaryCache.ts"
import { type Include, type ListedServer, showsDefinition } from "./summary.ts"

/** The most servers of a list encoded as a whole: each 100 MB lengthens garbage collector pauses by 100 ms. */
export const LONGEST_WHOLE = 5_000

/** A page of servers. `next` is its last id, if there are more servers. */
export interface ServerPage {
  readonly ids: ReadonlyArray<ServerId>
  readonly next: string | undefined
  readonly encodeIds: Effect.Effect<JsonBody>
  /** JSON array of the present summaries, with figures if there are any. */
  encode(include: Include, stats?: FiguresById): Effect.Effect<JsonBody>
}

/** The state of the index. Equal `state` and requests have equal responses, except for figures. */
export interface IndexVersion {
  readonly cursor: number
  readonly state: string
}

class ServerChanges {
  readonly #waiting = new Map<ServerId, Set<Latch.Latch>>()

  open(id: ServerId): void {
    for (const latch of this.#waiting.get(id) ?? []) latch.openUnsafe()
  }

  latchOf(id: ServerId): Effect.Effect<Latch.Latch, never, Scope.Scope> {
    return Effect.acquireRelease(
      Effect.sync(() => {
        const latch = Latch.makeUnsafe(false)
        this.#waiting.set(id, (this.#waiting.get(id) ?? new Set()).add(latch))
        return latch
      }),
      (latch) =>
        Effect.sync(() => {
          const others = this.#waiting.get(id)
          others?.delete(latch)
          if (others?.size === 0) this.#waiting.delete(id)
        })
    )
  }
}

/**
 * The read model of the servers: records with encoded summaries in memory, kept up to date by the journal. A write is
 * visible here before it returns.
 */
export class ServerIndex extends Context.Service<
  ServerIndex,
  {
    readonly version: Effect.Effect<IndexVersion>
    readonly size: Effect.Effect<number>
    /** Returns the servers of a request, unless `after` is no server that is or was recently here. */
    select(request: ListRequest): Effect.Effect<ServerPage | undefined>
    /** JSON array of the ids or the summaries of all servers that a filter admits, made as it is read. */
    stream(filter: ServerFilter, what: Include | "ids"): Stream.Stream<Uint8Array>
    /** Returns the records by creation. Servers may be added and removed before the next one is taken. */
    all(): Iterable<ServerRecord>
    withPrefix(prefix: string, limit: number, within?: Restriction): Effect.Effect<ReadonlyArray<ServerId>>
    /** JSON of one summary of a server, if {@link lookUpWithin} finds it. */
    summary(
      id: ServerId,
      include: Include,
      restriction: Restriction | undefined
    ): Effect.Effect<Versioned | undefined, Unavailable>
    /** The plain summary of a server, also of a recently deleted one. */
    latest(id: ServerId): Server | undefined
    /** The facts of a server for filters, also of a recently deleted one. */
    factsOf(id: ServerId): RestrictedServer | undefined
    /** Returns the name of a server, also of a recently deleted one. */
    nameOf(id: ServerId): string | undefined
    changeOf(id: ServerId): Effect.Effect<Latch.Latch, never, Scope.Scope>
    lastCrash(id: ServerId): Effect.Effect<CrashSummary | undefined>
    /** `last_sequence` may be old here; the store has the present one. */
    get(id: ServerId): ListedServer | undefined
    /** {@link get}, or what others have committed if the server is not here or not on the given node. */
    lookUp(id: ServerId, node_id?: NodeId): Effect.Effect<Option.Option<ListedServer>, Unavailable>
    /**
     * {@link lookUp} within a restriction. A server outside is looked up again as if it did not exist: its labels may
     * have changed, and the caller cannot tell the cases apart.
     */
    lookUpWithin(
      id: ServerId,
      restriction: Restriction | undefined
    ): Effect.Effect<Option.Option<ListedServer>, Unavailable>
    onNode(node_id: NodeId): Effect.Effect<ReadonlyArray<ServerRecord>>
    migrationOf(id: ServerId): Migration | undefined
    readonly migrations: Effect.Effect<ReadonlyArray<Migration>>
    /** The source node of a server that is arriving at `node_id`. */
    originOf(node_id: NodeId, id: ServerId): Effect.Effect<NodeId | undefined>
    readonly counts: Effect.Effect<ReadonlyMap<ServerStatus, number>>
    readonly waiting: Effect.Effect<number>
    /** Runs a write that creates `record`, so that the index need not read its row. */
    creating<A, E, R>(record: ServerRecord, write: Effect.Effect<A, E, R>): Effect.Effect<A, E, R>
    /** Replaces the record of {@link creating} by the stored one. */
    storing(record: ServerRecord): void
    isCreating(id: ServerId): boolean
  }
>()("muster/servers/ServerIndex") {
  static readonly layer = Layer.effect(
    ServerIndex,
    Effect.gen(function* () {
      const blueprints = yield* BlueprintStore
      const journal = yield* Journal
      const registry = yield* NodeRegistry
      const servers = yield* ServerRepo
      const crashRepo = yield* CrashRepo
      const migrationRepo = yield* MigrationRepo
      const store = yield* Store
      const read = <A>(query: Effect.Effect<A, SqlError.SqlError>) => store.read(query)
      const table = new ServerTable((node_id) => registry.nameOf(node_id))
      const creating = new Map<ServerId, ServerRecord>()
      const migrations = new Map<ServerId, Migration>()
      const changes = new ServerChanges()
      let cursor = 0
      /** Changes with everything in summaries that has no journal entry: node names, and the definition files. */
      let context = randomUUID()
      /** Entries that came before the first load. Unset once it is done. */
      let early: Array<JournalEntry> | undefined = []

      const apply = Effect.fnUntraced(function* (entries: ReadonlyArray<JournalEntry>) {
        const stale = new Set<ServerId>()
        const rows = new Map<ServerId, ServerRecord>()
        for (const { change } of entries) {
          if (change.topic !== "server:created" && change.topic !== "server:changed") continue
          const own = creating.get(change.server_id)
          if (own === undefined) stale.add(change.server_id)
          else rows.set(own.id, own)
        }
        if (stale.size > 0) {
          const found = yield* Effect.orDie(
            Effect.retry(read(servers.find([...stale])), databaseRetrySchedule)
          )
          for (const row of found) rows.set(row.id, row)
        }
        // Synchronous from here, so that a reader sees all of these entries or none.
        for (const entry of entries) {
          const { change } = entry
          const id = serverOf(change)
          if (id === undefined) continue
          if (change.topic === "deleted") table.remove(id)
          const record = afterChange(table.get(id), entry, rows.get(id))
          if (record !== undefined) table.put(record)
          if (change.topic === "server:move" && change.payload !== null) migrations.set(id, change.payload)
          else if (change.topic === "server:move" || change.topic === "deleted") migrations.delete(id)
          changes.open(id)
        }
        cursor = Math.max(cursor, entries.at(-1)?.cursor ?? 0)
      })

      yield* journal.follow("read-model", (entries) => {
        if (early === undefined) return apply(entries)
        early.push(...entries)
        return Effect.void
      })
      cursor = (yield* journal.bounds).newest
      const crashes = new Map((yield* read(crashRepo.last)).map((crash) => [crash.server_id, crash]))
      table.load(
        (yield* read(servers.all)).map((record) => {
          const last_crash = crashes.get(record.id)
          return last_crash === undefined ? record : { ...record, last_crash }
        })
      )
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
        Stream.runForEach(({ kind, node_id }) =>
          Effect.sync(() => {
            if (kind !== "connected") return
            table.rename(node_id)
            context = randomUUID()
          })
        ),
        Effect.forkScoped({ startImmediately: true })
      )

      const updated = Effect.map(blueprints.today, (today) => {
        if (table.compareWith(today)) context = randomUUID()
      })

      const readOf = ({ body, etag }: Encoded): Versioned => ({ body, etag, cursor })

      const encodingOf = (ids: ReadonlyArray<ServerId>) => {
        const encoded = (pieceOf: (id: ServerId) => string | undefined) =>
          inSlices(function* () {
            const writer = new JsonWriter("[")
            for (const id of ids) {
              const piece = pieceOf(id)
              if (piece !== undefined) writer.add(piece)
              yield
            }
            return yield* writer.end()
          })
        return {
          encodeIds: encoded(JSON.stringify),
          encode: (include: Include, stats?: FiguresById) =>
            Effect.andThen(
              updated,
              encoded((id) => {
                const piece = table.summary(id, include, ids.length <= LONGEST_WHOLE)
                if (piece === undefined || stats === undefined) return piece?.body
                return withStats(piece, stats.get(id) ?? null).body
              })
            )
        }
      }

      /** Looks for a server, and once more among what others have committed if it is not found. */
      const lookTwice = <A>(look: () => A | undefined) =>
        Effect.suspend(() => {
          const found = look()
          return found === undefined ? Effect.map(journal.catchUp, look) : Effect.succeed(found)
        })

      const admitted = (id: ServerId, restriction: Restriction | undefined) => {
        const record = table.get(id)
        return record !== undefined && admits(restriction, record) ? record : undefined
      }

      return ServerIndex.of({
        version: Effect.map(updated, () => ({ cursor, state: `${context} ${cursor}` })),
        size: Effect.sync(() => table.size),
        select: (request) =>
          Effect.map(
            inSlices(() => table.select(request)),
            (selection) => selection && { ...selection, ...encodingOf(selection.ids) }
          ),
        stream: (filter, what) =>
          Stream.unwrap(
            Effect.map(updated, () => {
              const records = table.after()
              const textOf = ({ id }: ListedServer) =>
                what === "ids" ? JSON.stringify(id) : table.summary(id, what, false)?.body
              const writer = new JsonWriter("[")
              return Stream.unfold(false, (isOver) =>
                inSlices(function* () {
                  if (isOver) return undefined
                  for (let part = writer.take(); ; part = writer.take()) {
                    if (part !== undefined) return [part, false] as const
                    const next = records.next()
                    if (next.done === true) return [writer.rest(), true] as const
                    const piece = matches(filter, next.value) ? textOf(next.value) : undefined
                    if (piece !== undefined) writer.add(piece)
                    yield
                  }
                })
              )
            })
          ),
        all: () => table.after(),
        withPrefix: (prefix, limit, within) => Effect.sync(() => table.withPrefix(prefix, limit, within)),
        summary: (id, include, restriction) => {
          const read = () => {
            const found = admitted(id, restriction) && table.summary(id, include)
            return found === undefined ? undefined : readOf(found)
          }
          return showsDefinition(include) ? Effect.andThen(updated, lookTwice(read)) : lookTwice(read)
        },
        latest: (id) => table.latest(id),
        factsOf: (id) => table.factsOf(id),
        nameOf: (id) => table.nameOf(id),
        lastCrash: (id) => Effect.sync(() => table.get(id)?.last_crash),
        changeOf: (id) => changes.latchOf(id),
        get: (id) => table.get(id),
        lookUp: (id, node_id) =>
          Effect.suspend(() => {
            const record = table.get(id)
            return record === undefined || (node_id !== undefined && record.node_id !== node_id)
              ? Effect.map(journal.catchUp, () => Option.fromUndefinedOr(table.get(id)))
              : Effect.succeed(Option.some(record))
          }),
        lookUpWithin: (id, restriction) =>
          Effect.map(
            lookTwice(() => admitted(id, restriction)),
            Option.fromUndefinedOr
          ),
        onNode: (node_id) => Effect.sync(() => table.onNode(node_id)),
        migrationOf: (id) => migrations.get(id),
        migrations: Effect.sync(() => [...migrations.values()]),
        originOf: (node_id, id) =>
          Effect.sync(() => {
            const migration = migrations.get(id)
            const arriving = migration?.phase === "arriving" && table.get(id)?.node_id === node_id
            return arriving ? migration.from_node : undefined
          }),
        counts: Effect.sync(() => table.counts),
        waiting: Effect.sync(() => table.waiting),
        creating: (record, write) =>
          during(
            () => creating.set(record.id, record),
            () => creating.delete(record.id)
          )(write),
        storing: (record) => {
          if (creating.has(record.id)) creating.set(record.id, record)
        },
        isCreating: (id) => creating.has(id)
      })
    })
  )
}
