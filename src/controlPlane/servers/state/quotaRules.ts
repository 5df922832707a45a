import { Effect } from "effect"
import { Forbidden } from "../../../contract/domain/errors.ts"
import type { Quota } from "../../../contract/domain/Key.ts"
import {
  committedCpuMillipercent,
  committedMemoryBytes,
  diskLimitBytes,
  type Limits
} from "../../../contract/domain/Limits.ts"
import { reservedLimits, type ServerRecord } from "../../../contract/domain/Server.ts"
import { QuotaRepo, type Usage } from "../../store/repos/QuotaRepo.ts"

/** The refusals of quotas (spec 6.4). */

/** The resources that quotas limit. `scale` is the quota's unit in the unit of use. */
export const resources = [
  {
    max: "max_memory",
    limit: "memory_limit",
    noun: "memory",
    unit: "MiB",
    used: "memory_bytes",
    scale: 1024 * 1024,
    of: committedMemoryBytes
  },
  {
    max: "max_cpu",
    limit: "cpu_limit",
    noun: "CPU",
    unit: "%",
    used: "cpu_millipercent",
    scale: 1000,
    of: committedCpuMillipercent
  },
  {
    max: "max_disk",
    limit: "disk_space",
    noun: "disk",
    unit: "MB",
    used: "disk_bytes",
    scale: 1_000_000,
    of: diskLimitBytes
  }
] as const
type Resource = (typeof resources)[number]

export const overQuota = ({ name }: Quota, reason: string, hint?: string) =>
  name === undefined
    ? new Forbidden({
        detail: `quota of the API key: ${reason}`,
        hint:
          hint ??
          "Delete servers that this key has created, lower their limits, or use a key with a larger quota."
      })
    : new Forbidden({
        detail: `quota ${name} of the API key: ${reason}`,
        hint:
          hint ??
          "Delete servers that keys of this quota have created, lower their limits, or ask an administrator for a larger quota."
      })

const isUnlimited = (limits: Limits, { limit }: Resource): boolean => (limits[limit] ?? 0) === 0

/** Returns why servers may not have `limits` more beside `used`, by the quota's other servers. */
const amountRefusal = (
  quota: Quota,
  resource: Resource,
  used: number,
  limits: Limits
): Forbidden | undefined => {
  const { limit, max, noun, of, scale, unit } = resource
  const most = quota[max]
  if (most === undefined) return undefined
  const amount = `at most ${most} ${unit} of ${noun} (${max})`
  if (isUnlimited(limits, resource)) {
    return overQuota(
      quota,
      `${amount}; the server has no limits.${limit}`,
      `Set limits.${limit} in the overrides.`
    )
  }
  const asked = of(limits)
  return used + asked <= most * scale
    ? undefined
    : overQuota(quota, `${amount}: ${used / scale} ${unit} in use, ${asked / scale} ${unit} requested`)
}

/** Returns why a quota does not allow a server with these limits beside the counted ones, if so. */
const quotaRefusal = (quota: Quota, used: Usage, limits: Limits): Forbidden | undefined => {
  const { max_servers } = quota
  if (max_servers !== undefined && used.servers >= max_servers) {
    return overQuota(quota, `at most ${max_servers} servers (max_servers): ${used.servers} exist`)
  }
  for (const resource of resources) {
    const refusal = amountRefusal(quota, resource, used[resource.used], limits)
    if (refusal !== undefined) return refusal
  }
  return undefined
}

const withServer = (used: Usage, limits: Limits): Usage => ({
  servers: used.servers + 1,
  memory_bytes: used.memory_bytes + committedMemoryBytes(limits),
  disk_bytes: used.disk_bytes + diskLimitBytes(limits),
  cpu_millipercent: used.cpu_millipercent + committedCpuMillipercent(limits)
})

const raises = (before: Limits, after: Limits, resource: Resource): boolean =>
  isUnlimited(after, resource) ? !isUnlimited(before, resource) : resource.of(after) > resource.of(before)

const raisedOf = (quota: Quota, before: Limits, after: Limits): ReadonlyArray<Resource> =>
  resources.filter((resource) => quota[resource.max] !== undefined && raises(before, after, resource))

/** Returns why a key may not raise limits of a server. `used` is absent if the quota does not count the server. */
export const raiseRefusal = (
  quota: Quota,
  used: Usage | undefined,
  before: ServerRecord,
  after: ServerRecord
): Forbidden | undefined => {
  const limits = before.definition.limits
  for (const resource of raisedOf(quota, limits, after.definition.limits)) {
    if (used === undefined) {
      return overQuota(
        quota,
        `it cannot raise the ${resource.noun} limit of ${before.id}, which another key has created`
      )
    }
    const others = used[resource.used] - resource.of(reservedLimits(before))
    const refusal = amountRefusal(quota, resource, others, after.definition.limits)
    if (refusal !== undefined) return refusal
  }
  return undefined
}

export const changes = (quota: Quota, { limit, max }: Resource, before: Limits, after: Limits): boolean =>
  quota[max] !== undefined && (before[limit] ?? 0) !== (after[limit] ?? 0)

export interface QuotaClaim {
  readonly quotas: ReadonlyArray<Quota>
  readonly record: Pick<ServerRecord, "definition">
}

const textOf = ({ key_id, name }: Quota): string => (name === undefined ? `key:${key_id}` : name)

/** Returns the use of quotas by the rows within the creations' write: no replica changes it before the commit. */
export const makeQuotaUsage = Effect.map(QuotaRepo, (repo) =>
  Effect.fnUntraced(function* (creations: ReadonlyArray<QuotaClaim>) {
    const uses = new Map<string, Effect.Success<ReturnType<typeof repo.use>>>()
    for (const quota of creations.flatMap(({ quotas }) => quotas)) {
      if (!uses.has(textOf(quota))) uses.set(textOf(quota), yield* repo.use(quota))
    }
    const usesOf = ({ quotas }: QuotaClaim) => quotas.flatMap((quota) => uses.get(textOf(quota)) ?? [])
    return {
      /** Returns why the quotas refuse a creation after the counted ones, if they do. */
      refusal: (creation: QuotaClaim) => {
        const { limits } = creation.record.definition
        for (const { quota, used } of usesOf(creation)) {
          const refusal = quotaRefusal(quota, used, limits)
          if (refusal !== undefined) return refusal
        }
        return undefined
      },
      count: (creation: QuotaClaim): void => {
        const { limits } = creation.record.definition
        for (const { quota, used } of usesOf(creation))
          uses.set(textOf(quota), { quota, used: withServer(used, limits) })
      }
    }
  })
)
