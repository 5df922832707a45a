import { Schema } from "effect"
import { hasQuota, isRestricted, type KeyLimits, keyLimitFields } from "./KeyLimits.ts"

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
  "delete"
])
export type Right = typeof Right.Type

const standard: Readonly<Record<KeyScope, ReadonlyArray<Right>>> = {
  AppAdmin: Right.literals,
  Operator: ["read", "power", "console", "commands", "change"],
  ReadOnly: ["read"],
  Node: [],
  Metrics: []
}

/** The fields of {@link KeyGrant}. */
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

/** Only the scopes `Operator` and `ReadOnly` take rights, and the latter no others than `read`. */
export const rightsFit = Schema.makeFilter<Grant>(
  ({ allow = [], scope }) =>
    scope === "Operator" || allow.every((right) => scope === "ReadOnly" && right === "read"),
  { expected: "rights (allow) only with the scope Operator, or read with the scope ReadOnly" }
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

/** The scope, rights and limits that the creator of a key chose. */
export const KeyGrant = Schema.Struct(keyGrantFields).check(rightsFit, limitsFit)
export type KeyGrant = typeof KeyGrant.Type

/**
 * Returns the rights of a key. Each includes `read`: nothing can be done to what cannot be read. `power` includes those of
 * the single actions.
 */
export const rightsOf = ({ allow, scope }: Pick<KeyGrant, "allow" | "scope">): ReadonlySet<Right> => {
  const given = allow === undefined ? standard[scope] : (["read", ...allow] as const)
  return new Set(given.includes("power") ? [...given, ...PowerRight.literals] : given)
}

const isPowerRight = Schema.is(PowerRight)

/** Returns the rights of a key for its holder: `power` in place of all single actions. @param rights undefined: all */
export const shownRights = (rights: ReadonlySet<Right> = new Set(Right.literals)): ReadonlyArray<Right> =>
  Right.literals.filter((right) => rights.has(right) && !(isPowerRight(right) && rights.has("power")))
