/** Changes the overrides of an existing server (spec 3.12). */
import { Effect, Option, Result, Schema } from "effect"
import { differences } from "../../contract/domain/compareDefinitions.ts"
import { Conflict, InvalidRequest, type NotFound } from "../../contract/domain/errors.ts"
import { assign, at, isObject, own, type Path, type Value } from "../../contract/domain/json.ts"
import { configBound, Overrides, type OverridesChange } from "../../contract/domain/Overrides.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { ServerDefinition } from "../../contract/domain/ServerDefinition.ts"
import { instancePath } from "./parse/paths.ts"

/** The depth of `configs[file].find[key]`, whose value is replaced as a whole. */
const DEEPEST = 4
const MAX_OVERRIDES = 1024 * 1024

const isOverrides = Schema.is(Schema.toType(Overrides))
const isDefinition = Schema.is(ServerDefinition)

/** `schedules` is replaced as a whole, because null is a value in it. */
const REPLACED = "schedules"

/** Merges a change; null removes, and so does an object without fields. */
const merge = (before: Value, change: Value, depth = 0): Value => {
  if (change === null) return undefined
  if (!isObject(change) || depth === DEEPEST) return change
  const merged = assign(
    isObject(before) ? before : {},
    Object.keys(change).map((name) => {
      const inside = depth === 0 && name === REPLACED ? DEEPEST : depth + 1
      return [[name], merge(own(before, name), own(change, name), inside)] as const
    })
  )
  return isObject(merged) && Object.keys(merged).length > 0 ? merged : undefined
}

/** Returns the paths of the values that a change sets or removes. */
const touched = (before: Value, change: Value, path: Path = []): ReadonlyArray<Path> => {
  if (change === null && before === undefined) return []
  const fields = change === null ? before : change
  if (!isObject(fields) || path.length === DEEPEST || path[0] === REPLACED) return [path]
  return Object.keys(fields).flatMap((name) =>
    touched(own(before, name), change === null ? null : own(change, name), [...path, name])
  )
}

/** Returns the places in the definition that an override determines. */
const placesOf = (path: Path): ReadonlyArray<Path> => {
  const [top, name = "", ...rest] = path
  switch (top) {
    case "save":
      return [["save"], ["restart"]]
    case "stop_timeout":
      return [["process", "stop_timeout"]]
    case "version":
      return [["version"], ["image"]]
    case "software":
      return ["software", "version", "image", "process", "install_script", "runtimes"].map((one) => [one])
    case "configs": {
      const file = Result.getOrElse(instancePath(name), () => name)
      return rest.length === 0
        ? []
        : [
            ["configs", file, ...rest],
            ["configs", file, "parser"]
          ]
    }
    default:
      return [path]
  }
}

/** Removes the config files to which nothing is left. */
const withoutRests = (definition: Value): Value => {
  const configs = own(definition, "configs")
  if (!isObject(configs)) return definition
  const rests = Object.keys(configs).filter((file) => at(configs, [file, "parser"]) === undefined)
  return assign(
    definition,
    rests.map((file) => [["configs", file], undefined] as const)
  )
}

/** Adds an empty `find` to the config files of overrides or a definition that have a parser alone. */
const withFinds = (value: Value): Value => {
  const configs = own(value, "configs")
  if (!isObject(configs)) return value
  const lacking = Object.keys(configs).filter((file) => at(configs, [file, "find"]) === undefined)
  return assign(
    value,
    lacking.map((file) => [["configs", file, "find"], {}] as const)
  )
}

type Resolve = (
  blueprint_id: string,
  overrides: Overrides
) => Effect.Effect<ServerDefinition, NotFound | InvalidRequest>

/**
 * Returns the overrides and the definition of a server after a change, and in `named` the overrides that it sets or
 * removes. A removed override leaves the value of today's blueprint and software; the rest of the definition stays.
 * @error Conflict the blueprint of the server does not exist any more
 * @error InvalidRequest as at creation
 */
export const changeOverrides = Effect.fnUntraced(function* (
  { blueprint_id, definition, overrides: before = {} }: ServerRecord,
  change: OverridesChange,
  resolve: Resolve
) {
  const overrides = withFinds(merge(before, change)) ?? {}
  if (!isOverrides(overrides)) return yield* Effect.die(new Error("merged overrides have another form"))
  if (JSON.stringify(overrides).length > MAX_OVERRIDES) {
    return yield* new InvalidRequest({
      detail: `body field overrides: the server would have more than ${MAX_OVERRIDES} characters of overrides`
    })
  }
  const bound = configBound(overrides.configs ?? {})
  if (bound !== undefined) {
    return yield* new InvalidRequest({
      detail: `body field overrides.configs: expected ${bound}, with those that the server has`
    })
  }
  const today = yield* Effect.catchTag(
    resolve(blueprint_id, overrides),
    "NotFound",
    ({ detail }) =>
      new Conflict({
        detail: `${detail}: the overrides of the server cannot be changed`,
        hint: "Restore the blueprint and reload, or name another: POST /api/servers/:server/upgrade with blueprint_id."
      })
  )
  // The overrides of the server may not fit today's files.
  const todayBefore = Option.getOrElse(yield* Effect.option(resolve(blueprint_id, before)), () => today)
  const named = touched(before, change)
  const paths = [...named.flatMap(placesOf), ...differences(todayBefore, today).map(({ path }) => path)]
  const assigned = assign(
    definition,
    paths.map((path) => [path, at(today, path)] as const)
  )
  const changed = withFinds(withoutRests(assigned))
  if (!isDefinition(changed)) return yield* Effect.die(new Error("a changed definition has another form"))
  return { definition: changed, overrides, named }
})
