/** API keys: the servers and folders that a key is limited to, its scope and rights, and how lists show it (spec 6.1, 6.2). */
import { Schema, Struct } from "effect"
import { FilePath } from "./Files.ts"
import { DefinitionId, definitionIdPattern, ServerId } from "./Id.ts"
import { type Labels, PrintableText, SomeLabels } from "./Labels.ts"
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

const MOST_IDS = 1000
const MOST_FOLDERS = 32

const listOf = <S extends Schema.Constraint>(id: S) =>
  Schema.Array(id).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_IDS))

export const keyLimits = {
  servers: listOf(ServerId),
  blueprints: listOf(DefinitionId),
  labels: SomeLabels,
  /** Folders in the instances of these servers; the key reaches their files only. */
  paths: Schema.Array(FilePath).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_FOLDERS)),
  max_servers: quotaLimits.max_servers,
  /** The sum of the memory limits of these servers, in MiB. */
  max_memory: quotaLimits.max_memory,
  quota: QuotaName
} as const

export const keyLimitFields = Struct.map(keyLimits, Schema.optionalKey)

const KeyLimits = Schema.Struct(keyLimitFields)
export type KeyLimits = typeof KeyLimits.Type

export const isRestricted = ({ blueprints, labels, servers }: KeyLimits): boolean =>
  servers !== undefined || blueprints !== undefined || labels !== undefined

export const hasQuota = ({ max_memory, max_servers, quota }: KeyLimits): boolean =>
  max_servers !== undefined || max_memory !== undefined || quota !== undefined

/** The servers that a key may read; every condition must hold. */
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

export const admits = (
  restriction: Restriction | undefined,
  { blueprint_id, id, labels }: RestrictedServer
): boolean =>
  restriction === undefined ||
  ((restriction.servers === undefined || restriction.servers.has(id)) &&
    (restriction.blueprints === undefined || restriction.blueprints.has(blueprint_id)) &&
    missingLabels(restriction, labels).length === 0)

/** The scope of a key (spec 6.1, 6.2). */
export const KeyScope = Schema.Literals(["AppAdmin", "Operator", "ReadOnly", "Node", "Metrics"])
export type KeyScope = typeof KeyScope.Type

/** The rights of single power actions; `pause` also unpauses (spec 6.2). `power` is all of them. */
export const PowerRight = Schema.Literals(["start", "stop", "restart", "kill", "pause"])
export type PowerRight = typeof PowerRight.Type

/** The rights of `Operator` and `ReadOnly` keys. An `AppAdmin` key has all of them, and may do what none of them allows. */
export const Right = Schema.Literals([
  "read",
  "power",
  ...PowerRight.literals,
  "console",
  "commands",
  "change",
  "create",
  "delete",
  "browse",
  "files",
  "backups",
  "restore",
  "schedules"
])
export type Right = typeof Right.Type

const standard: Readonly<Record<KeyScope, ReadonlyArray<Right>>> = {
  AppAdmin: Right.literals,
  Operator: ["read", "power", "console", "commands", "change", "schedules"],
  ReadOnly: ["read"],
  Node: [],
  Metrics: []
}

export const keyGrantFields = {
  scope: KeyScope,
  /** Rights in place of those of the scope. */
  allow: Schema.optionalKey(Schema.Array(Right)),
  ...keyLimitFields
} as const

interface Grant extends KeyLimits {
  readonly scope: KeyScope
  readonly allow?: ReadonlyArray<Right>
}

/** Only the scopes `Operator` and `ReadOnly` take rights, and the latter no others than `read` and `browse`. */
export const rightsFit = Schema.makeFilter<Grant>(
  ({ allow = [], scope }) =>
    scope === "Operator" ||
    allow.every((right) => scope === "ReadOnly" && (right === "read" || right === "browse")),
  { expected: "rights (allow) only with the scope Operator, or read and browse with the scope ReadOnly" }
)

/** Only keys that reach files are limited to folders (spec 10.1), and none of them reach backups, which have all files. */
export const pathsFit = Schema.makeFilter<Grant>(
  ({ allow = [], paths }) =>
    paths === undefined ||
    ((allow.includes("browse") || allow.includes("files")) &&
      !allow.includes("backups") &&
      !allow.includes("restore")),
  { expected: "paths only with browse or files in allow, and without backups and restore" }
)

/** Only the scopes `Operator` and `ReadOnly` are limited to servers, and only the former has quotas. */
export const limitsFit = Schema.makeFilter<Grant>(
  (grant) =>
    grant.scope === "Operator" || (!hasQuota(grant) && (grant.scope === "ReadOnly" || !isRestricted(grant))),
  {
    expected:
      "servers, blueprints and labels only with the scopes Operator and ReadOnly, max_servers, max_memory and quota only with Operator"
  }
)

export const KeyGrant = Schema.Struct(keyGrantFields).check(rightsFit, limitsFit, pathsFit)
export type KeyGrant = typeof KeyGrant.Type

const included: Partial<Readonly<Record<Right, ReadonlyArray<Right>>>> = {
  power: PowerRight.literals,
  files: ["browse"],
  restore: ["backups"]
}

/**
 * Returns the rights of a key. Each right includes `read`, `power` the single actions, `files` includes `browse`, and
 * `restore` includes `backups`.
 */
export const rightsOf = ({ allow, scope }: Pick<KeyGrant, "allow" | "scope">): ReadonlySet<Right> => {
  const given = allow === undefined ? standard[scope] : (["read", ...allow] as const)
  return new Set(given.flatMap((right) => [right, ...(included[right] ?? [])]))
}

const isPowerRight = Schema.is(PowerRight)

/** Returns the rights of a key for its holder: `power` in place of all single actions. @param rights undefined: all */
export const shownRights = (rights: ReadonlySet<Right> = new Set(Right.literals)): ReadonlyArray<Right> =>
  Right.literals.filter((right) => rights.has(right) && !(isPowerRight(right) && rights.has("power")))

/** An API key in lists; times RFC 3339 in UTC. */
export const Key = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  ...keyGrantFields,
  created_at: TimeText,
  expires_at: Schema.NullOr(TimeText),
  revoked_at: Schema.NullOr(TimeText)
}).annotate({ identifier: "Key" })
export type Key = typeof Key.Type

export const KeyName = PrintableText(128)

/** Name of the file in the data folder with the key of the first start. */
export const ADMIN_KEY_FILE = "admin.key"
