/** Tasks on the files of a server that outlast a call to its node (spec 11.4). */
import { Schema } from "effect"
import { FileChange } from "./Files.ts"
import { serverIdPattern } from "./Id.ts"
import { NodeText } from "./NodeText.ts"
import { OperationProgress } from "./Operation.ts"

/** Most changes of one task. */
export const MOST_CHANGES = 12_000

/** The id of an operation, which names the record of its task on the node. */
export const OperationId = Schema.String.check(
  Schema.isPattern(serverIdPattern, { expected: "the id of an operation" })
)

/** Many changes, made in order. */
export const FileTask = Schema.Struct({
  kind: Schema.Literal("change"),
  changes: Schema.Array(FileChange).check(Schema.isMaxLength(MOST_CHANGES))
})
export type FileTask = typeof FileTask.Type

/** The state of a task on its node. After a restart of the daemon it is `interrupted`, until the next `begin` continues it. */
export const FileTaskState = Schema.Struct({
  state: Schema.Literals(["running", "interrupted", "done", "failed", "cancelled"]),
  progress: OperationProgress,
  /** Why it has failed. */
  reason: Schema.optionalKey(NodeText)
})
export type FileTaskState = typeof FileTaskState.Type
