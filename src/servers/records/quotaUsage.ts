import { Effect } from "effect"
import type { Quota } from "../../domain/KeyLimits.ts"
import { committedMemoryBytes } from "../../domain/Limits.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { quotaRefusal, type Usage } from "./callerLimits.ts"

/** A creation, with the quota of its key if that has one. */
export interface QuotaUse {
  readonly quota: Quota | undefined
  readonly record: Pick<ServerRecord, "definition">
}

/**
 * Returns the use of the quotas of creations by the rows, as part of their write: no other write of any replica changes it
 * before the commit.
 */
export const makeQuotaUsage = Effect.map(ServerRepo, (servers) =>
  Effect.fnUntraced(function* (creations: ReadonlyArray<QuotaUse>) {
    const used = new Map<string, Usage>()
    for (const { key_id } of creations.flatMap(({ quota }) => quota ?? [])) {
      if (!used.has(key_id)) used.set(key_id, yield* servers.createdBy(key_id))
    }
    return {
      /** Returns why the quota does not allow a creation after those that are counted; undefined: it does. */
      refusal: ({ quota, record }: QuotaUse) => {
        const own = quota === undefined ? undefined : used.get(quota.key_id)
        return quota === undefined || own === undefined
          ? undefined
          : quotaRefusal(quota, own, record.definition.limits)
      },
      /** Counts a creation. */
      count: ({ quota, record }: QuotaUse): void => {
        const own = quota === undefined ? undefined : used.get(quota.key_id)
        if (quota === undefined || own === undefined) return
        const memory_bytes = own.memory_bytes + committedMemoryBytes(record.definition.limits)
        used.set(quota.key_id, { servers: own.servers + 1, memory_bytes })
      }
    }
  })
)
