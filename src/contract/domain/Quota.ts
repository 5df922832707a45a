/** Quotas: limits of the servers that keys have created and that exist (spec 6.4). */
import { Schema, Struct } from "effect"
import { definitionIdPattern } from "./Id.ts"
import { TimeText } from "./nowText.ts"

export const QuotaName = Schema.String.check(
  Schema.isPattern(definitionIdPattern, { expected: "a name such as team-a ([a-z0-9][a-z0-9_-]{0,62})" })
)

const amount = (maximum: number) => Schema.Int.check(Schema.isBetween({ minimum: 1, maximum }))

export const quotaLimits = {
  max_servers: amount(1_000_000).annotate({ description: "Servers that exist." }),
  max_memory: amount(2 ** 40).annotate({ description: "The sum of their memory limits, in MiB." }),
  max_cpu: amount(1e9).annotate({ description: "The sum of their CPU limits, in percent of one thread." }),
  max_disk: amount(2 ** 40).annotate({ description: "The sum of their disk limits, in MB." })
} as const

export const quotaLimitFields = Struct.map(quotaLimits, Schema.optionalKey)
export const QuotaLimits = Schema.Struct(quotaLimitFields)
export type QuotaLimits = typeof QuotaLimits.Type

export const limitsSomething = Schema.makeFilter<QuotaLimits>(
  ({ max_cpu, max_disk, max_memory, max_servers }) =>
    [max_servers, max_memory, max_cpu, max_disk].some((limit) => limit !== undefined),
  { expected: "at least one of max_servers, max_memory, max_cpu and max_disk" }
)

/** The use of a quota in the units of its limits; a server without a limit of its own counts 512 MiB, and nothing else. */
export const QuotaUse = Schema.Struct({
  servers: Schema.Int,
  memory: Schema.Finite,
  cpu: Schema.Finite,
  disk: Schema.Finite
}).annotate({ identifier: "QuotaUse" })
export type QuotaUse = typeof QuotaUse.Type

export const NamedQuota = Schema.Struct({
  name: QuotaName,
  ...quotaLimitFields,
  created_at: TimeText,
  used: QuotaUse
}).annotate({ identifier: "Quota" })
export type NamedQuota = typeof NamedQuota.Type

/** A quota of a caller: of all keys of a name, or of one key. */
export type Quota = QuotaLimits &
  (
    | { readonly name: string; readonly key_id?: undefined }
    | { readonly key_id: string; readonly name?: undefined }
  )
