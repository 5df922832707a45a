/** The refusals of keys that are limited to some servers, and of quotas (operators.md, "Keys"): pure rules. */
import type { Principal } from "../../api/Principal.ts"
import { Forbidden } from "../../domain/errors.ts"
import { missingLabels, type Quota, type Restriction } from "../../domain/KeyLimits.ts"
import type { Labels } from "../../domain/Labels.ts"
import { committedMemoryBytes, type Limits } from "../../domain/Limits.ts"
import type { ServerRecord } from "../../domain/Server.ts"

const MIB = 1024 * 1024
/** Ids that an error names. */
const NAMED = 10

interface Kind {
  readonly blueprint_id: string
  readonly labels: Labels
}

/** Returns the reason that a restriction does not admit a server with this blueprint and these labels. */
const outside = (restriction: Restriction, { blueprint_id, labels }: Kind): string | undefined => {
  const { blueprints } = restriction
  if (blueprints !== undefined && !blueprints.has(blueprint_id)) {
    const named = [...blueprints].slice(0, NAMED).join(", ")
    return `it is limited to other blueprints than ${blueprint_id}: ${named}${blueprints.size > NAMED ? ", ..." : ""}`
  }
  const missing = missingLabels(restriction, labels)
  return missing.length === 0
    ? undefined
    : `it is limited to servers with labels that this server would lack: ${missing.join(", ")}`
}

const lacks = (right: "change" | "create", reason: string) =>
  new Forbidden({
    detail: `the API key lacks: ${right}: ${reason}`,
    hint: "Keep the server within the limits of the key: GET /api/keys lists them for keys of the scope AppAdmin."
  })

/** Returns why a caller may not create a server; undefined: it may. */
export const creationRefusal = (caller: Principal | undefined, kind: Kind): Forbidden | undefined => {
  const restriction = caller?.restriction
  if (restriction === undefined) return undefined
  const reason =
    restriction.servers === undefined ? outside(restriction, kind) : "it is limited to servers by their ids"
  return reason === undefined ? undefined : lacks("create", reason)
}

/** Returns why a caller may not give a server that it may read this blueprint and these labels. */
export const changeRefusal = (restriction: Restriction | undefined, kind: Kind): Forbidden | undefined => {
  const reason = restriction === undefined ? undefined : outside(restriction, kind)
  return reason === undefined ? undefined : lacks("change", reason)
}

/** The servers that a key has created and that exist: their number and the bytes that placement counts for them. */
export interface Usage {
  readonly servers: number
  readonly memory_bytes: number
}

/** 403: beyond a quota. */
export const overQuota = (
  reason: string,
  hint = "Delete servers that this key has created, lower their memory limits, or use a key with a larger quota."
) => new Forbidden({ detail: `quota of the API key: ${reason}`, hint })

const isUnlimited = ({ memory_limit = 0 }: Limits): boolean => memory_limit === 0

/** Returns why servers of a key may not have `limits` more. @param used by the other servers of the key */
const memoryRefusal = (quota: Quota, used: Usage, limits: Limits): Forbidden | undefined => {
  const { max_memory } = quota
  if (max_memory === undefined) return undefined
  if (isUnlimited(limits)) {
    return overQuota(
      `at most ${max_memory} MiB of memory (max_memory); the server has no limits.memory_limit`
    )
  }
  const [inUse, asked] = [used.memory_bytes, committedMemoryBytes(limits)].map((bytes) => bytes / MIB)
  return used.memory_bytes + committedMemoryBytes(limits) <= max_memory * MIB
    ? undefined
    : overQuota(
        `at most ${max_memory} MiB of memory (max_memory): ${inUse} MiB in use, ${asked} MiB requested`
      )
}

/** Returns why a key may not create a server with these limits beside those that it has; undefined: it may. */
export const quotaRefusal = (quota: Quota, used: Usage, limits: Limits): Forbidden | undefined => {
  const { max_servers } = quota
  return max_servers !== undefined && used.servers >= max_servers
    ? overQuota(
        `at most ${max_servers} servers (max_servers): ${used.servers} exist`,
        "Delete servers that this key has created, or use a key with a larger quota."
      )
    : memoryRefusal(quota, used, limits)
}

/** Whether a change of limits counts against the memory quota of a key. */
export const raisesMemory = (before: Limits, after: Limits): boolean =>
  (isUnlimited(after) && !isUnlimited(before)) || committedMemoryBytes(after) > committedMemoryBytes(before)

/** Returns why a key may not give a server more memory; undefined: it may. @param used by all servers of the key */
export const raiseRefusal = (
  quota: Quota,
  used: Usage,
  before: ServerRecord,
  after: ServerRecord
): Forbidden | undefined => {
  if (before.created_by !== quota.key_id) {
    return overQuota(`it cannot raise the memory limit of ${before.id}, which another key has created`)
  }
  const own = committedMemoryBytes(before.definition.limits)
  return memoryRefusal(
    quota,
    { servers: used.servers - 1, memory_bytes: used.memory_bytes - own },
    after.definition.limits
  )
}

/** Returns why a key with a memory quota may not roll out definitions to servers whose memory limits change. */
export const rolloutRefusal = (ids: ReadonlyArray<string>): Forbidden => {
  const more = ids.length - NAMED
  const named = `${ids.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${more} more` : ""}`
  return overQuota(`a rollout cannot change memory limits, as of ${named}`)
}
