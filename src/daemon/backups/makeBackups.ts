/**
 * The backups of a node (spec 12): tasks that make and check them, and their archives. Imports `access`, `disk`,
 * `files` and `instances`. Read first: this file, `pack.ts` (how files become parts), `target.ts` (where parts are).
 */
import { Effect, Exit, Fiber, FiberMap, Option, Stream } from "effect"
import type { BackupFigures, BackupTask, BackupTaskState } from "../../contract/domain/Backup.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { type OperationProgress, waitingFor } from "../../contract/domain/Operation.ts"
import type { BackupTaskRequest, CompareRequest, NodeBackups } from "../../contract/nodeApi/NodeBackups.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { taking } from "../access/makeAccess.ts"
import { conflict } from "../access/refused.ts"
import { Arrival } from "../archives/source.ts"
import { IoError, orWarn, removeTree } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import type { Instances } from "../instances/Instances.ts"
import { makeCompare } from "./compare.ts"
import { explained, makeCreate, type OnBytes, whyNoRoom } from "./create.ts"
import { readManifest, tarOf } from "./manifest.ts"
import { readArchive, readParts } from "./parts.ts"
import { cancelRestore, makeRestore } from "./restore.ts"
import { makeStored } from "./stored.ts"
import { makeCollect, makeSweep } from "./sweep.ts"
import type { BackupTarget } from "./target.ts"
import { type BackupFolders, makeTargets, testTarget } from "./targets.ts"

/** Ended tasks whose outcome is in memory; the control plane asks within seconds. */
const MOST_ENDED = 1_000

export interface BackupSettings extends BackupFolders {
  /** Bytes a second that backups read of the files of servers; 0: no limit. */
  readonly rate: number
}

export interface BackupParts {
  readonly instances: Instances["Service"]
  readonly files: InstanceFiles["Service"]
  readonly settings: BackupSettings
}

/** The task while it runs, and then its outcome. */
interface Task {
  readonly backup_id: string
  state: BackupTaskState
}

const running = (done: number, total = 0): BackupTaskState => ({
  state: "running",
  progress: { done, total, unit: "bytes" }
})

const begun = ({ task }: BackupTaskRequest): BackupTaskState =>
  task.kind === "create" && task.quiesce !== undefined ? { ...running(0), quiescing: true } : running(0)

const reasonOf = (error: FileError) => cleanText("detail" in error ? error.detail : "the node was lost")

/** The figures of a creation and why no restore fits, what a restore has left out, or the damage of a verified backup. */
interface Outcome {
  readonly figures?: BackupFigures
  readonly left?: string | undefined
  readonly damage?: string
}

const shown = ({ figures, left }: Outcome) => ({
  ...(figures === undefined ? {} : { figures }),
  ...(left === undefined || left === "" ? {} : { reason: cleanText(left) })
})

const stateAfter = (progress: OperationProgress, outcome: Outcome): BackupTaskState => {
  if (outcome.damage !== undefined)
    return { state: "failed", progress, reason: cleanText(outcome.damage), damaged: true }
  const total = Math.max(progress.done, progress.total)
  return { state: "done", progress: { ...progress, done: total, total }, ...shown(outcome) }
}

interface OnTask {
  readonly onBytes: OnBytes
  /** The task waits for its turn, and later has it. */
  readonly onWait: (why: string) => void
  readonly onTurn: () => void
}

