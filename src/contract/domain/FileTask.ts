/** Tasks on the files of a server that outlast a call to its node (spec 11.4). */
import { Schema } from "effect"
import { ArchiveFormat, FileChange, FilePath } from "./Files.ts"
import { serverIdPattern } from "./Id.ts"
import { NodeText } from "./NodeText.ts"
import { OperationProgress } from "./Operation.ts"

/** Most changes of one task. */
export const MOST_CHANGES = 12_000

/** Most paths of one archive. */
export const MOST_PACKED = 1000

/** The id of an operation, which names the record of its task on the node. */
export const OperationId = Schema.String.check(
  Schema.isPattern(serverIdPattern, { expected: "the id of an operation" })
)

/** Files and folders that are packed into the archive `to`, which must not exist unless it is replaced. */
export const PackTask = Schema.Struct({
  kind: Schema.Literal("pack"),
  paths: Schema.Array(FilePath).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_PACKED)),
  to: FilePath,
  format: ArchiveFormat,
  /** Default: `fail`. */
  overwrite: Schema.optionalKey(Schema.Literals(["fail", "replace"]))
})
export type PackTask = typeof PackTask.Type

/** If the path of an entry exists: the archive is refused, the entry is left out, or the entry replaces what is there. */
export const Overwrite = Schema.Literals(["fail", "skip", "replace"])
export type Overwrite = typeof Overwrite.Type

/** An archive that is unpacked into the folder `to`: the file `path` of the server, or else the body of a request. */
export const UnpackTask = Schema.Struct({
  kind: Schema.Literal("unpack"),
  path: Schema.optionalKey(FilePath),
  to: FilePath,
  overwrite: Overwrite,
  /** Default: the format that the first bytes show. */
  format: Schema.optionalKey(ArchiveFormat),
  /** Bytes of the body, if they are known. */
  size: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)))
})
export type UnpackTask = typeof UnpackTask.Type

/** Work on files: many changes made in order, an archive that is packed, or one that is unpacked. */
export const FileTask = Schema.Union([
  Schema.Struct({
    kind: Schema.Literal("change"),
    changes: Schema.Array(FileChange).check(Schema.isMaxLength(MOST_CHANGES))
  }),
  PackTask,
  UnpackTask
])
export type FileTask = typeof FileTask.Type

/** The state of a task on its node. After a restart of the daemon it is `interrupted`, until the next `begin` continues it. */
export const FileTaskState = Schema.Struct({
  state: Schema.Literals(["running", "interrupted", "done", "failed", "cancelled"]),
  progress: OperationProgress,
  /** Why it has failed. */
  reason: Schema.optionalKey(NodeText)
})
export type FileTaskState = typeof FileTaskState.Type
