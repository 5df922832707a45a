/**
 * The client for programs with Effect: every route of the contract as a typed call, and `list`, `follow`, `waitUntil`
 * and `console`. `promise.ts` is the same without Effect.
 */
export { ApplicationApi } from "../api/ApplicationApi.ts"
export { CreationPlan } from "../api/ServersGroup.ts"
export { BlueprintView } from "../domain/Blueprint.ts"
export * from "../domain/errors.ts"
export { NodeId, ServerId } from "../domain/Id.ts"
export { MigrationProgress } from "../domain/Migration.ts"
export { Node, NodeDetail } from "../domain/Node.ts"
export { Overrides } from "../domain/Overrides.ts"
export { Server, ServerStats } from "../domain/Server.ts"
export { ServerEvent, type Topic } from "../domain/ServerEvent.ts"
export { ServerStatus } from "../domain/ServerStatus.ts"
export { DefinitionWarning, SourceView } from "../domain/SourceView.ts"
export type { Console, ConsoleError, TimedLine } from "./console.ts"
export type { Calls } from "./creation.ts"
export type { Change, FollowFrom, FollowOptions, Reset } from "./follow.ts"
export type { ListOptions, Snapshot } from "./list.ts"
export { type ClientOptions, MusterClient } from "./MusterClient.ts"
export { type WaitOptions, type WaitState, WaitTimedOut } from "./waitUntil.ts"