/** Returns the work of each kind of tasks. */
const makeWork = Effect.fnUntraced(function* (
  { files, settings }: Pick<BackupParts, "files" | "settings">,
  manifestOf: ReturnType<typeof makeStored>["manifestOf"]
) {
  /** One task at a time reads or writes the disk of the node. */
  const turn = makeKeyedLock()
  const inTurn = <A, E>({ onTurn, onWait }: OnTask, work: Effect.Effect<A, E>) =>
    Effect.suspend(() => {
      if (turn.isFull("")) onWait("the node makes or verifies another backup")
      return turn.withLock("")(Effect.andThen(Effect.sync(onTurn), work))
    })
  const held = `${settings.own}-held`
  yield* orWarn(removeTree(held))
  const create = makeCreate(files, settings, held)
  const restore = makeRestore(files)
  const stored = (
    target: BackupTarget,
    { archive, backup_id }: Extract<BackupTask, { readonly kind: "restore" }>
  ) =>
    Effect.map(manifestOf(target, backup_id, archive), (manifest) =>
      manifest.kind === "written" ? tarOf(target, manifest) : readParts(target, manifest.parts)
    )

  const verify = Effect.fnUntraced(function* (
    target: BackupTarget,
    { archive, backup_id }: Extract<BackupTask, { readonly kind: "verify" }>,
    onBytes: OnBytes
  ) {
    const found = yield* readManifest(target, backup_id, archive.manifest_sha256)
    if (Option.isNone(found)) {
      // A target without any backup may be a disk that is not mounted.
      const code = (yield* target.list).length === 0 ? "ENOENT" : "DAMAGED"
      return yield* new IoError({ code, message: `the target does not have backup ${backup_id}` })
    }
    const manifest = found.value
    const { base, figures, index, manifest_sha256, parts } = manifest
    const others = [...index, ...(base?.parts ?? []), ...(base?.index ?? [])]
    const total = [...parts, ...others].reduce((sum, { bytes }) => sum + bytes, 0)
    const all = Stream.concat(readArchive(target, manifest, archive.sha256), readParts(target, others))
    let done = 0
    onBytes(0, total)
    yield* Stream.runForEach(all, (chunk) =>
      Effect.sync(() => {
        done += chunk.length
        onBytes(done, total)
      })
    )
    return { figures: { ...figures, manifest_sha256 } }
  })

  return (
    found: Effect.Effect<Instance, FileError>,
    target: BackupTarget,
    { operation_id, task }: BackupTaskRequest,
    on: OnTask,
    arrival: Arrival | undefined
  ): Effect.Effect<Outcome, FileError> => {
    const { onBytes } = on
    switch (task.kind) {
      case "create":
        return Effect.gen(function* () {
          const instance = yield* found
          const figures = yield* inTurn(on, create(target, instance, task, operation_id, onBytes))
          return { figures, left: yield* whyNoRoom(files, instance, figures) }
        })
      case "verify":
        return inTurn(on, verify(target, task, onBytes)).pipe(
          // Another error says nothing about the backup: its target may be away.
          Effect.catchIf(
            ({ code }) => code === "DAMAGED",
            ({ message }) => Effect.succeed({ damage: message })
          ),
          explained
        )
      case "restore": {
        const restored = Effect.gen(function* () {
          const from = arrival ?? (yield* stored(target, task))
          return yield* restore(yield* found, task, operation_id, { from, onBytes })
        })
        return Effect.map(restored, (left) => ({ left }))
      }
    }
  }
})

const keyOf = ({ operation_id, task }: BackupTaskRequest) => `${operation_id}/${task.kind}`

