/**
 * Tasks on the files of servers that outlast a call (spec 11.4). Each has a record in the folder `tasks` beside
 * `server.json`, with the number of changes that are made: a later daemon continues after them.
 */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Fiber, FiberMap, Option, Schema, type Scope } from "effect"
import { type FileTask, FileTaskState } from "../../contract/domain/FileTask.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { type IoError, io, listFolder, makeClosedFolder, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { temporaryName } from "../disk/safePath.ts"
import type { Instance } from "../instances/Instance.ts"
import { applyChange, type ChangeScene, type Staging, undoStaging } from "./changes.ts"
import { type AccessError, conflict, noSuchPath, toFileError } from "./refused.ts"

/** Tasks of one server that run at a time, and records that its folder keeps. */
const MOST_RUNNING = 32
const MOST_KEPT = 64
/** A record fits into one page, which one write replaces as a whole while the system runs. */
const RECORD_BYTES = 4096
/** Longest reason in a record, in UTF-16 code units. */
const LONGEST_REASON = 900
/** Entries of one copy. */
const MOST_COPIED = 200_000

const TaskRecord = Schema.Struct({
  state: FileTaskState.fields.state,
  /** Changes that are made or refused, and all. */
  next: Schema.Int,
  total: Schema.Int,
  refused: Schema.Int,
  reason: Schema.optionalKey(Schema.String),
  /** Names of unfinished copies, and of what they replace. */
  staging: Schema.Struct({ aside: Schema.String, old: Schema.String })
})
type TaskRecord = typeof TaskRecord.Type

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(TaskRecord))

const stateOf = ({ next, reason, state, total }: TaskRecord): FileTaskState => ({
  state,
  progress: { done: next, total, unit: "files" },
  ...(reason === undefined ? {} : { reason })
})

const stagingOf = ({ aside, old }: TaskRecord["staging"]): Staging => ({
  aside: Buffer.from(aside),
  old: Buffer.from(old)
})

const folderOf = ({ folder }: Instance) => join(folder, "tasks")
const pathOf = (instance: Instance, id: string) => join(folderOf(instance), `${id}.json`)
const textOf = (record: TaskRecord) => JSON.stringify(record).padEnd(RECORD_BYTES)

const readRecord = (instance: Instance, id: string) =>
  readText(pathOf(instance, id)).pipe(
    orMissing(""),
    Effect.map((text) => Option.getOrUndefined(decode(text)))
  )

/** Removes records of tasks that have ended, except the newest. */
const prune = Effect.fnUntraced(function* (instance: Instance, isRunning: (id: string) => boolean) {
  const folder = folderOf(instance)
  const names = (yield* listFolder(folder)).filter((name) => !isRunning(name.replace(/\.json$/, "")))
  if (names.length < MOST_KEPT) return
  const aged = yield* Effect.forEach(names, (name) =>
    Effect.map(
      io(`look at ${name}`, () => fs.stat(join(folder, name))),
      ({ mtimeMs }) => ({ name, mtimeMs })
    )
  )
  for (const { name } of aged.toSorted((one, other) => other.mtimeMs - one.mtimeMs).slice(MOST_KEPT - 1))
    yield* io(`remove ${name}`, () => fs.rm(join(folder, name), { force: true }))
})

/** Whether the first change after a restart was refused because the earlier daemon has made it. */
const isMade = (change: FileTask["changes"][number], { status }: { readonly status: number }) =>
  ((change.kind === "delete" || change.kind === "move") && status === 404) ||
  (change.kind === "copy" && change.overwrite !== "replace" && status === 409)

/** Makes the changes after those that a record counts. `isResumed`: the first one may be half made, or made. */
const makeChanges = Effect.fnUntraced(function* (
  scene: ChangeScene,
  { changes }: FileTask,
  { isResumed, record }: { readonly record: TaskRecord; readonly isResumed: boolean },
  save: (record: TaskRecord) => Effect.Effect<void, IoError>
): Effect.fn.Return<TaskRecord, AccessError> {
  const staging = stagingOf(record.staging)
  const first = changes[record.next]
  const wasHalf = isResumed && first !== undefined && (yield* undoStaging(scene, first, staging))
  let now = record
  for (const [index, change] of changes.entries()) {
    if (index < record.next) continue
    const refusal = yield* Effect.match(applyChange({ ...scene, staging, mostCopied: MOST_COPIED }, change), {
      onSuccess: () => undefined,
      onFailure: toFileError(change.path)
    })
    const isDoubtful = isResumed && index === record.next && !wasHalf
    const wasMade = refusal !== undefined && "status" in refusal && isDoubtful && isMade(change, refusal)
    const detail = refusal === undefined || wasMade || !("detail" in refusal) ? undefined : refusal.detail
    now = {
      ...now,
      next: index + 1,
      ...(detail === undefined
        ? {}
        : { refused: now.refused + 1, reason: now.reason ?? cleanText(detail).slice(0, LONGEST_REASON) })
    }
    yield* save(now)
    yield* Effect.yieldNow
  }
  return now
})

