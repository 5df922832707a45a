/** The servers that a key is limited to, and its quotas (spec 6.2). */
import { Schema } from "effect"
import { DefinitionId, ServerId } from "./Id.ts"
import { type Labels, SomeLabels } from "./Labels.ts"
import { QuotaName, quotaLimits } from "./Quota.ts"

/** Most ids of a list. */
const MOST_IDS = 1000

const listOf = <S extends Schema.Constraint>(id: S) =>
  Schema.Array(id).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_IDS))

/** The limits that the creator of a key chose; an absent one limits nothing. */
export const keyLimits = {
  /** The key acts on these servers only. */
  servers: listOf(ServerId),
  /** The key acts on servers of these blueprints only. */
  blueprints: listOf(DefinitionId),
  /** The key acts on servers with all of these labels only. */
  labels: SomeLabels,
  /** Servers that the key has created and that exist. */
  max_servers: quotaLimits.max_servers,
  /** The sum of the memory limits of these servers, in MiB. */
  max_memory: quotaLimits.max_memory,
  /** A quota that the key shares with others. */
  quota: QuotaName
} as const

/** {@link keyLimits} as optional fields. */
export const keyLimitFields = {
  servers: Schema.optionalKey(keyLimits.servers),
  blueprints: Schema.optionalKey(keyLimits.blueprints),
  labels: Schema.optionalKey(keyLimits.labels),
  max_servers: Schema.optionalKey(keyLimits.max_servers),
  max_memory: Schema.optionalKey(keyLimits.max_memory),
  quota: Schema.optionalKey(keyLimits.quota)
} as const

const KeyLimits = Schema.Struct(keyLimitFields)
export type KeyLimits = typeof KeyLimits.Type

export const isRestricted = ({ blueprints, labels, servers }: KeyLimits): boolean =>
  servers !== undefined || blueprints !== undefined || labels !== undefined

export const hasQuota = ({ max_memory, max_servers, quota }: KeyLimits): boolean =>
  max_servers !== undefined || max_memory !== undefined || quota !== undefined

/** The servers that a key may read; each condition must hold, and an absent one always does. */
export interface Restriction {
  readonly servers?: ReadonlySet<ServerId>
  readonly blueprints?: ReadonlySet<string>
  readonly labels?: Labels
}

/** Returns the restriction of a key; undefined: it may read every server. */
export const restrictionOf = (limits: KeyLimits): Restriction | undefined => {
  const { blueprints, labels, servers } = limits
  if (!isRestricted(limits)) return undefined
  return {
    ...(servers === undefined ? {} : { servers: new Set(servers) }),
    ...(blueprints === undefined ? {} : { blueprints: new Set(blueprints) }),
    ...(labels === undefined ? {} : { labels })
  }
}

/** The facts of a server by which a {@link Restriction} admits it. */
export interface RestrictedServer {
  readonly id: ServerId
  readonly blueprint_id: string
  readonly labels?: Labels
}

/** Returns the labels of a restriction that a server lacks, as `k=v`. */
export const missingLabels = (
  { labels: needed = {} }: Restriction,
  labels: Labels = {}
): ReadonlyArray<string> =>
  Object.entries(needed).flatMap(([key, value]) =>
    Object.hasOwn(labels, key) && labels[key] === value ? [] : [`${key}=${value}`]
  )

/** Whether a restriction admits a server; none admits every server. */
export const admits = (
  restriction: Restriction | undefined,
  { blueprint_id, id, labels }: RestrictedServer
): boolean =>
  restriction === undefined ||
  ((restriction.servers === undefined || restriction.servers.has(id)) &&
    (restriction.blueprints === undefined || restriction.blueprints.has(blueprint_id)) &&
    missingLabels(restriction, labels).length === 0)
