/** The refusals of keys that are limited to some servers (spec 6.2): pure rules. */
import type { Principal } from "../../api/Principal.ts"
import { Forbidden } from "../../domain/errors.ts"
import { missingLabels, type Restriction } from "../../domain/KeyLimits.ts"
import type { Labels } from "../../domain/Labels.ts"

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
