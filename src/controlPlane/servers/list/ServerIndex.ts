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
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { afterChange } from "./applyChange.ts"
import { type ListRequest, matches, type ServerFilter } from "./ServerFilter.ts"
import { ServerTable } from "./ServerTable.ts"
import { type Encoded, withStats } from "./SummaryCache.ts"
import { type Include, type ListedServer, showsDefinition } from "./summary.ts"

/**
 * The most servers of a list that is kept encoded, or made as a whole: hundreds of megabytes would lengthen each pause of the
 * garbage collector to as many milliseconds.
 */
export const LONGEST_WHOLE = 5_000

/** A page of servers; `next`: the last of its ids, if there are more servers. */
export interface ServerPage {
  readonly ids: ReadonlyArray<ServerId>
  readonly next: string | undefined
  /** JSON array of the ids. */
  readonly encodeIds: Effect.Effect<JsonBody>
  /** JSON array of the summaries as they are now; with the figures of each, if there are any. */
  encode(include: Include, stats?: FiguresById): Effect.Effect<JsonBody>
}

/** The state of the index: equal `state` and equal requests have equal responses, but for the figures of the servers. */
export interface IndexVersion {
  /** The cursor of the journal. */
  readonly cursor: number
  readonly state: string
}

/** The latches of callers that wait for a change of a server. */
class ServerChanges {
  readonly #waiting = new Map<ServerId, Set<Latch.Latch>>()

  /** Opens the latches of a server that has changed. */
  open(id: ServerId): void {
    for (const latch of this.#waiting.get(id) ?? []) latch.openUnsafe()
  }

  /** Returns a latch that each change of a server opens. */
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
 * The read model of the servers: every record with its encoded summaries, in memory, kept up to date by the
 * journal. A write is visible here before it returns (read your own writes).
 */
export class ServerIndex extends Context.Service<
  ServerIndex,
  {
    /** The state of all servers now. */
    readonly version: Effect.Effect<IndexVersion>
    /** Number of servers. */
    readonly size: Effect.Effect<number>
    /** Returns the servers of a request; undefined: `after` is no server that is or was recently here. */
    select(request: ListRequest): Effect.Effect<ServerPage | undefined>
    /** JSON array of the ids or the summaries of all servers that a filter admits, made as it is read. */
    stream(filter: ServerFilter, what: Include | "ids"): Stream.Stream<Uint8Array>
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
     * {@link lookUp} of a server that a restriction admits. Any other one is looked up as if it did not exist:
     * its labels may have just changed, and the caller cannot tell the two apart.
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
      /** What summaries show beside the journal: names of nodes, and the files that definitions are compared with. */
      let context = randomUUID()
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

      /** Compares with the definitions of the last reload from now on. */
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
