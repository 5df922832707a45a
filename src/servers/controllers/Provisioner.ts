import {
  Context,
  Duration,
  Effect,
  FiberSet,
  Latch,
  Layer,
  Option,
  Random,
  Schedule,
  Semaphore
} from "effect"
import type { ServerRecord } from "../../domain/Server.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/databaseRetrySchedule.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { ServerLocks } from "../records/ServerLocks.ts"
import { needsAction } from "./nextAction.ts"
import { makeProvisionStep } from "./provisionStep.ts"

export interface ProvisionerOptions {
  /** Calls to one node at a time, beside those that tell it of a server. */
  readonly callsPerNode: number
  /** Delay before the first repetition of a call; it doubles up to `retryCap`. */
  readonly retryFrom: Duration.Input
  readonly retryCap: Duration.Input
}

/**
 * Servers that a node is told of at a time. It accepts them soon, and installs them by itself; one in this process would
 * keep everybody else waiting meanwhile.
 */
const INSTALLS = 8
/**
 * Between two looks for removals that others have begun and not ended: what is there at two of them, longer than a call
 * to a node lasts, was cut off.
 */
const REMOVALS = "15 seconds"
/**
 * Background duty: makes nodes have the servers that are placed on them: calls the daemon until it has accepted the installation,
 * starts what is to be started once installed, goes on with removals that were cut off, and asks again where a
 * status is unknown. It starts from the records, so that whoever does the duties goes on from where it stood; all its calls can be repeated.
 */
export class Provisioner extends Context.Service<
  Provisioner,
  {
    /** Looks at the servers of a node that need something; done when the node (again) is there. */
    wakeNode(node_id: string): Effect.Effect<void>
    /** Number of servers that are being worked on. */
    readonly active: Effect.Effect<number>
  }
>()("muster/servers/Provisioner") {
  static readonly layer = (options: ProvisionerOptions) =>
    Layer.effect(
      Provisioner,
      Effect.gen(function* () {
        const leadership = yield* Leadership
        const index = yield* ServerIndex
        const journal = yield* Journal
        const locks = yield* ServerLocks
        const servers = yield* ServerRepo
        const store = yield* Store
        const { actionFor, removals, step, suspects } = yield* makeProvisionStep

        /** By server that is being worked on: opened when it is to be looked at again. */
        const working = new Map<string, Latch.Latch>()
        const turns = new Map<string, Semaphore.Semaphore>()
        /** Undefined while another replica does it. */
        let begin: ((work: Effect.Effect<void>) => void) | undefined

        const turnAt = (record: ServerRecord | undefined) => {
          const installs = record !== undefined && actionFor(record) === "install"
          const key = `${record?.node_id} ${installs}`
          const turn = turns.get(key) ?? Semaphore.makeUnsafe(installs ? INSTALLS : options.callsPerNode)
          turns.set(key, turn)
          return turn
        }

        /** Waits for its turn at the node before it takes the server's lock: a removal waits for one call at most. */
        const inTurn = Effect.fnUntraced(function* <A, E>(id: string, effect: Effect.Effect<A, E>) {
          const turn = turnAt(Option.getOrUndefined(yield* index.find(id)))
          return yield* turn.withPermit(locks.withLock(id)(effect))
        })

        const delay = (attempt: number) =>
          Effect.map(Random.nextBetween(0.8, 1.2), (jitter) =>
            Duration.millis(
              jitter *
                Math.min(
                  Duration.toMillis(options.retryCap),
                  Duration.toMillis(options.retryFrom) * 2 ** Math.min(attempt, 30)
                )
            )
          )

        const work = Effect.fnUntraced(function* (id: string, latch: Latch.Latch) {
          let attempt = 0
          while (true) {
            latch.closeUnsafe()
            const again = yield* inTurn(id, step(id, attempt + 1)).pipe(
              Effect.catch((error) =>
                Effect.as(Effect.logDebug(`${id} is tried again: ${error._tag}`), true)
              ),
              Effect.catchDefect((defect) =>
                Effect.as(Effect.logError(`provisioning ${id} has failed, it is tried again`, defect), true)
              )
            )
            if (again) {
              const pause = Effect.as(Effect.sleep(yield* delay(attempt)), attempt + 1)
              // What is to be done may be something else now: it is tried as often as anything.
              attempt = yield* Effect.raceFirst(pause, Effect.as(latch.await, 0))
            } else if (latch.isOpen()) {
              attempt = 0
            } else {
              // No pause between the look at the latch and this: whoever wakes later starts anew.
              working.delete(id)
              return
            }
          }
        })

        const wake = (id: string) => {
          const latch = working.get(id)
          if (latch !== undefined) {
            latch.openUnsafe()
            return
          }
          if (begin === undefined) return
          const fresh = Latch.makeUnsafe(false)
          working.set(id, fresh)
          begin(Effect.andThen(Effect.yieldNow, work(id, fresh)))
        }

        const wakePending = (records: ReadonlyArray<ServerRecord>) => {
          for (const record of records) if (actionFor(record) !== "nothing") wake(record.id)
        }

        const wakeSuspect = (id: string) => {
          suspects.add(id)
          wake(id)
        }

        yield* journal.follow((entries) =>
          Effect.sync(() => {
            if (begin === undefined) return
            for (const { change } of entries) {
              if (change.topic === "server:suspect") wakeSuspect(change.server_id)
              else if (needsAction(change)) wake(change.server_id)
            }
          })
        )

        const wakeRemovals = (ids: ReadonlyArray<string>) => {
          for (const id of ids) {
            removals.add(id)
            wake(id)
          }
        }

        /** Takes up the removals that were cut off: their replica has ended, or the database was away. */
        const lookForRemovals = Effect.gen(function* () {
          let before: ReadonlyArray<string> = []
          const look = Effect.gen(function* () {
            const now = yield* store.read(servers.removing)
            wakeRemovals(now.filter((id) => before.includes(id) && !removals.has(id)))
            before = now
          })
          yield* Effect.ignore(look).pipe(Effect.repeat(Schedule.spaced(REMOVALS)))
        })

        const hold = Effect.gen(function* () {
          const fibers = yield* FiberSet.make<void>()
          // Captured here: the context of a writer (its transaction, its request) is none of the work's.
          const run = yield* FiberSet.runtime(fibers)<never>()
          yield* Effect.acquireRelease(
            Effect.sync(() => {
              begin = run
            }),
            () =>
              Effect.sync(() => {
                begin = undefined
                working.clear()
                suspects.clear()
                removals.clear()
              })
          )
          const read = Effect.all([store.read(servers.removing), store.read(servers.suspected)])
          const [removing, suspected] = yield* Effect.orDie(Effect.retry(read, databaseRetrySchedule))
          wakeRemovals(removing)
          for (const id of suspected) wakeSuspect(id)
          wakePending(yield* index.records)
          return yield* lookForRemovals
        })
        yield* leadership.whileLeader(hold)

        return Provisioner.of({
          wakeNode: (node_id) => Effect.map(index.onNode(node_id), wakePending),
          active: Effect.sync(() => working.size)
        })
      })
    )
}
