/**
 * The client for programs with Effect: every route of the contract as a typed call, and `list`, `follow`, `waitUntil`
 * and `console`. `promise.ts` is the same without Effect.
 */
export { ApplicationApi } from "../contract/api/ApplicationApi.ts"
export { CreationPlan } from "../contract/api/ServersGroup.ts"
export { BlueprintView } from "../contract/domain/Blueprint.ts"
export * from "../contract/domain/errors.ts"
export { NodeId, ServerId } from "../contract/domain/Id.ts"
export { MigrationProgress } from "../contract/domain/Migration.ts"
export { Node, NodeDetail } from "../contract/domain/Node.ts"
export { Overrides } from "../contract/domain/Overrides.ts"
export { Server, ServerStats } from "../contract/domain/Server.ts"
export { ServerEvent, type Topic } from "../contract/domain/ServerEvent.ts"
export { ServerStatus } from "../contract/domain/ServerStatus.ts"
export { DefinitionWarning, SourceView } from "../contract/domain/SourceView.ts"
export type { Console, ConsoleError, TimedLine } from "./console.ts"
export type { Calls } from "./creation.ts"
export type { Change, FollowFrom, FollowOptions, Reset } from "./follow.ts"
export type { ListOptions, Snapshot } from "./list.ts"
export { type ClientOptions, MusterClient } from "./MusterClient.ts"
export { type WaitOptions, type WaitState, WaitTimedOut } from "./waitUntil.ts"
