/** The removal of servers: the process ends, and the folder is deleted or kept for operators. */
import { Deferred, Effect, Fiber, type Scope } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import type { IoError } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { makeFolderRemovals } from "./folderRemovals.ts"
import type { Instance } from "./Instance.ts"
import { type Departure, hasFiles, isKept, type makeOrphanedServers } from "./orphanedServers.ts"

/** The time for which a removal is remembered, in ms: far longer than a call can be in flight. */
const MEMORY_MILLIS = 60_000
/** The limit of remembered removals; the oldest are dropped. */
const MAX_REMOVALS = 10_000

interface Removal {
  readonly at: number
  /** The sequence of the server's last report; infinite if there was no server. */
  readonly sequence: number
  readonly arrival: string | undefined
}

/** The recent removals. A creation sent before one has no effect; a later one has a higher sequence or migration. */
export class RecentRemovals {
  readonly #removals = new Map<ServerId, Removal>()

  /** Records a removal, also of a missing server, at `now` in ms of a monotonic clock. */
  add(
    id: ServerId,
    now: number,
    was?: { readonly sequence: number; readonly arrival?: string | undefined }
  ): void {
    // A repeated removal refers to the server of the first one.
    const { arrival, sequence } = was ??
      this.#removals.get(id) ?? { sequence: Number.POSITIVE_INFINITY, arrival: undefined }
    this.#removals.delete(id)
    this.#removals.set(id, { at: now, sequence, arrival })
    for (const [oldest, { at }] of this.#removals) {
      if (this.#removals.size <= MAX_REMOVALS && now - at < MEMORY_MILLIS) break
      this.#removals.delete(oldest)
    }
  }

  /** Whether a creation was sent before the removal of its server. */
  covers(spec: Pick<ServerSpec, "id" | "last_sequence" | "arrival">, now: number): boolean {
    const removal = this.#removals.get(spec.id)
    if (removal === undefined || now - removal.at >= MEMORY_MILLIS) return false
    if (spec.arrival !== undefined) return spec.arrival === removal.arrival
    return (spec.last_sequence ?? 0) <= removal.sequence
  }

  forget(id: ServerId): void {
    this.#removals.delete(id)
  }
}

export interface Entry {
  readonly instance: Instance
  ended: boolean
  /** Set during a removal; completes when the folder is renamed. */
  removed: Deferred.Deferred<void, DaemonRefused> | undefined
}

/** Stops a server within its stop timeout; after a `shutdown`, the next daemon starts it again. */
export const stop = Effect.fnUntraced(function* (instance: Instance, action: "stop" | "shutdown" = "stop") {
  const { file } = instance
  const wait_seconds = stopTimeoutOf(file.get().spec.definition)
  yield* Effect.ignore(instance.power(action, wait_seconds))
  yield* Effect.sync(() => isUp(file.get().status)).pipe(
    Effect.delay("50 millis"),
    Effect.repeat({ while: (up) => up }),
    Effect.timeoutOption((wait_seconds + 15) * 1000)
  )
})

export interface RemovalOptions {
  readonly entries: Map<ServerId, Entry>
  readonly files: InstanceFiles["Service"]
  readonly folderRemovals: Effect.Success<ReturnType<typeof makeFolderRemovals>>
  readonly locks: KeyedLock<ServerId>
  readonly now: () => number
  readonly orphans: ReturnType<typeof makeOrphanedServers>
  readonly parent: Scope.Scope
  readonly refused: (error: IoError) => DaemonRefused
  readonly removals: RecentRemovals
}

export const makeInstanceRemoval = (options: RemovalOptions) => {
  const { entries, files, folderRemovals, locks, now, orphans, parent, refused, removals } = options

  const moveAway = Effect.fnUntraced(function* (id: ServerId, entry: Entry, departure?: Departure) {
    const { file, folder } = entry.instance
    if (departure !== undefined && isKept(file.get(), departure)) {
      // Files that cannot be read are kept as well.
      const found = yield* Effect.orElseSucceed(hasFiles(folder), () => true)
      if (found) {
        yield* orphans.keep(folder, file.get(), departure)
        return yield* files.forget(folder)
      }
    }
    yield* folderRemovals.begin(id, folder)
  })

  const removeEntry = Effect.fnUntraced(function* (id: ServerId, entry: Entry, departure?: Departure) {
    if (departure !== undefined && !entry.ended) {
      // The control plane must not receive further reports.
      yield* entry.instance.stopReports
      yield* Effect.interruptible(stop(entry.instance))
    }
    if (!entry.ended) yield* entry.instance.shutDown
    entry.ended = true
    yield* entry.instance.close
    yield* Effect.mapError(files.close(entry.instance.folder), refused)
    yield* Effect.mapError(moveAway(id, entry, departure), refused)
    const { sequence, spec } = entry.instance.file.get()
    entries.delete(id)
    removals.add(id, now(), { sequence, arrival: spec.arrival })
  })

  return Effect.fn("Instances.remove")(function* (id: ServerId, departure?: Departure) {
    // Under the lock: waits for a creation in progress.
    const find = Effect.sync(() => {
      const found = entries.get(id)
      if (found === undefined) removals.add(id, now())
      return found
    })
    const entry = entries.get(id) ?? (yield* locks.withLock(id)(find))
    if (entry === undefined) return
    if (entry.removed !== undefined) return yield* Deferred.await(entry.removed)
    const removed = yield* Deferred.make<void, DaemonRefused>()
    entry.removed = removed
    const work = removeEntry(id, entry, departure).pipe(
      Effect.onExit((exit) => {
        entry.removed = undefined
        return Deferred.done(removed, exit)
      }),
      Effect.uninterruptible
    )
    // Forked: a stop may take longer than the caller waits, and continues without the caller.
    yield* departure === undefined ? work : Effect.flatMap(Effect.forkIn(work, parent), Fiber.join)
  })
}
