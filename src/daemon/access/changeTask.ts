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
    const wasHalf = isResumed && first !== undefined && (yield* undoStaging(scene, first, staging))
    let now = record
    for (const [index, change] of changes.entries()) {
      if (index < record.next) continue
      const { entries = record.next } = now
      let own = 0
      const onEntry = () => {
        own += 1
        note({ ...now, entries: entries + own })
      }
      const refusal = yield* Effect.match(
        applyChange({ ...scene, staging, mostCopied: MOST_COPIED, onEntry }, change),
        { onSuccess: () => undefined, onFailure: toFileError(change.path) }
      )
      const isDoubtful = isResumed && index === record.next && !wasHalf
      const wasMade = refusal !== undefined && "status" in refusal && isDoubtful && isMade(change, refusal)
      const detail = refusal === undefined || wasMade || !("detail" in refusal) ? undefined : refusal.detail
      now = {
        ...now,
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
    return half === undefined ? Effect.void : undoStaging(scene, half, stagingOf(record.staging))
  }
})
