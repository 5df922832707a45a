/**
 * The record of a task in the folder `tasks` beside `server.json` (spec 11.4). It counts what is made: a later daemon
 * continues after that, or undoes what is half made.
 */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Schema, type Scope } from "effect"
import { FileTaskState } from "../../contract/domain/FileTask.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { OperationProgress } from "../../contract/domain/Operation.ts"
import { type IoError, io, listFolder, orMissing } from "../disk/fsio.ts"
import { recordReader, writeAtomic } from "../disk/replaceFile.ts"
import { temporaryName } from "../disk/safePath.ts"
import type { Instance } from "../instances/Instance.ts"
import type { ChangeScene } from "./changes.ts"
import type { AccessError } from "./refused.ts"
import type { Staging } from "./Unfinished.ts"

/** Records that the folder of a server keeps. */
const MOST_KEPT = 64
/** A record fits into one page, which one write replaces as a whole while the system runs. */
const RECORD_BYTES = 4096
/** Longest reason in a record, in UTF-16 code units. */
const LONGEST_REASON = 900

const TaskRecord = Schema.Struct({
  state: FileTaskState.fields.state,
  /** What is made or refused, and all; in `unit`. */
  next: Schema.Int,
  total: Schema.Int,
  /** Files and folders that were made or removed so far; more than `next` if a change is of a whole tree. */
  entries: Schema.optionalKey(Schema.Int),
  /** Default: `files`. */
  unit: Schema.optionalKey(OperationProgress.fields.unit),
  refused: Schema.Int,
  /** Whether the tree that the next change moves, or the archive of the task, is written and put in place. */
  copied: Schema.optionalKey(Schema.Boolean),
  reason: Schema.optionalKey(Schema.String),
  /** Names of unfinished copies, and of what they replace. */
  staging: Schema.Struct({ aside: Schema.String, old: Schema.String })
})
export type TaskRecord = typeof TaskRecord.Type

/** How a task begins: with a new record, or with the one that an earlier daemon has left. */
export interface TaskStart {
  readonly record: TaskRecord
  /** Whether the next step may be half made, or made. */
  readonly isResumed: boolean
}

export interface TaskWork {
  readonly begin: Pick<TaskRecord, "total" | "unit">
  /** Does the work and returns the record of its end. `save` writes a record; `note` only shows its figures. */
  run(
    scene: ChangeScene,
    start: TaskStart,
    given: {
      readonly save: (record: TaskRecord) => Effect.Effect<void, IoError>
      readonly note: (record: TaskRecord) => void
    }
  ): Effect.Effect<TaskRecord, AccessError, Scope.Scope>
  /** Undoes what is half made. Returns the record of the end if the task cannot be undone any more, and was finished. */
  undo(
    scene: ChangeScene,
    record: TaskRecord
  ): Effect.Effect<TaskRecord | undefined, AccessError, Scope.Scope>
}

const read = recordReader(TaskRecord)

export const newRecord = ({ begin }: TaskWork): TaskRecord => ({
  state: "running",
  next: 0,
  ...begin,
  refused: 0,
  staging: { aside: temporaryName(), old: temporaryName() }
})

export const reasonOf = (detail: string): string => cleanText(detail).slice(0, LONGEST_REASON)

/** Returns the state of a task. The total is unknown while whole trees are changed: nothing counts them before. */
export const stateOf = ({ next, reason, state, ...record }: TaskRecord): FileTaskState => {
  const { entries = next, unit = "files" } = record
  // While a change runs, its first entry is not the sign of a tree.
  const isTree = entries > next + (state === "running" ? 1 : 0)
  const known = record.total === 0 ? 0 : Math.max(record.total, entries)
  const total = !isTree ? known : state === "done" ? entries : 0
  return { state, progress: { done: entries, total, unit }, ...(reason === undefined ? {} : { reason }) }
}

export const stagingOf = ({ aside, old }: TaskRecord["staging"]): Staging => ({
  aside: Buffer.from(aside),
  old: Buffer.from(old)
})

export const recordsOf = ({ folder }: Instance) => join(folder, "tasks")
export const recordPath = (instance: Instance, id: string) => join(recordsOf(instance), `${id}.json`)
export const recordText = (record: TaskRecord) => JSON.stringify(record).padEnd(RECORD_BYTES)

export const readRecord = (instance: Instance, id: string) => read(recordPath(instance, id))

/** Ends the tasks that an earlier daemon has left, whose files are replaced. */
export const endLeft = Effect.fnUntraced(function* (instance: Instance) {
  for (const name of yield* listFolder(recordsOf(instance))) {
    const path = join(recordsOf(instance), name)
    const record = name.endsWith(".json") ? yield* read(path) : undefined
    if (record?.state !== "running") continue
    const reason = "the files of the server were replaced meanwhile"
    yield* writeAtomic(path, recordText({ ...record, state: "failed", reason }))
  }
})

/** Removes records of tasks that have ended, except the newest. Other tasks of the server begin and end meanwhile. */
export const prune = Effect.fnUntraced(function* (instance: Instance, isRunning: (id: string) => boolean) {
  const folder = recordsOf(instance)
  const names = (yield* listFolder(folder)).filter(
    // What else lies there are records that are being written.
    (name) => name.endsWith(".json") && !isRunning(name.replace(/\.json$/, ""))
  )
  if (names.length < MOST_KEPT) return
  const aged = yield* Effect.forEach(names, (name) =>
    io(`look at ${name}`, () => fs.stat(join(folder, name))).pipe(
      Effect.map(({ mtimeMs }) => mtimeMs),
      orMissing(0),
      Effect.map((mtimeMs) => ({ name, mtimeMs }))
    )
  )
  for (const { name } of aged.toSorted((one, other) => other.mtimeMs - one.mtimeMs).slice(MOST_KEPT - 1))
    yield* io(`remove ${name}`, () => fs.rm(join(folder, name), { force: true }))
})
