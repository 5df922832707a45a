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
import type { Daemon, DaemonError } from "../api/Daemon.ts"
import type { Unavailable } from "../domain/errors.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { Duties } from "../store/Duties.ts"
import { Journal } from "../store/Journal.ts"
import { ServerRepo } from "../store/ServerRepo.ts"
import { Store } from "../store/Store.ts"
import { createsNeed, type Need, needOf } from "./need.ts"
import { untilTheDatabaseIsBack } from "./retries.ts"
import { ServerIndex } from "./ServerIndex.ts"
import { ServerLifecycle } from "./ServerLifecycle.ts"
import { ServerLocks } from "./ServerLocks.ts"

export interface ProvisionerOptions {
  /** Calls to one node at a time. */
  readonly callsPerNode: number
  /** Delay before the first repetition of a call; it doubles up to `retryCap`. */
  readonly retryFrom: Duration.Input
  readonly retryCap: Duration.Input
}

/** A start that a node fails to carry out is given up after this many calls. */
const START_ATTEMPTS = 5
/**
 * Between two looks for removals that others have begun and not ended: what is there at two of them, longer than a call
 * to a node lasts, was cut off.
 */
const REMOVALS = "15 seconds"
/** Seconds that a stop may take; a start has none. */
const NO_WAIT = 0

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
        const daemons = yield* DaemonClient
        const duties = yield* Duties
        const index = yield* ServerIndex
        const journal = yield* Journal
        const lifecycle = yield* ServerLifecycle
        const locks = yield* ServerLocks
        const registry = yield* NodeRegistry
        const servers = yield* ServerRepo
        const store = yield* Store

        /** By server that is being worked on: opened when it is to be looked at again. */
        const working = new Map<string, Latch.Latch>()
        const suspects = new Set<string>()
        /** Removals that whoever has begun them does not end. */
        const removals = new Set<string>()
        const permits = new Map<string, Semaphore.Semaphore>()
        /** Undefined while another replica does it. */
        let begin: ((work: Effect.Effect<void>) => void) | undefined

        const call = <A, E>(node_id: string, use: (daemon: Daemon) => Effect.Effect<A, E>) =>
          Effect.flatMap(daemons.of(node_id), use)

        /** Waits for its turn at the node before it takes the server's lock: a removal waits for one call at most. */
        const inTurn = Effect.fnUntraced(function* <A, E>(id: string, effect: Effect.Effect<A, E>) {
          const node_id = Option.getOrUndefined(yield* index.find(id))?.node_id ?? ""
          const permit = permits.get(node_id) ?? Semaphore.makeUnsafe(options.callsPerNode)
          permits.set(node_id, permit)
          return yield* permit.withPermit(locks.withLock(id)(effect))
        })

        const install = Effect.fnUntraced(function* (record: ServerRecord) {
          const { id, node_id, definition, allocations } = record
          const sequence = (yield* lifecycle.sequences(node_id, [id])).get(id)
          if (sequence === undefined) return
          const move = yield* index.moveOf(id)
          const arrival = move?.phase === "arriving" ? { arrival: move.arrival } : {}
          const view = yield* call(node_id, (daemon) =>
            daemon.create({ id, definition, allocations, last_sequence: sequence, ...arrival })
          )
          yield* lifecycle.observe(node_id, view, sequence)
        })

        const verify = Effect.fnUntraced(function* (record: ServerRecord) {
          const status = yield* Effect.result(call(record.node_id, (daemon) => daemon.status(record.id)))
          if (status._tag === "Success") return yield* install(record)
          if (status.failure._tag !== "DaemonRefused" || status.failure.status !== 404) {
            return yield* Effect.fail(status.failure)
          }
          yield* lifecycle.missing(record.node_id, record.id)
        })

        const start = Effect.fnUntraced(function* (record: ServerRecord) {
          // It may have been stopped by another replica.
          const [now] = yield* store.read(servers.find([record.id]))
          if (now?.start_pending !== true || now.node_id !== record.node_id) return
          yield* call(record.node_id, (daemon) => daemon.power(record.id, "start", NO_WAIT))
        })

        const remove = Effect.fnUntraced(function* (record: ServerRecord) {
          yield* call(record.node_id, (daemon) => daemon.remove(record.id))
          yield* lifecycle.remove(record.id, record.node_id)
          removals.delete(record.id)
        })

        /** What to do about a refusal; true: try again. */
        const refused = Effect.fnUntraced(function* (
          record: ServerRecord,
          need: Need | "remove",
          attempt: number,
          error: Extract<DaemonError, { readonly _tag: "DaemonRefused" }>
        ): Effect.fn.Return<boolean, Unavailable> {
          // Somebody has begun to remove it: it is gone soon, or was not to be removed after all.
          const isBeingRemoved = need === "install" && error.status === 409
          yield* Effect.logWithLevel(isBeingRemoved ? "Debug" : "Warn")(
            `node ${record.node_id} refuses to ${need} ${record.id}: ${error.detail}`
          )
          if (need === "install" && error.status === 422) {
            yield* lifecycle.refuseInstall(record.id, error.detail)
            return false
          }
          if (need === "start" && error.status === 404) suspects.add(record.id)
          else if (need === "start" && (error.status !== 500 || attempt >= START_ATTEMPTS)) {
            yield* lifecycle.forgetStart(record.id)
            return false
          }
          return true
        })

        const needFor = (record: ServerRecord): Need | "remove" =>
          removals.has(record.id) ? "remove" : needOf(record, suspects.has(record.id))

        /** One look at a server; true: try again. */
        const step = Effect.fnUntraced(function* (id: string, attempt: number) {
          const record = Option.getOrUndefined(yield* index.find(id))
          if (record === undefined) {
            suspects.delete(id)
            removals.delete(id)
            return false
          }
          // One whose node is away is woken when the node is back.
          if (!registry.isConnected(record.node_id)) return false
          const need = needFor(record)
          if (need === "nothing") return false
          const works = { install, start, verify, remove }
          return yield* works[need](record).pipe(
            Effect.tap(() => (suspects.delete(id) ? lifecycle.cleared(id) : Effect.void)),
            Effect.as(false),
            Effect.catchTag("DaemonRefused", (error) => refused(record, need, attempt, error))
          )
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
              yield* Effect.raceFirst(Effect.sleep(yield* delay(attempt)), latch.await)
              attempt += 1
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

        const wakeNeedy = (records: ReadonlyArray<ServerRecord>) => {
          for (const record of records) if (needFor(record) !== "nothing") wake(record.id)
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
              else if (createsNeed(change)) wake(change.server_id)
            }
          })
        )

        const wakeRemovals = (ids: ReadonlyArray<string>) => {
          for (const id of ids) {
            removals.add(id)
            wake(id)
          }
        }

        /** Takes up the removals of replicas that have ended within them. */
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
          const [removing, suspected] = yield* Effect.orDie(Effect.retry(read, untilTheDatabaseIsBack))
          wakeRemovals(removing)
          for (const id of suspected) wakeSuspect(id)
          wakeNeedy(yield* index.records)
          // Alone, whoever has begun a removal ends it, or the process has ended.
          return yield* duties.alone ? Effect.never : lookForRemovals
        })
        yield* duties.whileMine(hold)

        return Provisioner.of({
          wakeNode: (node_id) => Effect.map(index.onNode(node_id), wakeNeedy),
          active: Effect.sync(() => working.size)
        })
      })
    )
}
