import type { Schema } from "effect"

const pattern = /\{\{([^{}]*)\}\}/g

/** The placeholders of spec 4.6. Variables and the number of ports are known at creation only. */
const known =
  /^(?:server\.build\.default\.(?:ip|port)|server\.build\.ports\.(?:\d+|[a-z][a-z0-9_]{0,31})|server\.build\.memory|server\.id|server\.version|env\.\w+|[A-Z_][A-Z0-9_]*)$/

const variable = /^(?:env\.\w+|[A-Z_][A-Z0-9_]*)$/

const namedPort = /^server\.build\.ports\.([a-z][a-z0-9_]{0,31})$/

/** Returns the placeholders in the strings of `values` that `isWanted` accepts by their names, as written. */
const placeholders = (
  values: ReadonlyArray<Schema.Json>,
  isWanted: (name: string) => boolean
): ReadonlyArray<string> => {
  const found = new Set<string>()
  const walk = (value: Schema.Json): void => {
    if (typeof value === "string") {
      for (const [written, name = ""] of value.matchAll(pattern))
        if (isWanted(name.trim())) found.add(written)
    } else if (value !== null && typeof value === "object") {
      for (const child of Object.values(value)) walk(child)
    }
  }
  for (const value of values) walk(value)
  return [...found]
}

/** Returns the names of the variables that the placeholders in the strings of `values` stand for. */
export const placeholderVariables = (values: ReadonlyArray<Schema.Json>): ReadonlyArray<string> =>
  placeholders(values, (name) => variable.test(name)).map((written) =>
    written
      .slice(2, -2)
      .trim()
      .replace(/^env\./, "")
  )

export const unknownPlaceholders = (values: ReadonlyArray<Schema.Json>): ReadonlyArray<string> =>
  placeholders(values, (name) => !known.test(name))

/** Returns a line for each placeholder in the strings of `values` whose port none of `names` is. */
export const unknownPorts = (
  values: ReadonlyArray<Schema.Json>,
  names: ReadonlyArray<string> = []
): ReadonlyArray<string> =>
  placeholders(values, (name) => {
    const port = namedPort.exec(name)?.[1]
    return port !== undefined && !names.includes(port)
  }).map(
    (written) =>
      `${written} names no port of the server: ${names.length === 0 ? "its ports have no names" : `its ports are ${names.join(", ")}`}`
  )
