/** The tasks of many changes, made in order, and of files that are packed into an archive (spec 11.4). */
import { Effect, Option, type Scope, Stream } from "effect"
import type { FileTask, PackTask } from "../../contract/domain/FileTask.ts"
import { lstatIn } from "../disk/safePath.ts"
import { archiveOf, bytesOfArchive } from "./archive.ts"
import { applyChange, type ChangeScene, undoStaging } from "./changes.ts"
import { writeContents } from "./contents.ts"
import { type AccessError, toFileError } from "./refused.ts"
import { reasonOf, stagingOf, type TaskRecord, type TaskWork } from "./taskRecord.ts"
import { removeInside } from "./trees.ts"

/**
 * Removes the unfinished archive of an earlier daemon. Returns whether that daemon had finished the archive: all bytes
 * were written, and the file has got its name.
 */
const tidied = Effect.fnUntraced(function* ({ site }: ChangeScene, to: string, record: TaskRecord) {
  const place = yield* site.writable(to)
  const at = yield* site.parent(place)
  const aside = { folder: at.folder, name: stagingOf(record.staging).aside }
  const isLeft = Option.isSome(yield* lstatIn(to, aside.folder, aside.name))
  yield* removeInside(to, aside)
  return !isLeft && record.copied === true && Option.isSome(yield* lstatIn(to, at.folder, at.name))
}, Effect.scoped)

/**
 * Packs files into an archive, whose format the task names. The archive counts against the disk limit of the server, and
 * gets its name once all of it is on disk. After a restart of the daemon, the work begins again.
 */
export const packTask = ({ format, overwrite, paths, to }: PackTask): TaskWork => ({
  begin: { total: 0, unit: "bytes" },
  run: Effect.fnUntraced(
    function* (
      scene,
      { isResumed, record },
      { note, save }
    ): Effect.fn.Return<TaskRecord, AccessError, Scope.Scope> {
      // Without the folder, nothing was written.
      const hadFinished = isResumed && (yield* Effect.orElseSucceed(tidied(scene, to, record), () => false))
      if (hadFinished) return { ...record, state: "done" }
      const total = yield* bytesOfArchive(scene.site, paths)
      let now: TaskRecord = { ...record, next: 0, total, copied: false }
      // A sparse file may be read for hours and make only a few bytes of the archive.
      const count = (bytes: number) => {
        now = { ...now, next: now.next + bytes }
        note(now)
      }
      const whole = Effect.suspend(() => {
        now = { ...now, total: now.next, copied: true }
        return save(now)
      })
      const bytes = yield* archiveOf(scene.site, { paths, format }, count)
      yield* writeContents(
        { ...scene, aside: stagingOf(record.staging).aside },
        { path: to, ...(overwrite === "replace" ? {} : { if_none_match: "*" }) },
        Stream.concat(bytes, Stream.drain(Stream.fromEffect(whole)))
      )
      return { ...now, state: "done" }
    },
    (packed) => Effect.mapError(packed, toFileError(to))
  ),
  undo: (scene, record) =>
    Effect.match(tidied(scene, to, record), {
      onSuccess: (hadFinished) => (hadFinished ? { ...record, state: "done" as const } : undefined),
      onFailure: () => undefined
    })
})

/** Entries of one copy. */
const MOST_COPIED = 200_000

type Changes = Extract<FileTask, { readonly kind: "change" }>["changes"]

/** Whether the first change after a restart was refused because the earlier daemon has made it. */
const isMade = (change: Changes[number], { status }: { readonly status: number }) =>
  ((change.kind === "delete" || change.kind === "move") && status === 404) ||
  (change.kind === "copy" && change.overwrite !== "replace" && status === 409)

const ended = ({ reason, ...record }: TaskRecord): TaskRecord =>
  record.refused === 0
    ? { ...record, state: "done" }
    : {
        ...record,
        state: "failed",
        reason: `${record.refused} of ${record.total} changes were refused; the first: ${reason ?? ""}`
      }

/** Makes the changes after those that the record counts. */
export const changeTask = (changes: Changes): TaskWork => ({
  begin: { total: changes.length },
  run: Effect.fnUntraced(function* (scene, { isResumed, record }, { note, save }) {
    const staging = stagingOf(record.staging)
    const first = changes[record.next]
    let now = record
    const copied = (from: string | undefined) =>
      Effect.suspend(() => {
        now = { ...now, copied: from !== undefined }
        return save(now)
      })
    const half = { forget: copied(undefined), isCopied: record.copied === true }
    const left = isResumed && first !== undefined ? yield* undoStaging(scene, first, staging, half) : "none"
    for (const [index, change] of changes.entries()) {
      if (index < record.next) continue
      const { entries = record.next } = now
      let own = 0
      const onEntry = () => {
        own += 1
        note({ ...now, entries: entries + own })
      }
      const isLeft = isResumed && index === record.next
      const noted = { ...staging, copied }
      const made = applyChange({ ...scene, staging: noted, mostCopied: MOST_COPIED, onEntry }, change).pipe(
        Effect.onInterrupt(() => {
          const from = now.copied === true && change.kind === "move" ? change.from : undefined
          return Effect.ignore(scene.unfinished.left({ ...staging, path: change.path, from }))
        })
      )
      const refusal =
        isLeft && left === "placed"
          ? undefined
          : yield* Effect.match(made, { onSuccess: () => undefined, onFailure: toFileError(change.path) })
      const isDoubtful = isLeft && left === "none"
      const wasMade = refusal !== undefined && "status" in refusal && isDoubtful && isMade(change, refusal)
      const detail = refusal === undefined || wasMade || !("detail" in refusal) ? undefined : refusal.detail
      now = {
        ...now,
        copied: false,
        next: index + 1,
        entries: entries + Math.max(1, own),
        ...(detail === undefined ? {} : { refused: now.refused + 1, reason: now.reason ?? reasonOf(detail) })
      }
      yield* save(now)
      yield* Effect.yieldNow
    }
    return ended(now)
  }),
  undo: (scene, record) => {
    const half = changes[record.next]
    if (half === undefined) return Effect.undefined
    const isCopied = record.copied === true
    const undone = undoStaging(scene, half, stagingOf(record.staging), { forget: Effect.void, isCopied })
    return Effect.as(undone, undefined)
  }
})
