/** Tasks on the files of servers that outlast a call (spec 11.4). Read first: `taskRecord.ts`. */
import * as fs from "node:fs/promises"
import { Effect, Fiber, FiberMap, Option, type Scope, type Stream } from "effect"
import type { FileTask, FileTaskState } from "../../contract/domain/FileTask.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { Arrival } from "../archives/source.ts"
import { io, makeClosedFolder } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import type { Instance } from "../instances/Instance.ts"
import type { ChangeScene } from "./changes.ts"
import { changeTask, packTask } from "./changeTask.ts"
import { type AccessError, conflict, noSuchPath, toFileError } from "./refused.ts"
import {
  newRecord,
  prune,
  readRecord,
  reasonOf,
  recordPath,
  recordsOf,
  recordText,
  stateOf,
  type TaskRecord,
  type TaskStart,
  type TaskWork
} from "./taskRecord.ts"
import { unpackTask } from "./unpackTask.ts"

/** Tasks of one server that run at a time. */
const MOST_RUNNING = 32

const workOf = (task: FileTask, arrival?: Arrival): TaskWork => {
  switch (task.kind) {
    case "change":
      return changeTask(task.changes)
    case "pack":
      return packTask(task)
    case "unpack":
      return unpackTask(task, arrival)
  }
}

/** Whether the archive of a task is the body of a request. */
const arrives = (task: FileTask) => task.kind === "unpack" && task.path === undefined

/** Runs an access to the files of an instance. */
type Use = (
  access: (scene: ChangeScene) => Effect.Effect<TaskRecord, AccessError, Scope.Scope>
) => Effect.Effect<TaskRecord, FileError>

/** Returns the access of a task, which packs an archive once there is a place, and reports the end of one that arrives. */
const usedBy = (task: FileTask, { accesses }: Instance, use: Use, arrival: Arrival | undefined): Use => {
  if (task.kind === "pack") return (access) => accesses.packing(use(access))
  return arrival === undefined ? use : (access) => Effect.onExit(use(access), arrival.ended)
}

