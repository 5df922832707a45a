/**
 * The bodies of the API that the dashboard reads. The types are those of the contract; the page comes from the service
 * that answers, so that it reads bodies without a second check.
 */
export type { CreationPlan } from "../../api/ServersGroup.ts"
export type { AuditEntry } from "../../domain/AuditEntry.ts"
export type { BlueprintView as Blueprint } from "../../domain/Blueprint.ts"
export type { CrashRecord } from "../../domain/CrashRecord.ts"
export type { DefinitionChange } from "../../domain/DefinitionChange.ts"
export type { DrainPlan } from "../../domain/Drain.ts"
export type { InstallPhase } from "../../domain/InstallState.ts"
export type { InstallStep } from "../../domain/InstallStep.ts"
export type { Key } from "../../domain/Key.ts"
export type { KeyScope, Right } from "../../domain/KeyScope.ts"
export type { NodeDetail } from "../../domain/Node.ts"
export type { InstallReport } from "../../domain/NodeMessages.ts"
export type { Overrides } from "../../domain/Overrides.ts"
export type { Rollout, RolloutPlan, RolloutState } from "../../domain/Rollout.ts"
export type { Server, ServerStats } from "../../domain/Server.ts"
export type { ServerEvent, Topic } from "../../domain/ServerEvent.ts"
export type { ServerStatus } from "../../domain/ServerStatus.ts"
export type { SettingView } from "../../domain/SettingView.ts"
export type { SystemInfo } from "../../domain/SystemInfo.ts"
export type { Webhook, WebhookDelivery, WebhookFormat, WebhookTopic } from "../../domain/Webhook.ts"