/** Makes the backups of a daemon. Tasks end with the scope, and begin again with the next call. */
export const makeBackups = Effect.fnUntraced(function* ({ files, instances, settings }: BackupParts) {
  const fibers = yield* FiberMap.make<string>()
  const tasks = new Map<string, Task>()
  const isUsed = (backup_id: string) =>
    [...tasks.values()].some((task) => task.state.state === "running" && task.backup_id === backup_id)
  const { archive, contents, index, look, manifestOf, remove } = makeStored(isUsed)
  const compare = makeCompare(files)
  const workOf = yield* makeWork({ files, settings }, manifestOf)
  const { node, of: targets } = yield* makeTargets(settings)
  const collect = yield* makeCollect(node, makeSweep(isUsed))

  const settle = Effect.fnUntraced(function* (
    request: BackupTaskRequest,
    target: BackupTarget,
    task: Task,
    exit: Exit.Exit<Outcome, FileError>,
    arrival: Arrival | undefined
  ) {
    const { progress } = task.state
    if (Exit.isSuccess(exit)) {
      task.state = stateAfter(progress, exit.value)
      if (request.task.kind === "create") yield* collect.made(request.target, target)
      return
    }
    const failure = Option.getOrUndefined(Exit.findErrorOption(exit))
    if (failure === undefined && !Exit.hasInterrupts(exit))
      yield* Effect.logError("a task on a backup has failed", exit.cause)
    const reason =
      failure === undefined ? "internal error of the node; its log has the cause" : reasonOf(failure)
    // A caller that reads the end finds nothing in the target. Parts that stay are removed after a day.
    if (request.task.kind === "create") yield* Effect.ignore(target.remove(request.task.backup_id))
    task.state = { state: "failed", progress, reason }
    // The control plane sends the archive again.
    if (arrival?.isLost === true) tasks.delete(keyOf(request))
  })

  const prune = () => {
    const ended = [...tasks].filter(([, { state }]) => state.state !== "running")
    for (const [id] of ended.slice(0, Math.max(0, ended.length - MOST_ENDED))) tasks.delete(id)
  }

  const begin = Effect.fnUntraced(function* (id: ServerId, request: BackupTaskRequest, arrival?: Arrival) {
    const found = instances.get(id)
    // The server of a backup that is verified may be on another node by now.
    if (request.task.kind !== "verify") yield* found
    // Before the task is noted: a caller that leaves meanwhile would let one run that nothing works on.
    const target = yield* targets(request.target)
    const key = keyOf(request)
    const known = tasks.get(key)
    if (known !== undefined) return known.state
    const task: Task = { backup_id: request.task.backup_id, state: begun(request) }
    prune()
    tasks.set(key, task)
    const onBytes: OnBytes = (done, total) => {
      task.state = running(done, total)
    }
    const onWait = (why: string) => {
      task.state = { ...task.state, progress: waitingFor(why) }
    }
    const onTurn = () => {
      task.state = begun(request)
    }
    const work = Effect.exit(workOf(found, target, request, { onBytes, onTurn, onWait }, arrival)).pipe(
      Effect.tap((exit) => settle(request, target, task, exit, arrival)),
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
      const left = yield* explained(files.placedNote(folder, operation_id))
      return { ...running(0), state: left === undefined ? "waiting" : "done", ...shown({ left }) }
    }),
    receive: <E>(id: ServerId, request: BackupTaskRequest, bytes: Stream.Stream<Uint8Array, E>) =>
      taking(bytes, (given) =>
        Effect.gen(function* () {
          const key = keyOf(request)
          if (tasks.get(key)?.state.state === "running")
            return yield* conflict("the archive", "it arrives already", "Wait for its end.")
          tasks.delete(key)
          const arrival = new Arrival()
          const sent = Effect.andThen(begin(id, request, arrival), arrival.give(given))
          yield* Effect.onInterrupt(sent, () => arrival.left)
        })
      ).pipe(Effect.withSpan("NodeBackups.receive")),
    cancel: Effect.fn("NodeBackups.cancel")(function* (id, request) {
      const { task } = request
      const key = keyOf(request)
      const fiber = yield* FiberMap.get(fibers, key)
      if (Option.isSome(fiber)) yield* Fiber.interrupt(fiber.value)
      tasks.set(key, {
        backup_id: task.backup_id,
        state: { ...running(0), state: "failed", reason: "it was cancelled" }
      })
      const target = yield* targets(request.target)
      if (task.kind === "create") yield* explained(target.remove(task.backup_id))
      if (task.kind !== "restore") return undefined
      const left = yield* cancelRestore(files, yield* instances.get(id), task, request.operation_id)
      return left === undefined ? undefined : shown({ left })
    }),
    remove: Effect.fn("NodeBackups.remove")(function* (id, access) {
      const target = yield* targets(access)
      yield* remove(target, id)
      yield* collect.removed(access, target)
    }),
    archive: Effect.fn("NodeBackups.archive")(function* (backup, range) {
      return yield* archive(yield* targets(backup.target), backup, range)
    }),
    look: Effect.fn("NodeBackups.look")(function* (backup, at) {
      return yield* look(yield* targets(backup.target), backup, at)
    }),
    contents: Effect.fn("NodeBackups.contents")(function* (backup, file) {
      return yield* contents(yield* targets(backup.target), backup, file)
    }),
    definition: Effect.fn("NodeBackups.definition")(function* ({ archive, id, target }) {
      return (yield* manifestOf(yield* targets(target), id, archive)).spec.definition
    }),
    index: Effect.fn("NodeBackups.index")(function* (backup) {
      return yield* index(yield* targets(backup.target), backup)
    }),
    compare: <E>(id: ServerId, request: CompareRequest, bytes: Stream.Stream<Uint8Array, E>) =>
      taking(bytes, (given) =>
        Effect.flatMap(instances.get(id), (instance) => compare(instance, request, given))
      ).pipe(Effect.withSpan("NodeBackups.compare")),
    test: Effect.fn("NodeBackups.test")(function* (access) {
      return yield* testTarget(yield* targets(access))
    })
  }
  return backups
})
