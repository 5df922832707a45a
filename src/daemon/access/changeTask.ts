/** The task of many changes, made in order (spec 11.4). */
import { Effect } from "effect"
import type { FileTask } from "../../contract/domain/FileTask.ts"
import { applyChange, undoStaging } from "./changes.ts"
import { toFileError } from "./refused.ts"
import { reasonOf, stagingOf, type TaskRecord, type TaskWork } from "./taskRecord.ts"

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
