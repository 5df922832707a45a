/** JSON values by path. Pure. */
import type { Schema } from "effect"

/** A JSON value; undefined: there is none. */
export type Value = Schema.Json | undefined

/** The names that lead to a value. */
export type Path = ReadonlyArray<string>

export const isObject = (value: Value): value is Schema.JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Returns a field of an object, never an inherited one. */
export const own = (value: Value, name: string): Value =>
  isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined

/** Returns an object with another value at a path; undefined removes the field. */
export const assign = (value: Value, [name, ...rest]: Path, to: Value): Value => {
  if (name === undefined) return to
  const { [name]: before, ...others } = isObject(value) ? value : {}
  const inner = assign(before, rest, to)
  return inner === undefined ? others : { ...others, [name]: inner }
}

/** Returns the value at a path. */
export const at = (value: Value, path: Path): Value => path.reduce(own, value)
