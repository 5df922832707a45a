import { Context, Effect, type Latch, Layer, Option, type Scope, Semaphore, Stream } from "effect"
import type { SqlError } from "effect/sql"
import type { Versioned } from "../../api/conditional.ts"
import { JsonWriter } from "../../api/JsonWriter.ts"
import type { SplitBody } from "../../api/SplitBody.ts"
import { BlueprintStore } from "../../blueprints/BlueprintStore.ts"
import type { CrashSummary } from "../../domain/CrashRecord.ts"
import type { Unavailable } from "../../domain/errors.ts"
import type { NodeId, ServerId } from "../../domain/Id.ts"
import { type JournalEntry, serverOf } from "../../domain/Journal.ts"
import { admits, type RestrictedServer, type Restriction } from "../../domain/KeyLimits.ts"
import type { Migration } from "../../domain/Migration.ts"
import type { FiguresById, Server, ServerRecord } from "../../domain/Server.ts"
import type { ServerStatus } from "../../domain/ServerStatus.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { during } from "../../work/during.ts"
import { inSlices } from "../../work/slices.ts"
import { applyChange } from "./applyChange.ts"
import { type Encoded, withStats } from "./Encoded.ts"
import { ServerChanges } from "./ServerChanges.ts"
import { type ListRequest, ServerTable } from "./ServerTable.ts"
import { type Include, type ListedServer, showsDefinition } from "./summary.ts"

/** Missing servers of a list that are encoded at once. */
const FEW = 20

/** Passes in which a list is encoded in parts while servers change. */
const PASSES = 3

/** A page of servers; `next`: the last of its ids, if there are more servers. */
export interface ServerPage {
  readonly ids: ReadonlyArray<ServerId>
  readonly next: string | undefined
  /** JSON array of the ids. */
  readonly encodeIds: Effect.Effect<Versioned<SplitBody>>
  /** JSON array of the summaries as they are now; with the figures of each, if there are any. */
  encode(include: Include, stats?: FiguresById): Effect.Effect<Versioned<SplitBody>>
}

/**
 * The read model of the servers: every record with its encoded summaries, in memory, kept up to date by the
 * journal. A write is visible here before it returns (read your own writes).
 */
