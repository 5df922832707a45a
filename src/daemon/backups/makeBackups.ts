/**
 * The backups of a node (spec 12): tasks that make and check them, and their archives. Imports `access`, `disk`,
 * `files` and `instances`. Read first: this file, `pack.ts` (how files become parts), `target.ts` (where parts are).
 */
import { Clock, Effect, Exit, Fiber, FiberMap, Option, Schedule, Semaphore, Stream } from "effect"
import type { BackupFigures, BackupTask, BackupTaskState } from "../../contract/domain/Backup.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { BackupTaskRequest, NodeBackups } from "../../contract/nodeApi/NodeBackups.ts"
import { type FileError, FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { makeSite, taking, whyClosed } from "../access/makeAccess.ts"
import { type AccessError, conflict, toFileError } from "../access/refused.ts"
import { Arrival } from "../archives/source.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import type { Instances } from "../instances/Instances.ts"
import { readManifest, writeManifest } from "./manifest.ts"
import { packServer } from "./pack.ts"
import { readParts } from "./parts.ts"
import { makeRestore } from "./restore.ts"
import type { BackupTarget } from "./target.ts"

/** Ended tasks whose outcome is in memory; the control plane asks within seconds. */
const MOST_ENDED = 1_000
/** Age of the newest part of a backup without a manifest at which its parts are removed, in ms. */
const ABANDONED = 24 * 60 * 60 * 1000

export interface BackupParts {
  readonly instances: Instances["Service"]
  readonly files: InstanceFiles["Service"]
  readonly target: BackupTarget
}

/** Reports bytes: those that are done, and all if they are known. */
type OnBytes = (done: number, total?: number) => void

/** The task while it runs, and then its outcome. */
interface Task {
  readonly backup_id: string
  state: BackupTaskState
  /** Whether the transfer of its archive broke. */
  isLost: boolean
}

const running = (done: number, total = 0): BackupTaskState => ({
  state: "running",
  progress: { done, total, unit: "bytes" }
})

const explained = <A>(use: Effect.Effect<A, AccessError>) => Effect.mapError(use, toFileError("/"))

const reasonOf = (error: FileError) => cleanText("detail" in error ? error.detail : "the node was lost")

/** Reads and removes backups. */
const makeStored = (target: BackupTarget, isUsed: (backup_id: string) => boolean) => {
  const manifestOf = Effect.fnUntraced(function* (id: string) {
    const manifest = yield* explained(readManifest(target, id))
    if (Option.isSome(manifest)) return manifest.value
    return yield* new FileRefused({
      status: 404,
      detail: `the node does not have backup ${id}`,
      hint: "Its folder was moved or removed; delete the backup."
    })
  })

  const abandoned = Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    for (const { at, id } of yield* target.list) {
      if (now - at < ABANDONED || isUsed(id)) continue
      if (Option.isSome(yield* readManifest(target, id))) continue
      yield* target.remove(id)
      yield* Effect.logInfo(`the parts of an unfinished backup were removed: ${id}`)
    }
  }).pipe(Effect.catch(({ message }) => Effect.logWarning(`parts of backups were not removed: ${message}`)))

  return {
    manifestOf,
    /** Removes parts without a manifest; never ends. */
    collect: Effect.repeat(abandoned, Schedule.spaced("1 hour")),
    remove: Effect.fn("NodeBackups.remove")(function* (id: string) {
      if (isUsed(id)) return yield* conflict(`backup ${id}`, "a task works on it", "Wait until it has ended.")
      yield* explained(target.remove(id))
    }),
    archive: Effect.fn("NodeBackups.archive")(function* (id: string) {
      const { parts } = yield* manifestOf(id)
      return readParts(target, parts).pipe(Stream.mapError(toFileError("/")))
    })
  }
}

