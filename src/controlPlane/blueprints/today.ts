import { Result } from "effect"
import { revisionOf } from "../../contract/domain/definitionChanges.ts"
import type { InvalidRequest } from "../../contract/domain/errors.ts"
import type { Overrides } from "../../contract/domain/Overrides.ts"
import type { ServerDefinition } from "../../contract/domain/ServerDefinition.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import type { BlueprintSet, SoftwareSet } from "./definitions.ts"
import { resolve } from "./resolve.ts"

export interface Today {
  /** Returns the revision to which a blueprint resolves, if it does. */
  revision(blueprint_id: string, overrides: Overrides | undefined): string | undefined
}

/** Resolves each blueprint once for equal overrides. */
export const makeToday = ({ blueprints }: BlueprintSet, softwares: SoftwareSet) => {
  const revisions = new RecentMap<string, string | undefined>()
  const definitions = new RecentMap<string, ServerDefinition>(MAX_DEFINITIONS)
  const find = (blueprint_id: string, overrides: Overrides) => {
    const blueprint = blueprints.get(blueprint_id)
    return blueprint === undefined ? undefined : resolve(blueprint, overrides, softwares)
  }
  return {
    /** Equal overrides share a definition; unset if there is no such blueprint. */
    definition: (
      blueprint_id: string,
      overrides: Overrides
    ): Result.Result<ServerDefinition, InvalidRequest> | undefined => {
      const key = `${blueprint_id} ${JSON.stringify(overrides)}`
      const known = definitions.get(key)
      if (known !== undefined) return Result.succeed(known)
      const resolved = find(blueprint_id, overrides)
      if (resolved !== undefined && Result.isSuccess(resolved) && key.length <= LONGEST_KEY) {
        definitions.set(key, resolved.success)
      }
      return resolved
    },
    revision: (blueprint_id: string, overrides: Overrides = {}) => {
      const key = `${blueprint_id} ${JSON.stringify(overrides)}`
      if (!revisions.has(key)) {
        const resolved = find(blueprint_id, overrides)
        revisions.set(
          key,
          resolved !== undefined && Result.isSuccess(resolved) ? revisionOf(resolved.success) : undefined
        )
      }
      return revisions.get(key)
    }
  }
}

/** Definitions that are shared, and the longest of their keys in characters. */
const MAX_DEFINITIONS = 500
const LONGEST_KEY = 1_000
