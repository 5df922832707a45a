/** Operations: tasks of servers that may last longer than a request (spec 11). */
import { Schema } from "effect"
import { ServerId } from "./Id.ts"
import type { Right } from "./Key.ts"
import { NodeCount, NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"
import type { BulkOutcomes } from "./Selector.ts"

export const OperationState = Schema.Literals(["queued", "running", "done", "failed", "cancelled"])
export type OperationState = typeof OperationState.Type

/** The states of operations that have ended. */
export const endStates = ["done", "failed", "cancelled"] as const
export type EndState = (typeof endStates)[number]

export const hasEnded = (state: OperationState): state is EndState => endStates.some((end) => end === state)

export const OperationKind = Schema.Literals([
  "files.change",
  "files.pack",
  "files.unpack",
  "backup.create",
  "backup.verify",
  "backup.restore",
  "backup.drill"
])
export type OperationKind = typeof OperationKind.Type

type PartRight = Exclude<Right, "power">

/** The rights that a kind needs: to see its operations, and to begin and cancel them (spec 11.3). */
const rights: Readonly<Record<OperationKind, { readonly see: PartRight; readonly begin: PartRight }>> = {
  "files.change": { see: "browse", begin: "files" },
  "files.pack": { see: "browse", begin: "files" },
  "files.unpack": { see: "browse", begin: "files" },
  "backup.create": { see: "backups", begin: "backups" },
  "backup.verify": { see: "backups", begin: "backups" },
  "backup.restore": { see: "backups", begin: "restore" },
  "backup.drill": { see: "backups", begin: "restore" }
}

/** Whether an operation of a kind has its server for itself: no other of these, no change of its files or node (spec 12.4). */
export const isExclusive = (kind: string): boolean => kind.startsWith("backup.")

const isKind = Schema.is(OperationKind)

/** Returns the rights of a kind, unless only a newer version knows it: its operations need an unlimited key. */
export const rightsOfKind = (kind: string) => (isKind(kind) ? rights[kind] : undefined)

/** Figures of an operation; `total` is 0 while it is unknown. */
export const OperationProgress = Schema.Struct({
  done: NodeCount,
  total: NodeCount,
  unit: Schema.Literals(["bytes", "files"]),
  /** Why nothing happens at present. */
  waiting: Schema.optionalKey(NodeText)
}).annotate({ identifier: "OperationProgress" })
export type OperationProgress = typeof OperationProgress.Type

/** An operation as callers see it (spec 11.1). */
export const Operation = Schema.Struct({
  id: Schema.String,
  kind: Schema.String.annotate({
    description: `The task: ${OperationKind.literals.join(", ")}; later versions have more.`
  }),
  server_id: ServerId,
  state: OperationState,
  progress: Schema.optionalKey(OperationProgress),
  /** Why the operation failed or was cancelled, or what a restore that is done has left out. */
  reason: Schema.optionalKey(NodeText),
  created_at: TimeText,
  finished_at: Schema.optionalKey(TimeText)
}).annotate({ identifier: "Operation" })
export type Operation = typeof Operation.Type

/** Whether a route has begun an operation, in place of making changes with an outcome for each path. */
export const isOperation = (made: Operation | BulkOutcomes): made is Operation => "server_id" in made

/** An operation in the database. */
export const OperationRecord = Schema.Struct({
  id: Schema.String,
  kind: Schema.String,
  server_id: ServerId,
  state: OperationState,
  /** The input of the runner of this kind; null once the operation has ended. */
  request: Schema.NullOr(Schema.Json),
  progress: Schema.NullOr(OperationProgress),
  reason: Schema.NullOr(Schema.String),
  /** Why a running operation is to be cancelled, if it is. */
  cancelling: Schema.NullOr(Schema.String),
  /** Id of the key that began it. */
  created_by: Schema.NullOr(Schema.String),
  created_at: TimeText,
  finished_at: Schema.NullOr(TimeText)
})
export type OperationRecord = typeof OperationRecord.Type

/** Returns the figures of an operation that waits. */
export const waitingFor = (waiting: string): OperationProgress => ({
  done: 0,
  total: 0,
  unit: "bytes",
  waiting
})

/** Returns the last figures of an operation that has ended: it waits for nothing. */
const lastOf = ({ waiting: _, ...progress }: OperationProgress): OperationProgress => progress

/** Returns an operation as callers see it. */
export const shownOperation = (record: OperationRecord): Operation => {
  const { created_at, finished_at, id, kind, progress, reason, server_id, state } = record
  return {
    id,
    kind,
    server_id,
    state,
    ...(progress === null ? {} : { progress: hasEnded(state) ? lastOf(progress) : progress }),
    ...(reason === null ? {} : { reason }),
    created_at,
    ...(finished_at === null ? {} : { finished_at })
  }
}

/** A change of an operation in the journal: the operation, and the key that began it. */
export const OperationChange = Schema.Struct({
  operation: Operation,
  created_by: Schema.NullOr(Schema.String)
})
export type OperationChange = typeof OperationChange.Type
