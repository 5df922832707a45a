/** The field `backup` of blueprints: what backups of their servers have, where they go, and how many stay (spec 12.8). */
import { Schema } from "effect"
import { BackupTargetId } from "./BackupTarget.ts"

/** Numbers of backups that stay. */
export const KeptCount = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 }))

export const KeepRule = Schema.Struct({
  /** The newest ones. */
  last: Schema.optionalKey(KeptCount),
  /** The newest one of each of the latest hours, days, weeks and months, in UTC, that have one. */
  hourly: Schema.optionalKey(KeptCount),
  daily: Schema.optionalKey(KeptCount),
  weekly: Schema.optionalKey(KeptCount),
  monthly: Schema.optionalKey(KeptCount)
})
export type KeepRule = typeof KeepRule.Type

export const BackupRule = Schema.Struct({
  /** Patterns of paths that backups leave out (spec 10.4). */
  exclude: Schema.optionalKey(Schema.Array(Schema.String)),
  keep: Schema.optionalKey(KeepRule),
  target: Schema.optionalKey(BackupTargetId)
}).annotate({ identifier: "BackupRule" })
export type BackupRule = typeof BackupRule.Type