const ended = ({ reason, ...record }: TaskRecord): TaskRecord =>
  record.refused === 0
    ? { ...record, state: "done" }
    : {
        ...record,
        state: "failed",
        reason: `${record.refused} of ${record.total} changes were refused; the first: ${reason ?? ""}`
      }

/** Runs an access to the files of an instance. */
type Use = (
  access: (scene: ChangeScene) => Effect.Effect<TaskRecord, AccessError, Scope.Scope>
) => Effect.Effect<TaskRecord, FileError>

/** Makes the tasks of a daemon. They end with the scope, and the next daemon continues them. */
export const makeTasks = Effect.gen(function* () {
  const fibers = yield* FiberMap.make<string>()
  const running = new Map<string, TaskRecord>()
  const locks = makeKeyedLock()
  const keyOf = (instance: Instance, id: string) => `${instance.folder}/${id}`
  const explained = Effect.mapError(toFileError("/"))

  const run = Effect.fnUntraced(function* (
    instance: Instance,
    id: string,
    task: FileTask,
    given: { readonly record: TaskRecord; readonly isResumed: boolean },
    use: Use
  ) {
    const key = keyOf(instance, id)
    const file = yield* Effect.acquireRelease(
      io(`open ${id}`, () => fs.open(pathOf(instance, id), "r+")),
      (handle) => Effect.ignore(io(`close ${id}`, () => handle.close()))
    )
    const save = (record: TaskRecord) => {
      running.set(key, record)
      return Effect.asVoid(io(`write ${id}`, () => file.write(textOf(record), 0)))
    }
    const outcome = yield* use((scene) => makeChanges(scene, task, given, save)).pipe(
      Effect.map(ended),
      Effect.catch((error) =>
        Effect.succeed<TaskRecord>({
          ...(running.get(key) ?? given.record),
          state: "failed",
          reason: cleanText("detail" in error ? error.detail : "the node was lost").slice(0, LONGEST_REASON)
        })
      )
    )
    yield* writeAtomic(pathOf(instance, id), textOf(outcome))
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
    yield* makeClosedFolder(folderOf(instance))
    yield* prune(instance, (other) => running.has(keyOf(instance, other)) || other === id)
    const record: TaskRecord = before ?? {
      state: "running",
      next: 0,
      total: task.changes.length,
      refused: 0,
      staging: { aside: temporaryName(), old: temporaryName() }
    }
    if (before === undefined) yield* writeAtomic(pathOf(instance, id), textOf(record))
    running.set(key, record)
    const work = run(instance, id, task, { record, isResumed: before !== undefined }, use).pipe(
      Effect.catch((error) => Effect.logError(`the record of a task cannot be written: ${error.message}`)),
      Effect.ensuring(Effect.sync(() => running.delete(key)))
    )
    yield* FiberMap.run(fibers, key, work)
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
    /** Ends a task; what is half made is undone. */
    cancel: (instance: Instance, id: string, task: FileTask, use: Use): Effect.Effect<void, FileError> =>
      locks
        .withLock(keyOf(instance, id))(
          Effect.gen(function* () {
            const fiber = yield* FiberMap.get(fibers, keyOf(instance, id))
            if (Option.isSome(fiber)) yield* Fiber.interrupt(fiber.value)
            const record = yield* readRecord(instance, id)
            if (record?.state !== "running") return
            yield* writeAtomic(pathOf(instance, id), textOf({ ...record, state: "cancelled" }))
            const half = task.changes[record.next]
            if (half === undefined) return
            yield* use((scene) =>
              Effect.as(undoStaging(scene, half, stagingOf(record.staging)), record)
            ).pipe(
              Effect.catch((error) =>
                Effect.logWarning(
                  `a cancelled change was not undone: ${"detail" in error ? error.detail : ""}`
                )
              )
            )
          })
        )
        .pipe(explained)
  }
})

export type Tasks = Effect.Success<typeof makeTasks>
