/**
 * The bodies of the API that the dashboard reads. The types are those of the contract; the page comes from the service
 * that answers, so that it reads bodies without a second check.
 */
export type { CreationPlan } from "../../contract/api/ServersGroup.ts"
export type { AuditEntry } from "../../contract/domain/AuditEntry.ts"
export type { BlueprintView as Blueprint } from "../../contract/domain/Blueprint.ts"
export type { CrashRecord } from "../../contract/domain/CrashRecord.ts"
export type { DefinitionChange } from "../../contract/domain/DefinitionChange.ts"
export type { DrainPlan } from "../../contract/domain/Drain.ts"
export type { InstallPhase, InstallStep } from "../../contract/domain/InstallState.ts"
export type { Key, KeyScope, Right } from "../../contract/domain/Key.ts"
export type { NodeDetail, SystemInfo } from "../../contract/domain/Node.ts"
export type { InstallReport, PowerAction as Power } from "../../contract/domain/NodeMessages.ts"
export type { Overrides } from "../../contract/domain/Overrides.ts"
export type { NamedQuota, QuotaLimits, QuotaUse } from "../../contract/domain/Quota.ts"
export type { Rollout, RolloutPlan, RolloutState } from "../../contract/domain/Rollout.ts"
export type { Selector } from "../../contract/domain/Selector.ts"
export type { Server, ServerStats } from "../../contract/domain/Server.ts"
export type { ServerEvent, Topic } from "../../contract/domain/ServerEvent.ts"
export type { ServerStatus } from "../../contract/domain/ServerStatus.ts"
export type { SettingView } from "../../contract/domain/SettingView.ts"
export type { Webhook, WebhookDelivery, WebhookFormat, WebhookTopic } from "../../contract/domain/Webhook.ts"
