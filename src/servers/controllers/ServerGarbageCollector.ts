import { Context, Duration, Effect, FiberMap, Latch, Layer, Random, Semaphore, Stream } from "effect"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { MigrationRepo, type PendingDeletion } from "../../store/repos/MigrationRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { ServerLocks } from "../records/ServerLocks.ts"

export interface GarbageCollectorOptions {
  /** Delay before the first repetition; it doubles up to 5 s, and to 30 s while the node is away. */
  readonly retryFrom: Duration.Input
}

const LONGEST = 5_000
const LONGEST_AWAY = 30_000
/** Calls to one node at a time. */
const CALLS = 16

interface Deletion {
  /** Opened when it is to be looked at again. */
  readonly news: Latch.Latch
}

/**
 * Background duty: makes nodes delete what they have of servers that are gone, that have moved away, or that have not
 * arrived there: until it is done. All that it knows is in the store, so that whoever does the duties goes on with it; it
 * is all that a node is ever told to delete. Such a node is not chosen for the server before that.
 */
export class ServerGarbageCollector extends Context.Service<
  ServerGarbageCollector,
  {
    /** Nodes that still have something of a server to delete; known to whoever does the duties. */
    of(server_id: string): ReadonlyArray<string>
  }
>()("muster/servers/ServerGarbageCollector") {
  static readonly layer = (options: GarbageCollectorOptions) =>
    Layer.effect(
      ServerGarbageCollector,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const leadership = yield* Leadership
        const journal = yield* Journal
        const locks = yield* ServerLocks
        const moves = yield* MigrationRepo
        const registry = yield* NodeRegistry
        const store = yield* Store
        const first = Duration.toMillis(options.retryFrom)
        /** By server, then node. */
        const left = new Map<string, Map<string, Deletion>>()
        const permits = new Map<string, Semaphore.Semaphore>()
        let begin: ((leftover: PendingDeletion, chore: Deletion) => void) | undefined

        const isKnown = (node_id: string) => Effect.isSuccess(registry.get(node_id))

        const inTurn = (node_id: string) => {
          const permit = permits.get(node_id) ?? Semaphore.makeUnsafe(CALLS)
          permits.set(node_id, permit)
          return permit.withPermit
        }

        const drop = ({ node_id, server_id }: PendingDeletion) => {
          const nodes = left.get(server_id)
          nodes?.delete(node_id)
          if (nodes?.size === 0) left.delete(server_id)
        }

        /** One attempt; true: there is nothing more to do, or not before the node is known again. */
        const clear = Effect.fnUntraced(function* (leftover: PendingDeletion, { news }: Deletion) {
          const { node_id, server_id } = leftover
          news.closeUnsafe()
          if (!(yield* isKnown(node_id))) {
            drop(leftover)
            return true
          }
          if (!registry.isConnected(node_id)) return false
          // Nothing comes back to a node that has something to delete; a record that is there all the same counts more.
          const standing = (yield* store.read(moves.standings(node_id, [server_id]))).get(server_id)
          if (standing?.kept !== true) {
            const daemon = yield* daemons.of(node_id)
            yield* daemon.remove(server_id, { moved: typeof standing?.node_id === "string" })
          }
          yield* store.write(moves.cleared(leftover))
          // The node has said meanwhile that it has something of it.
          if (news.isOpen()) return false
          drop(leftover)
          return true
        })

        const work = Effect.fnUntraced(function* (leftover: PendingDeletion, chore: Deletion) {
          const { node_id, server_id } = leftover
          for (let attempt = 0; ; attempt++) {
            const done = yield* clear(leftover, chore).pipe(
              locks.withLock(server_id),
              inTurn(node_id),
              Effect.tapErrorTag("DaemonRefused", (error) =>
                Effect.logWarning(`${server_id} cannot be removed from node ${node_id}: ${error.detail}`)
              ),
              Effect.orElseSucceed(() => false),
              Effect.catchDefect((defect) =>
                Effect.as(
                  Effect.logError(`removing ${server_id} from node ${node_id} has failed`, defect),
                  false
                )
              )
            )
            if (done) return
            const longest = registry.isConnected(node_id) ? LONGEST : LONGEST_AWAY
            const delay = Math.min(longest, first * 2 ** Math.min(attempt, 30))
            yield* Effect.raceFirst(
              Effect.sleep(delay * (yield* Random.nextBetween(0.8, 1.2))),
              chore.news.await
            )
          }
        })

        const add = (leftover: PendingDeletion) => {
          const { node_id, server_id } = leftover
          const nodes = left.get(server_id) ?? new Map<string, Deletion>()
          left.set(server_id, nodes)
          const known = nodes.get(node_id)
          if (known !== undefined) return known.news.openUnsafe()
          const chore = { news: Latch.makeUnsafe(false) }
          nodes.set(node_id, chore)
          begin?.(leftover, chore)
        }

        yield* journal.follow((entries) =>
          Effect.sync(() => {
            if (begin === undefined) return
            for (const { change } of entries) {
              if (change.topic !== "server:left") continue
              add({ server_id: change.server_id, node_id: change.payload })
            }
          })
        )
        /** Takes up what a node has to delete that was not known for a while. */
        const takeUp = Effect.fnUntraced(function* (node_id: string) {
          if (begin === undefined) return
          for (const nodes of left.values()) nodes.get(node_id)?.news.openUnsafe()
          for (const leftover of yield* store.read(moves.leftoversOn(node_id))) {
            if (left.get(leftover.server_id)?.has(node_id) !== true) add(leftover)
          }
        })
        yield* registry.changes.pipe(
          Stream.filter(({ kind }) => kind === "connected"),
          Stream.runForEach(({ node_id }) =>
            Effect.catch(takeUp(node_id), (error) =>
              Effect.logDebug(`what node ${node_id} has to delete waits: ${error.detail}`)
            )
          ),
          Effect.forkScoped({ startImmediately: true })
        )

        const hold = Effect.gen(function* () {
          const fibers = yield* FiberMap.make<string>()
          const run = yield* FiberMap.runtime(fibers)<never>()
          yield* Effect.acquireRelease(
            Effect.sync(() => {
              begin = (leftover, chore) => {
                const key = `${leftover.node_id}/${leftover.server_id}`
                run(key, Effect.andThen(Effect.yieldNow, work(leftover, chore)))
              }
            }),
            () =>
              Effect.sync(() => {
                begin = undefined
                left.clear()
              })
          )
          for (const leftover of yield* Effect.orDie(
            Effect.retry(store.read(moves.leftovers), databaseRetrySchedule)
          )) {
            const known = left.get(leftover.server_id)?.has(leftover.node_id) === true
            if (!known) add(leftover)
          }
          return yield* Effect.never
        })
        yield* leadership.whileLeader(hold)

        return ServerGarbageCollector.of({ of: (server_id) => [...(left.get(server_id)?.keys() ?? [])] })
      })
    )
}
