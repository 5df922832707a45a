import { Array as Arr, Context, Effect, Layer, Option, Semaphore, Stream } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import type { Change, JournalEntry } from "../../../src/contract/domain/Journal.ts"
import type { Server } from "../../../src/contract/domain/Server.ts"
import { LiveFeed, ServerSummaries } from "../../../src/controlPlane/events/LiveFeed.ts"
import { Journal } from "../../../src/controlPlane/store/journal/Journal.ts"
import { branded, type Plain } from "../../support/ids.ts"

const PAGE = 100

/** A journal in memory. As with a database, entries can be read shortly before followers receive them. */
export class MemoryJournal extends Context.Service<
  MemoryJournal,
  {
    /** Commits a batch. */
    append(changes: ReadonlyArray<Plain<Change>>, blueprint_id?: string): Effect.Effect<void>
    /** Removes entries before `oldest`. */
    prune(oldest: number): Effect.Effect<void>
    /** The summaries of servers for `include=server`. */
    readonly summaries: Map<string, Server>
  }
>()("test/MemoryJournal") {
  static readonly layer = Layer.effectContext(
    Effect.gen(function* () {
      const lock = yield* Semaphore.make(1)
      const followers = new Set<(entries: ReadonlyArray<JournalEntry>) => Effect.Effect<void>>()
      let entries: Array<JournalEntry> = []
      let newest = 0

      const pages = (cursor: number, upTo: number): Stream.Stream<JournalEntry> =>
        Stream.paginate(cursor, (after) =>
          Effect.sync(() => {
            const page = entries
              .filter((entry) => entry.cursor > after && entry.cursor <= upTo)
              .slice(0, PAGE)
            return [page, Option.map(Arr.last(page), (last) => last.cursor)] as const
          }).pipe(Effect.tap(() => Effect.yieldNow))
        )
      const after = (cursor: number) => Stream.suspend(() => pages(cursor, newest))

      const journal = Journal.of({
        follow: (_stage, follower) =>
          Effect.acquireRelease(
            Effect.sync(() => followers.add(follower)),
            () => Effect.sync(() => followers.delete(follower))
          ),
        applied: Effect.sync(() => newest),
        after,
        catchUp: Effect.void,
        catchUpTo: () => Effect.void,
        publish: () => Effect.void,
        publishAnyway: () => Effect.void,
        bounds: Effect.sync(() => ({ oldest: entries[0]?.cursor ?? newest + 1, newest }))
      })
      const memory = MemoryJournal.of({
        append: (changes, blueprint_id = "bp") =>
          Effect.gen(function* () {
            const batch = branded<ReadonlyArray<Change>>(changes).map((change) => {
              newest += 1
              return { cursor: newest, at: 0, blueprint_id, change }
            })
            for (const entry of batch) entries.push(entry)
            yield* Effect.yieldNow
            for (const follower of followers) yield* follower(batch)
          }).pipe(lock.withPermits(1)),
        summaries: new Map(),
        prune: (oldest) =>
          Effect.sync(() => {
            entries = entries.filter((entry) => entry.cursor >= oldest)
          })
      })
      return Context.make(Journal, journal).pipe(
        Context.add(MemoryJournal, memory),
        Context.add(ServerSummaries, {
          find: (id) => memory.summaries.get(id),
          facts: () => undefined,
          nameOf: () => undefined
        }),
        Context.merge(yield* Layer.build(LiveFeed.layer))
      )
    })
  )
}

/** A public change. */
export const status = (server_id: string, payload: "running" | "offline" = "running"): Change => ({
  topic: "status",
  server_id: ServerId.make(server_id),
  payload
})

/** A change that is not published. */
export const internal = (server_id: string): Change => ({
  topic: "server:created",
  server_id: ServerId.make(server_id),
  payload: null
})

/** `count` public changes of servers `s1`, `s2`, ... */
export const statuses = (count: number, from = 1): ReadonlyArray<Change> =>
  Arr.makeBy(count, (i) => status(`s${from + i}`))
