/** The client for programs with Effect: each route as a call, and calls that take several. See `promise.ts`, too. */
export { ApplicationApi } from "../contract/api/ApplicationApi.ts"
export { CreationPlan } from "../contract/api/ServersGroup.ts"
export { BackupEntry } from "../contract/domain/Backup.ts"
export { BlueprintView, DefinitionWarning, SourceView } from "../contract/domain/Blueprint.ts"
export { MigrationProgress } from "../contract/domain/Drain.ts"
export * from "../contract/domain/errors.ts"
export { FileDifference, FileEntry, FileMatch } from "../contract/domain/Files.ts"
export { NodeId, ServerId } from "../contract/domain/Id.ts"
export { Node, NodeDetail } from "../contract/domain/Node.ts"
export { isOperation, Operation } from "../contract/domain/Operation.ts"
export { Overrides } from "../contract/domain/Overrides.ts"
export { Server, ServerStats } from "../contract/domain/Server.ts"
export { ServerEvent, type Topic } from "../contract/domain/ServerEvent.ts"
export { ServerStatus } from "../contract/domain/ServerStatus.ts"
export type { Calls } from "./calls.ts"
export type { Console, ConsoleError, TimedLine } from "./console.ts"
export type { Change, FollowFrom, FollowOptions, ListOptions, Reset, Snapshot } from "./follow.ts"
export { type ClientOptions, MusterClient } from "./MusterClient.ts"
export type { BegunUpload, ResumableContents, ResumableOptions } from "./resumable.ts"
export type {
  BackupDownloadOptions,
  DownloadOptions,
  FolderOptions,
  TransferError,
  TransferProgress,
  TransferredFile,
  UnpackOptions,
  UploadBody,
  UploadOptions
} from "./transfer.ts"
export type { OperationOptions } from "./waitUntil.ts"
export { type WaitOptions, type WaitState, WaitTimedOut } from "./waitUntil.ts"
