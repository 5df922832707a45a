/** JSON values by path. Pure. */
import type { Schema } from "effect"

export type Value = Schema.Json | undefined

export type Path = ReadonlyArray<string>

export const isObject = (value: Value): value is Schema.JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Returns a field of an object, never an inherited one. */
export const own = (value: Value, name: string): Value =>
  isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined

export type Assignment = readonly [path: Path, to: Value]

/** Returns an object with other values at paths, the last of each path; undefined removes the field. In linear time. */
export const assign = (value: Value, changes: ReadonlyArray<Assignment>): Value => {
  const whole = changes.findLastIndex(([path]) => path.length === 0)
  const start = whole === -1 ? value : changes[whole]?.[1]
  const inside = changes.slice(whole + 1)
  if (inside.length === 0) return start
  const fields = new Map<string, Schema.Json>(isObject(start) ? Object.entries(start) : [])
  for (const [name, some] of Map.groupBy(inside, ([[name = ""]]) => name)) {
    const after = assign(
      fields.get(name),
      some.map(([[, ...rest], to]) => [rest, to] as const)
    )
    fields.delete(name)
    if (after !== undefined) fields.set(name, after)
  }
  return Object.fromEntries(fields)
}

/** Returns a path in a message: `configs["server.properties"].find`. */
export const pathText = (path: Path): string =>
  path
    .map((name, at) =>
      /^[\w-]+$/.test(name) ? `${at === 0 ? "" : "."}${name}` : `[${JSON.stringify(name)}]`
    )
    .join("")

export const at = (value: Value, path: Path): Value => path.reduce(own, value)