export class ServerIndex extends Context.Service<
  ServerIndex,
  {
    /** JSON array of all summaries, by creation; nothing is computed when nothing changed since the last call. */
    list(include: Include): Effect.Effect<Versioned<SplitBody>>
    /** Returns the servers of a request; undefined: `after` is no server that is or was recently here. */
    select(request: ListRequest): Effect.Effect<ServerPage | undefined>
    /** Returns the records by creation; servers may be added and removed before the next one is taken. */
    all(): Iterable<ServerRecord>
    /** Returns at most `limit` ids of admitted servers that begin with `prefix`. */
    withPrefix(prefix: string, limit: number, within?: Restriction): Effect.Effect<ReadonlyArray<ServerId>>
    /** JSON of one summary of a server, which is looked for as by {@link lookUpWithin}; undefined: there is none. */
    summary(
      id: ServerId,
      include: Include,
      restriction: Restriction | undefined
    ): Effect.Effect<Versioned | undefined, Unavailable>
    /** The plain summary of a server, or the last one of a server that was recently here. */
    latest(id: ServerId): Server | undefined
    /** The facts of a server for filters, or the last ones of a server that was recently here. */
    factsOf(id: ServerId): RestrictedServer | undefined
    /** Returns the name of a server, or the last one of a server that was recently here. */
    nameOf(id: ServerId): string | undefined
    /** Returns a latch that each change of a server opens. */
    changeOf(id: ServerId): Effect.Effect<Latch.Latch, never, Scope.Scope>
    lastCrash(id: ServerId): Effect.Effect<CrashSummary | undefined>
    /** `last_sequence` is not kept up to date here: ask the store for it. */
    get(id: ServerId): ListedServer | undefined
    /**
     * {@link get}; one that is not known here, or not on the node that is given, is looked for among what others have
     * committed.
     */
    lookUp(id: ServerId, node_id?: NodeId): Effect.Effect<Option.Option<ListedServer>, Unavailable>
    /**
     * {@link lookUp} of a server that a restriction admits. Any other one is looked for in the same way as one that does
     * not exist: another process may have just changed its labels, and the caller cannot tell the two apart.
     */
    lookUpWithin(
      id: ServerId,
      restriction: Restriction | undefined
    ): Effect.Effect<Option.Option<ListedServer>, Unavailable>
    onNode(node_id: NodeId): Effect.Effect<ReadonlyArray<ServerRecord>>
    /** The migration of a server, also a failed one. */
    migrationOf(id: ServerId): Migration | undefined
    readonly migrations: Effect.Effect<ReadonlyArray<Migration>>
    /** The node that a server comes from which is arriving at `node_id`. */
    originOf(node_id: NodeId, id: ServerId): Effect.Effect<NodeId | undefined>
    readonly counts: Effect.Effect<ReadonlyMap<ServerStatus, number>>
    /** Number of servers that wait for their nodes to start them. */
    readonly waiting: Effect.Effect<number>
    /**
     * Runs a write that creates `record`, so that the index need not read the row again that it was just made from.
     */
    creating<A, E, R>(record: ServerRecord, write: Effect.Effect<A, E, R>): Effect.Effect<A, E, R>
    /** Replaces the record of {@link creating} by the one that the write stores. */
    storing(record: ServerRecord): void
    /** Whether a write of this process is creating the server right now. */
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
      /** Entries that came before the first load; undefined once it is done. */
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
        // Synchronous from here: a reader sees all of these entries or none.
        for (const entry of entries) {
          const id = serverOf(entry.change)
          if (id === undefined) continue
          applyChange({ table, migrations }, id, entry, rows.get(id))
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
        Stream.runForEach((change) =>
          change.kind === "connected" ? Effect.sync(() => table.rename(change.node_id)) : Effect.void
        ),
        Effect.forkScoped({ startImmediately: true })
      )

      /** Compares with the definitions of the last reload from now on. */
      const updated = Effect.map(blueprints.today, (today) => table.compareWith(today))

      /** Returns the chunks to encode before the list; none: few servers are missing in it. */
      const toPrepare = (include: Include) =>
        Effect.map(updated, () => {
          const missing = table.missing(include)
          return Array.from(missing.values()).flat().length <= FEW ? new Map() : missing
        })

      /** Encodes the list up to what changes meanwhile, in parts: a long one must not hold up other requests. */
      const prepareList = Effect.fnUntraced(function* (include: Include) {
        // Of a list that changes all the time, the rest is encoded at once.
        for (let pass = 0; pass < PASSES; pass++) {
          const chunks = yield* toPrepare(include)
          if (chunks.size === 0) return
          yield* inSlices(() => table.prepare(chunks, include))
        }
      })

      const making = yield* Semaphore.make(1)

      const listNow = (include: Include) => {
        const { body, etag, gzip } = table.list(include)
        return { body, etag, cursor, ...(gzip === undefined ? {} : { gzip }) }
      }

      /** Makes a long list, one at a time: what several would keep meanwhile has no bound. */
      const makeList = (include: Include) =>
        making.withPermit(
          Effect.acquireUseRelease(
            Effect.sync(() => table.pin(include, true)),
            () => Effect.map(prepareList(include), () => listNow(include)),
            () => Effect.sync(() => table.pin(include, false))
          )
        )

      const readOf = ({ body, etag }: Encoded): Versioned => ({ body, etag, cursor })

      const encodingOf = (ids: ReadonlyArray<ServerId>, cursor: number) => {
        const encoded = (pieceOf: (id: ServerId) => string | undefined) =>
          inSlices(function* () {
            const writer = new JsonWriter("[")
            for (const id of ids) {
              const piece = pieceOf(id)
              if (piece !== undefined) writer.add(piece)
              yield
            }
            return { ...writer.end(), cursor }
          })
        return {
          encodeIds: encoded(JSON.stringify),
          encode: (include: Include, stats?: FiguresById) =>
            Effect.andThen(
              updated,
              encoded((id) => {
                const piece = table.summary(id, include)
                if (piece === undefined || stats === undefined) return piece?.body
                return withStats(piece, stats.get(id) ?? null).body
              })
            )
        }
      }

      /** Looks for a server; one that is not found, once more among what others have committed. */
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
        list: (include) =>
          Effect.flatMap(toPrepare(include), (chunks) =>
            chunks.size === 0 ? Effect.sync(() => listNow(include)) : makeList(include)
          ),
        select: (request) =>
          Effect.suspend(() => {
            // The cursor must not be newer than the records.
            const shown = cursor
            return Effect.map(
              inSlices(() => table.select(request)),
              (selection) => selection && { ...selection, ...encodingOf(selection.ids, shown) }
            )
          }),
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