/** Makes the tasks of a daemon. They end with the scope, and the next daemon continues them. */
export const makeTasks = Effect.gen(function* () {
  const fibers = yield* FiberMap.make<string>()
  const running = new Map<string, TaskRecord>()
  const arrivals = new Map<string, Arrival>()
  const locks = makeKeyedLock()
  const keyOf = (instance: Instance, id: string) => `${instance.folder}/${id}`
  const explained = Effect.mapError(toFileError("/"))

  const run = Effect.fnUntraced(function* (
    instance: Instance,
    id: string,
    work: TaskWork,
    start: TaskStart,
    use: Use
  ) {
    const key = keyOf(instance, id)
    const file = yield* Effect.acquireRelease(
      io(`open ${id}`, () => fs.open(recordPath(instance, id), "r+")),
      (handle) => Effect.ignore(io(`close ${id}`, () => handle.close()))
    )
    const note = (record: TaskRecord) => void running.set(key, record)
    const save = (record: TaskRecord) => {
      note(record)
      return Effect.asVoid(io(`write ${id}`, () => file.write(recordText(record), 0)))
    }
    const outcome = yield* use((scene) => work.run(scene, start, { note, save })).pipe(
      Effect.catch((error) =>
        Effect.succeed<TaskRecord>({
          ...(running.get(key) ?? start.record),
          state: "failed",
          reason: reasonOf("detail" in error ? error.detail : "the node was lost")
        })
      )
    )
    yield* writeAtomic(recordPath(instance, id), recordText(outcome))
  }, Effect.scoped)

  const begin = Effect.fnUntraced(function* (instance: Instance, id: string, task: FileTask, use: Use) {
    const key = keyOf(instance, id)
    const now = running.get(key)
    if (now !== undefined) return stateOf(now)
    const before = yield* readRecord(instance, id)
    if (before !== undefined && before.state !== "running") return stateOf(before)
    const others = [...running.keys()].filter((other) => other.startsWith(`${instance.folder}/`))
    if (others.length >= MOST_RUNNING)
      return yield* conflict("/", `${others.length} tasks run on the server`, "Wait until some have ended.")
    yield* makeClosedFolder(recordsOf(instance))
    yield* prune(instance, (other) => running.has(keyOf(instance, other)) || other === id)
    const arrival = arrives(task) ? new Arrival() : undefined
    if (arrival !== undefined) arrivals.set(key, arrival)
    const work = workOf(task, arrival)
    const watched = usedBy(task, instance, use, arrival)
    const record = before ?? newRecord(work)
    if (before === undefined) yield* writeAtomic(recordPath(instance, id), recordText(record))
    running.set(key, record)
    const done = run(instance, id, work, { record, isResumed: before !== undefined }, watched).pipe(
      Effect.catch((error) => Effect.logError(`the record of a task cannot be written: ${error.message}`)),
      Effect.ensuring(
        Effect.sync(() => {
          running.delete(key)
          arrivals.delete(key)
        })
      )
    )
    yield* FiberMap.run(fibers, key, done)
    return stateOf(record)
  })

  return {
    /** Begins a task, or continues it after a restart of the daemon. A task that is known does not begin again. */
    begin: (
      instance: Instance,
      id: string,
      task: FileTask,
      use: Use
    ): Effect.Effect<FileTaskState, FileError> =>
      explained(locks.withLock(keyOf(instance, id))(begin(instance, id, task, use))),
    /** Gives a task its archive, and begins the task if it has not begun. Returns once the archive has arrived. */
    receive: (
      instance: Instance,
      id: string,
      task: FileTask,
      given: { readonly bytes: Stream.Stream<Uint8Array, AccessError>; readonly use: Use }
    ): Effect.Effect<void, FileError> =>
      Effect.gen(function* () {
        const key = keyOf(instance, id)
        yield* locks.withLock(key)(begin(instance, id, task, given.use))
        const arrival = arrivals.get(key)
        if (arrival !== undefined) return yield* arrival.give(given.bytes)
        const { reason = "it has ended" } = (yield* readRecord(instance, id)) ?? {}
        return yield* conflict("/", `the operation takes no archive: ${reason}`, "Send the archive again.")
      }).pipe(explained),
    /** @error FileRefused 404 the node does not know the task */
    progress: (instance: Instance, id: string): Effect.Effect<FileTaskState, FileError> =>
      Effect.gen(function* () {
        const now = running.get(keyOf(instance, id))
        if (now !== undefined) return stateOf(now)
        const record = yield* readRecord(instance, id)
        if (record === undefined) return yield* noSuchPath(`task ${id}`)
        return {
          ...stateOf(record),
          ...(record.state === "running" ? { state: "interrupted" as const } : {})
        }
      }).pipe(explained),
    /** Ends a task; what is half made is undone. A task that cannot be undone any more is done. */
    cancel: (instance: Instance, id: string, task: FileTask, use: Use): Effect.Effect<void, FileError> =>
      locks
        .withLock(keyOf(instance, id))(
          Effect.gen(function* () {
            const fiber = yield* FiberMap.get(fibers, keyOf(instance, id))
            if (Option.isSome(fiber)) yield* Fiber.interrupt(fiber.value)
            const record = yield* readRecord(instance, id)
            if (record?.state !== "running") return
            yield* writeAtomic(recordPath(instance, id), recordText({ ...record, state: "cancelled" }))
            const end = yield* use((scene) =>
              Effect.map(workOf(task).undo(scene, record), (made) => made ?? record)
            ).pipe(
              Effect.catch((error) =>
                Effect.as(
                  Effect.logWarning(
                    `a cancelled task was not undone: ${"detail" in error ? error.detail : ""}`
                  ),
                  record
                )
              )
            )
            if (end.state !== "running") yield* writeAtomic(recordPath(instance, id), recordText(end))
          })
        )
        .pipe(explained)
  }
})

export type Tasks = Effect.Success<typeof makeTasks>
