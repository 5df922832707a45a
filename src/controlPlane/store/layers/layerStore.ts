import { Layer } from "effect"
import { Journal } from "../journal/Journal.ts"
import type { RetentionOptions } from "../Retention.ts"
import { AuditRepo } from "../repos/AuditRepo.ts"
import { BackupRepo, BackupTargetRepo } from "../repos/BackupRepo.ts"
import { CapacityRepo } from "../repos/CapacityRepo.ts"
import { CrashRepo } from "../repos/CrashRepo.ts"
import { DeletedServerRepo, KeptServerRepo } from "../repos/DeletedServerRepo.ts"
import { IdempotencyRepo } from "../repos/IdempotencyRepo.ts"
import { KeyRepo } from "../repos/KeyRepo.ts"
import { MigrationRepo } from "../repos/MigrationRepo.ts"
import { NodeRepo } from "../repos/NodeRepo.ts"
import { OperationRepo } from "../repos/OperationRepo.ts"
import { QuotaRepo } from "../repos/QuotaRepo.ts"
import { RolloutRepo } from "../repos/RolloutRepo.ts"
import { ScheduleRepo } from "../repos/ScheduleRepo.ts"
import { ServerRepo } from "../repos/ServerRepo.ts"
import { SftpRepo, SshKeyRepo } from "../repos/SftpRepo.ts"
import { TicketRepo } from "../repos/TicketRepo.ts"
import { WebhookRepo } from "../repos/WebhookRepo.ts"
import { SecretRepo } from "../Seal.ts"
import { Store } from "../Store.ts"

export interface StoreOptions {
  readonly retention?: RetentionOptions
  /** Whether a service uses the store; its database file has a reserve for a full disk. Default: false. */
  readonly isService?: boolean
}

/** The repositories and the journal, over a database whose schema is up to date. */
export const layerRepositories = Layer.mergeAll(
  Store.layer,
  SecretRepo.layer,
  ServerRepo.layer,
  CrashRepo.layer,
  DeletedServerRepo.layer,
  KeptServerRepo.layer,
  MigrationRepo.layer,
  CapacityRepo.layer,
  NodeRepo.layer,
  KeyRepo.layer,
  QuotaRepo.layer,
  IdempotencyRepo.layer,
  TicketRepo.layer,
  SftpRepo.layer,
  SshKeyRepo.layer,
  RolloutRepo.layer,
  OperationRepo.layer,
  ScheduleRepo.layer,
  BackupRepo.layer,
  BackupTargetRepo.layer,
  WebhookRepo.layer,
  AuditRepo.layer
).pipe(Layer.provideMerge(Journal.layer))
