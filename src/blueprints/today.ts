import { Result } from "effect"
import { revisionOf } from "../domain/definitionChanges.ts"
import type { Overrides } from "../domain/Overrides.ts"
import type { BlueprintSet, SoftwareSet } from "./definitions.ts"
import { resolve } from "./resolve.ts"

/** The definitions of one set of files; after a reload there is another object. */
export interface Today {
  /** Returns the revision to which a blueprint resolves; undefined: it does not resolve. */
  revision(blueprint_id: string, overrides: Overrides | undefined): string | undefined
}

/** Resolves each blueprint once for equal overrides. */
export const makeToday = ({ blueprints }: BlueprintSet, softwares: SoftwareSet): Today => {
  const revisions = new Map<string, string | undefined>()
  const keys = new WeakMap<Overrides, string>()
  const keyOf = (overrides: Overrides) => {
    const key = keys.get(overrides) ?? JSON.stringify(overrides)
    keys.set(overrides, key)
    return key
  }
  const find = (blueprint_id: string, overrides: Overrides) => {
    const blueprint = blueprints.get(blueprint_id)
    if (blueprint === undefined) return undefined
    const resolved = resolve(blueprint, overrides, softwares)
    return Result.isSuccess(resolved) ? revisionOf(resolved.success) : undefined
  }
  return {
    revision: (blueprint_id, overrides = {}) => {
      const key = `${blueprint_id} ${keyOf(overrides)}`
      if (!revisions.has(key)) {
        // Servers with other overrides replace those of earlier servers.
        if (revisions.size >= MAX_REVISIONS) revisions.clear()
        revisions.set(key, find(blueprint_id, overrides))
      }
      return revisions.get(key)
    }
  }
}

const MAX_REVISIONS = 50_000
