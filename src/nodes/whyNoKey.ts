import type { NodeDetail } from "../domain/Node.ts"
import type { NodeBinding } from "../store/repos/NodeKeyRepo.ts"

/**
 * Why none of a node's keys is valid, as the one that was valid last says it; undefined: one is, or it has none.
 *
 * @param now milliseconds since the epoch
 */
export const invalidKeyReason = (bindings: ReadonlyArray<NodeBinding>, now: number): NodeDetail["key"] => {
  const ends = bindings.map(({ expires_at, revoked_at }) =>
    revoked_at === null
      ? {
          at: expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at),
          why: "expired" as const
        }
      : { at: Date.parse(revoked_at), why: "revoked" as const }
  )
  const last = ends.toSorted((one, other) => other.at - one.at)[0]
  return last === undefined || last.at > now ? undefined : last.why
}
