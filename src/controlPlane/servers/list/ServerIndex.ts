import { randomUUID } from "node:crypto"
import { Context, Effect, Latch, Layer, type Scope, Stream } from "effect"
import type { Migration } from "../../../contract/domain/Drain.ts"
import { NotFound } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { type JournalEntry, serverOf } from "../../../contract/domain/Journal.ts"
import { admits, type Restriction } from "../../../contract/domain/Key.ts"
import type { FiguresById, ServerRecord } from "../../../contract/domain/Server.ts"
import { during } from "../../../shared/work/inScope.ts"
import { inSlices } from "../../../shared/work/slices.ts"
import { BlueprintStore } from "../../blueprints/BlueprintStore.ts"
import type { Versioned } from "../../http/conditional.ts"
import { type JsonBody, JsonWriter } from "../../http/LargeAnswers.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/sqlErrors.ts"
import { type ListRequest, matches, type ServerFilter } from "./listQuery.ts"
import { type Selection, ServerTable } from "./ServerTable.ts"
import { has, type Include, withStats } from "./summary.ts"

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

/** Waits for changes of single servers. */
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

/** Loads the servers and keeps them up to date by the journal. */
const followServers = Effect.gen(function* () {
  const crashRepo = yield* CrashRepo
  const journal = yield* Journal
  const migrationRepo = yield* MigrationRepo
  const registry = yield* NodeRegistry
  const servers = yield* ServerRepo
  const { read } = yield* Store
  const table = new ServerTable((node_id) => registry.nameOf(node_id))
  const creating = new Map<ServerId, ServerRecord>()
  const migrations = new Map<ServerId, Migration>()
  const changes = new ServerChanges()
  /** `context` changes with everything in summaries that has no journal entry: node names, and the definition files. */
  const state = { cursor: 0, context: randomUUID() }
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
      const found = yield* Effect.orDie(Effect.retry(read(servers.find([...stale])), databaseRetrySchedule))
      for (const row of found) rows.set(row.id, row)
    }
    // Synchronous from here, so that a reader sees all of these entries or none.
    for (const entry of entries) {
      const { change } = entry
      const id = serverOf(change)
      if (id === undefined) continue
      table.apply(entry, rows.get(id))
      if (change.topic === "server:move" && change.payload !== null) migrations.set(id, change.payload)
      else if (change.topic === "server:move" || change.topic === "deleted") migrations.delete(id)
      changes.open(id)
    }
    state.cursor = Math.max(state.cursor, entries.at(-1)?.cursor ?? 0)
  })

  yield* journal.follow("read-model", (entries) => {
    if (early === undefined) return apply(entries)
    early.push(...entries)
    return Effect.void
  })
  state.cursor = (yield* journal.bounds).newest
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
    early = batch.length === 0 ? undefined : []
    yield* apply(batch)
  }
  yield* registry.changes.pipe(
    Stream.runForEach(({ kind }) =>
      Effect.sync(() => {
        if (kind === "connected") state.context = randomUUID()
      })
    ),
    Effect.forkScoped({ startImmediately: true })
  )
  return { changes, creating, migrations, state, table }
})

/** Encodes lists. `updated` compares the definitions of summaries with the files of today. */
const makeEncoding = (table: ServerTable, updated: Effect.Effect<void>) => {
  const encoded = (ids: ReadonlyArray<ServerId>, pieceOf: (id: ServerId) => string | undefined) =>
    inSlices(function* () {
      const writer = new JsonWriter("[")
      for (const id of ids) {
        const piece = pieceOf(id)
        if (piece !== undefined) writer.add(piece)
        yield
      }
      return yield* writer.end()
    })

  const pageOf = ({ ids, next }: Selection): ServerPage => ({
    ids,
    next,
    encodeIds: encoded(ids, JSON.stringify),
    encode: (include, stats) =>
      Effect.andThen(
        updated,
        encoded(ids, (id) => {
          const piece = table.summary(id, include, ids.length <= LONGEST_WHOLE)
          return piece === undefined || stats === undefined ? piece : withStats(piece, stats.get(id) ?? null)
        })
      )
  })

  const stream = (filter: ServerFilter, what: Include | "ids") =>
    Stream.unwrap(
      Effect.map(updated, () => {
        const records = table.after()
        const writer = new JsonWriter("[")
        return Stream.unfold(false, (isOver) =>
          inSlices(function* () {
            if (isOver) return undefined
            for (let part = writer.take(); ; part = writer.take()) {
              if (part !== undefined) return [part, false] as const
              const { done, value: record } = records.next()
              if (done === true) return [writer.rest(), true] as const
              const { id } = record
              const textOf = () => (what === "ids" ? JSON.stringify(id) : table.summary(id, what, false))
              const piece = matches(filter, record) ? textOf() : undefined
              if (piece !== undefined) writer.add(piece)
              yield
            }
          })
        )
      })
    )

  return { pageOf, stream }
}

/**
 * The read model of the servers: their records in memory, kept up to date by the journal. A write is visible here
 * before it returns.
 */
