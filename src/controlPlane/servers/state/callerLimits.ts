/** The refusals of keys that are limited to some servers, and of the overrides that they may not give (spec 6.2; docs/keys.md). */

import { isDeepStrictEqual } from "node:util"
import { Effect, Option, Result } from "effect"
import { isDeclared } from "../../../contract/domain/environment.ts"
import { Forbidden, InvalidRequest } from "../../../contract/domain/errors.ts"
import { missingLabels, type Quota, type Restriction } from "../../../contract/domain/Key.ts"
import type { Labels } from "../../../contract/domain/Labels.ts"
import type { Limits } from "../../../contract/domain/Limits.ts"
import type { OverridesChange } from "../../../contract/domain/Overrides.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { BlueprintStore } from "../../blueprints/BlueprintStore.ts"
import { instancePath } from "../../blueprints/parse/paths.ts"
import { CurrentPrincipal, type Principal } from "../../http/Principal.ts"
import { overQuota } from "./quotaRules.ts"

const NAMED = 10

interface Kind {
  readonly blueprint_id: string
  readonly labels: Labels
}

/** Returns why a restriction does not admit a server with this blueprint and these labels. */
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

/** Returns why a caller may not create a server, if so. */
export const creationRefusal = (caller: Principal | undefined, kind: Kind): Forbidden | undefined => {
  const restriction = caller?.restriction
  if (restriction === undefined) return undefined
  const reason =
    restriction.servers === undefined ? outside(restriction, kind) : "it is limited to servers by their ids"
  return reason === undefined ? undefined : lacks("create", reason)
}

/** Returns why a caller may not give a server this blueprint and these labels. */
export const changeRefusal = (restriction: Restriction | undefined, kind: Kind): Forbidden | undefined => {
  const reason = restriction === undefined ? undefined : outside(restriction, kind)
  return reason === undefined ? undefined : lacks("change", reason)
}

interface Checked {
  readonly right: "create" | "change"
  readonly blueprint_id: string
  /** The overrides of the request, or the server's own. */
  readonly given: OverridesChange
  readonly next: ServerDefinition
  /** The server whose overrides are given again. Unchanged ones of the same blueprint are permitted. */
  readonly before?: ServerRecord
}

/** The definition of a server that stays with its blueprint. Without one, everything counts as new. */
const keptOf = ({ before, blueprint_id }: Checked): ServerDefinition | undefined =>
  before?.blueprint_id === blueprint_id ? before.definition : undefined

const quoted = (name: string): string => JSON.stringify(name.slice(0, 80))

/** Returns the fields that change which code runs. `own` is the blueprint's definition without them. */
const codeFields = (checked: Checked, own: ServerDefinition | undefined): ReadonlyArray<string> => {
  const { next } = checked
  const { configs, image, software } = checked.given
  const kept = keptOf(checked)
  const files = Object.entries(configs ?? {}).flatMap(([name, config]) => {
    const file = Result.getOrElse(instancePath(name), () => name)
    const isOwn = own !== undefined && Object.hasOwn(own.configs, file)
    const isKept = kept !== undefined && isDeepStrictEqual(kept.configs[file], next.configs[file])
    return config === null || isOwn || isKept ? [] : [`overrides.configs[${quoted(name)}]`]
  })
  return [
    ...(typeof software === "string" && ![own?.software, kept?.software].includes(software)
      ? ["overrides.software"]
      : []),
    ...(typeof image === "string" && ![own?.image, kept?.image].includes(next.image)
      ? ["overrides.image"]
      : []),
    ...files.slice(0, 3)
  ]
}

const swapOf = ({ swap = 0 }: Limits): number => (swap < 0 ? Number.POSITIVE_INFINITY : swap)

/** Returns the fields of a request that allow more memory than the memory limit counts. */
const memoryFields = (checked: Checked, own: Limits): ReadonlyArray<string> => {
  const { limits } = checked.given
  const kept = keptOf(checked)?.limits ?? {}
  const swap = Math.max(swapOf(own), swapOf(kept))
  const mayFill = own.oom_disabled === true || kept.oom_disabled === true
  return [
    ...(typeof limits?.swap === "number" && swapOf({ swap: limits.swap }) > swap ? ["limits.swap"] : []),
    ...(limits?.oom_disabled === true && !mayFill ? ["limits.oom_disabled"] : [])
  ]
}

/**
 * Returns a check of overrides. A key without full rights sets declared variables only. With limited blueprints, it
 * sets the software's version only. A memory quota excludes uncounted memory.
 */
export const makeOverridesCheck = Effect.map(BlueprintStore, ({ declared, resolve }) => {
  const checkVariables = Effect.fnUntraced(function* (checked: Checked) {
    const { blueprint_id, given, next } = checked
    const kept = keptOf(checked)?.env ?? {}
    const names = Object.entries(given.env ?? {}).flatMap(([name, value]) =>
      value === null || (Object.hasOwn(kept, name) && kept[name] === value) ? [] : [name]
    )
    if (names.length === 0) return
    const known = yield* declared(blueprint_id, next.software)
    const refused = names.filter((name) => !isDeclared(known, name))
    if (refused.length === 0) return
    const shown = refused.slice(0, 10).join(", ")
    return yield* new InvalidRequest({
      detail: `overrides.env: refused: neither blueprint ${blueprint_id} nor software ${next.software} declares ${shown}`,
      hint: `Leave the variables out, list them in \`state.env-allow\` of blueprint ${blueprint_id}, or use a key of the scope AppAdmin.`
    })
  })

  const checkLimited = Effect.fnUntraced(function* (
    checked: Checked,
    isLimited: boolean,
    counts: Quota | undefined
  ) {
    const { blueprint_id, next, right } = checked
    const own = Option.getOrUndefined(
      yield* Effect.option(resolve(blueprint_id, { version: next.version })).pipe(
        Effect.filterOrElse(Option.isSome, () => Effect.option(resolve(blueprint_id, {})))
      )
    )
    const code = isLimited ? codeFields(checked, own) : []
    if (code.length > 0) {
      return yield* new Forbidden({
        detail: `the API key lacks: ${right}: it is limited to blueprints, and ${code.join(", ")} would run other code than blueprint ${blueprint_id}`,
        hint: "Leave the field out, or use a key that is not limited to blueprints."
      })
    }
    const memory = counts === undefined ? [] : memoryFields(checked, own?.limits ?? {})
    if (counts !== undefined && memory.length > 0) {
      return yield* overQuota(
        counts,
        `at most ${counts.max_memory} MiB of memory (max_memory), which do not count what ${memory.join(" and ")} would allow beyond blueprint ${blueprint_id}`
      )
    }
  })

  const check = Effect.fnUntraced(function* (checked: Checked, { quotas = [], restriction }: Principal) {
    yield* checkVariables(checked)
    const isLimited = restriction?.blueprints !== undefined
    const counts = quotas.find(({ max_memory }) => max_memory !== undefined)
    if (isLimited || counts !== undefined) yield* checkLimited(checked, isLimited, counts)
  })

  return (checked: Checked) =>
    Effect.flatMap(CurrentPrincipal, (caller) =>
      caller?.rights === undefined || Object.keys(checked.given).length === 0
        ? Effect.void
        : check(checked, caller)
    )
})