/** Makes backups of servers. */
const makeCreate = ({ files, target }: Pick<BackupParts, "files" | "target">) =>
  Effect.fnUntraced(function* (
    instance: Instance,
    { backup_id, server }: Extract<BackupTask, { readonly kind: "create" }>,
    operation_id: string,
    onBytes: OnBytes
  ): Effect.fn.Return<BackupFigures, FileError> {
    const before = yield* explained(readManifest(target, backup_id))
    // The service or the daemon was restarted before the end was known.
    if (Option.isSome(before)) return before.value.figures
    yield* explained(target.remove(backup_id))
    const created_at = yield* nowText
    const begun = instance.file.get()
    const pack = Effect.gen(function* () {
      const site = yield* makeSite(files, instance, {})
      return yield* packServer(site, target, backup_id, onBytes)
    })
    const name = `operation ${operation_id} (backup.create)`
    const claim = (by: string | undefined) =>
      Effect.sync(() => {
        instance.accesses.exclusive = by
      })
    const packed = yield* explained(
      Effect.acquireUseRelease(
        claim(name),
        () => instance.accesses.run(() => whyClosed(instance), pack),
        () => claim(undefined)
      )
    )
    const ended = instance.file.get()
    // A start and a stop in between leave reports, which have later sequences.
    const wasStopped = !isUp(begun.status) && !isUp(ended.status) && begun.sequence === ended.sequence
    const { archive, counts, index } = packed
    const figures: BackupFigures = {
      ...counts,
      stored_bytes: archive.bytes,
      sha256: archive.sha256,
      consistency: wasStopped ? "stopped" : "crash"
    }
    const manifest = {
      format: 1 as const,
      id: backup_id,
      server_id: begun.spec.id,
      kind: "full" as const,
      created_at,
      finished_at: yield* nowText,
      figures,
      parts: archive.parts,
      index: index.parts,
      spec: begun.spec,
      server
    }
    yield* explained(writeManifest(target, manifest))
    return figures
  })

/** Returns the work of each kind of tasks. */
const makeWork = Effect.fnUntraced(function* (
  { files, target }: Pick<BackupParts, "files" | "target">,
  manifestOf: ReturnType<typeof makeStored>["manifestOf"]
) {
  /** One task at a time reads or writes the disk of the node. */
  const turn = yield* Semaphore.make(1)
  const create = makeCreate({ files, target })
  const restore = makeRestore(files)
  const stored = (id: string) => Effect.map(manifestOf(id), ({ parts }) => readParts(target, parts))

  const verify = Effect.fnUntraced(function* (backup_id: string, onBytes: OnBytes) {
    const { figures, index, parts } = yield* manifestOf(backup_id)
    const all = [...parts, ...index]
    const total = all.reduce((sum, { bytes }) => sum + bytes, 0)
    let done = 0
    yield* explained(
      Stream.runForEach(readParts(target, all), (chunk) =>
        Effect.sync(() => {
          done += chunk.length
          onBytes(done, total)
        })
      )
    )
    return figures
  })

  return (
    instance: Instance,
    { operation_id, task }: BackupTaskRequest,
    onBytes: OnBytes,
    arrival: Arrival | undefined
  ): Effect.Effect<BackupFigures | undefined, FileError> => {
    switch (task.kind) {
      case "create":
        return turn.withPermit(create(instance, task, operation_id, onBytes))
      case "verify":
        return turn.withPermit(verify(task.backup_id, onBytes))
      case "restore":
        if (arrival !== undefined) return restore(instance, task, operation_id, { from: arrival, onBytes })
        return Effect.flatMap(stored(task.backup_id), (from) =>
          restore(instance, task, operation_id, { from, onBytes })
        )
    }
  }
})

const keyOf = ({ operation_id, task }: BackupTaskRequest) => `${operation_id}/${task.kind}`