export class ServerIndex extends Context.Service<ServerIndex>()("muster/servers/ServerIndex", {
  make: Effect.gen(function* () {
    const blueprints = yield* BlueprintStore
    const journal = yield* Journal
    const { changes, creating, migrations, state, table } = yield* followServers

    const updated = Effect.map(blueprints.today, (today) => {
      if (table.compareWith(today)) state.context = randomUUID()
    })

    const { pageOf, stream } = makeEncoding(table, updated)

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

    return {
      version: Effect.map(
        updated,
        (): IndexVersion => ({ cursor: state.cursor, state: `${state.context} ${state.cursor}` })
      ),
      size: Effect.sync(() => table.size),
      /**
       * Returns the servers of a request, unless `after` is no server that is or was recently here. Another replica may
       * have created a named server a moment ago.
       */
      select: Effect.fnUntraced(function* (request: ListRequest) {
        const { ids = [] } = request.filter
        if ([...ids].some((id) => table.get(id) === undefined)) yield* journal.catchUp
        const selection = yield* inSlices(() => table.select(request))
        return selection && pageOf(selection)
      }),
      /** JSON array of the ids or the summaries of all servers that a filter admits, made as it is read. */
      stream,
      /** Returns the records by creation. Servers may be added and removed before the next one is taken. */
      all: (): Iterable<ServerRecord> => table.after(),
      withPrefix: (prefix: string, limit: number, within?: Restriction) =>
        Effect.sync(() => table.withPrefix(prefix, limit, within)),
      /** JSON of one summary of a server, if {@link lookUpWithin} finds it. */
      summary: (id: ServerId, include: Include, restriction: Restriction | undefined) => {
        const read = (): Versioned | undefined => {
          const tagged = admitted(id, restriction) && table.tagged(id, include)
          return tagged && { ...tagged, cursor: state.cursor }
        }
        return has(include, "definition") ? Effect.andThen(updated, lookTwice(read)) : lookTwice(read)
      },
      /** The plain summary of a server, also of a recently deleted one. */
      latest: (id: ServerId) => table.latest(id),
      /** The facts of a server for filters, also of a recently deleted one. */
      factsOf: (id: ServerId) => table.factsOf(id),
      /** Returns the name of a server, also of a recently deleted one. */
      nameOf: (id: ServerId) => table.nameOf(id),
      lastCrash: (id: ServerId) => Effect.sync(() => table.get(id)?.last_crash),
      changeOf: (id: ServerId) => changes.latchOf(id),
      /** `last_sequence` may be old here; the store has the present one. */
      get: (id: ServerId) => table.get(id),
      /** {@link get}, or what others have committed if the server is not here or not on the given node. */
      lookUp: (id: ServerId, node_id?: NodeId) =>
        Effect.suspend(() => {
          const record = table.get(id)
          return record === undefined || (node_id !== undefined && record.node_id !== node_id)
            ? Effect.map(journal.catchUp, () => table.get(id))
            : Effect.succeed(record)
        }),
      /**
       * {@link lookUp} within a restriction. A server outside is looked up again as if it did not exist: its labels
       * may have changed, and the caller cannot tell the cases apart.
       */
      lookUpWithin: (id: ServerId, restriction: Restriction | undefined) =>
        lookTwice(() => admitted(id, restriction)),
      /** @error NotFound {@link lookUpWithin} does not find the server, or could not look */
      mustBeKnown: (id: ServerId, restriction: Restriction | undefined) =>
        Effect.filterOrFail(
          Effect.orElseSucceed(
            lookTwice(() => admitted(id, restriction)),
            () => undefined
          ),
          (record) => record !== undefined,
          () => NotFound.server(id)
        ),
      /** Whether a server is here and within a restriction; without a restriction, also one that is not here. */
      isWithin: (id: ServerId, restriction: Restriction | undefined) =>
        restriction === undefined || admitted(id, restriction) !== undefined,
      onNode: (node_id: NodeId) => Effect.sync(() => table.onNode(node_id)),
      migrationOf: (id: ServerId) => migrations.get(id),
      migrations: Effect.sync(() => [...migrations.values()]),
      /** The source node of a server that is arriving at `node_id`. */
      originOf: (node_id: NodeId, id: ServerId) =>
        Effect.sync(() => {
          const migration = migrations.get(id)
          const arriving = migration?.phase === "arriving" && table.get(id)?.node_id === node_id
          return arriving ? migration.from_node : undefined
        }),
      counts: Effect.sync(() => table.counts),
      waiting: Effect.sync(() => table.waiting),
      /** Runs a write that creates `record`, so that the index need not read its row. */
      creating: <A, E, R>(record: ServerRecord, write: Effect.Effect<A, E, R>) =>
        during(
          () => creating.set(record.id, record),
          () => creating.delete(record.id)
        )(write),
      /** Replaces the record of {@link creating} by the stored one. */
      storing: (record: ServerRecord) => {
        if (creating.has(record.id)) creating.set(record.id, record)
      },
      isCreating: (id: ServerId) => creating.has(id)
    }
  })
}) {
  static readonly layer = Layer.effect(ServerIndex, ServerIndex.make)
}
