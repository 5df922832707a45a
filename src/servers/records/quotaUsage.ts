import { Effect } from "effect"
import type { Quota } from "../../domain/Quota.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { QuotaRepo } from "../../store/repos/QuotaRepo.ts"
import { quotaRefusal, withServer } from "./quotaRules.ts"

/** A creation, with the quotas of its key. */
export interface QuotaUse {
  readonly quotas: ReadonlyArray<Quota>
  readonly record: Pick<ServerRecord, "definition">
}

/** A quota by a text: names have no colon. */
const textOf = ({ key_id, name }: Quota): string => (name === undefined ? `key:${key_id}` : name)

/**
 * Returns the use of the quotas of creations by the rows, as part of their write: no other write of any replica changes it
 * before the commit.
 */
export const makeQuotaUsage = Effect.map(QuotaRepo, (repo) =>
  Effect.fnUntraced(function* (creations: ReadonlyArray<QuotaUse>) {
    const uses = new Map<string, Effect.Success<ReturnType<typeof repo.use>>>()
    for (const quota of creations.flatMap(({ quotas }) => quotas)) {
      if (!uses.has(textOf(quota))) uses.set(textOf(quota), yield* repo.use(quota))
    }
    const usesOf = ({ quotas }: QuotaUse) => quotas.flatMap((quota) => uses.get(textOf(quota)) ?? [])
    return {
      /** Returns why the quotas do not allow a creation after those that are counted; undefined: they do. */
      refusal: (creation: QuotaUse) => {
        const { limits } = creation.record.definition
        for (const { quota, used } of usesOf(creation)) {
          const refusal = quotaRefusal(quota, used, limits)
          if (refusal !== undefined) return refusal
        }
        return undefined
      },
      /** Counts a creation. */
      count: (creation: QuotaUse): void => {
        const { limits } = creation.record.definition
        for (const { quota, used } of usesOf(creation))
          uses.set(textOf(quota), { quota, used: withServer(used, limits) })
      }
    }
  })
)