/** Makes the backups of a daemon. Tasks end with the scope, and begin again with the next call. */
export const makeBackups = Effect.fnUntraced(function* ({ files, instances, target }: BackupParts) {
  const fibers = yield* FiberMap.make<string>()
  const tasks = new Map<string, Task>()
  const isUsed = (backup_id: string) =>
    [...tasks.values()].some((task) => task.state.state === "running" && task.backup_id === backup_id)
  const { collect, manifestOf, remove, archive } = makeStored(target, isUsed)
  const workOf = yield* makeWork({ files, target }, manifestOf)
  yield* Effect.forkScoped(collect)

  const settle = Effect.fnUntraced(function* (
    request: BackupTaskRequest,
    task: Task,
    exit: Exit.Exit<BackupFigures | undefined, FileError>
  ) {
    const { progress } = task.state
    if (Exit.isSuccess(exit)) {
      const total = Math.max(progress.done, progress.total)
      const figures = exit.value === undefined ? {} : { figures: exit.value }
      task.state = { state: "done", progress: { ...progress, done: total, total }, ...figures }
      return
    }
    const failure = Option.getOrUndefined(Exit.findErrorOption(exit))
    if (failure === undefined && !Exit.hasInterrupts(exit))
      yield* Effect.logError("a task on a backup has failed", exit.cause)
    const reason =
      failure === undefined ? "internal error of the node; its log has the cause" : reasonOf(failure)
    task.state = { state: "failed", progress, reason }
    if (request.task.kind === "create") yield* Effect.ignore(target.remove(request.task.backup_id))
    // The control plane sends the archive again.
    if (task.isLost) tasks.delete(keyOf(request))
  })

  const prune = () => {
    const ended = [...tasks].filter(([, { state }]) => state.state !== "running")
    for (const [id] of ended.slice(0, Math.max(0, ended.length - MOST_ENDED))) tasks.delete(id)
  }

  const begin = Effect.fnUntraced(function* (id: ServerId, request: BackupTaskRequest, arrival?: Arrival) {
    const instance = yield* instances.get(id)
    const key = keyOf(request)
    const known = tasks.get(key)
    if (known !== undefined) return known.state
    const task: Task = { backup_id: request.task.backup_id, state: running(0), isLost: false }
    prune()
    tasks.set(key, task)
    const onBytes: OnBytes = (done, total) => {
      task.state = running(done, total)
    }
    const work = Effect.exit(workOf(instance, request, onBytes, arrival)).pipe(
      Effect.tap((exit) => settle(request, task, exit)),
      Effect.flatMap((exit) => arrival?.ended(exit) ?? Effect.void)
    )
    yield* FiberMap.run(fibers, key, work)
    return task.state
  })

  const backups: NodeBackups = {
    work: Effect.fn("NodeBackups.work")(function* (id, request) {
      const known = tasks.get(keyOf(request))
      if (known !== undefined) return known.state
      const { operation_id, task } = request
      if (task.kind !== "restore" || !task.arrives) return yield* begin(id, request)
      const { folder } = yield* instances.get(id)
      yield* explained(files.unstage(folder))
      const isDone = (yield* explained(files.placedBy(folder))) === operation_id
      return { ...running(0), state: isDone ? "done" : "waiting" }
    }),
    receive: <E>(id: ServerId, request: BackupTaskRequest, bytes: Stream.Stream<Uint8Array, E>) =>
      taking(bytes, (given) =>
        Effect.gen(function* () {
          const key = keyOf(request)
          if (tasks.get(key)?.state.state === "running")
            return yield* conflict("the archive", "it arrives already", "Wait for its end.")
          tasks.delete(key)
          const arrival = new Arrival()
          yield* begin(id, request, arrival)
          const noted = Stream.tapError(given, () =>
            Effect.sync(() => {
              const task = tasks.get(key)
              if (task !== undefined) task.isLost = true
            })
          )
          yield* arrival.give(noted)
        })
      ).pipe(Effect.withSpan("NodeBackups.receive")),
    cancel: Effect.fn("NodeBackups.cancel")(function* (id, request) {
      const { task } = request
      const key = keyOf(request)
      const fiber = yield* FiberMap.get(fibers, key)
      if (Option.isSome(fiber)) yield* Fiber.interrupt(fiber.value)
      tasks.set(key, {
        backup_id: task.backup_id,
        isLost: false,
        state: { ...running(0), state: "failed", reason: "it was cancelled" }
      })
      if (task.kind === "create") yield* explained(target.remove(task.backup_id))
      if (task.kind === "restore") yield* explained(files.unstage((yield* instances.get(id)).folder))
    }),
    remove,
    archive
  }
  return backups
})
