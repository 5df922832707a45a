import type { Schema } from "effect"

const pattern = /\{\{([^{}]*)\}\}/g

/** The placeholders of blueprints.md, "Software". Variables and the number of ports are known at creation only. */
const known =
  /^(?:server\.build\.default\.(?:ip|port)|server\.build\.ports\.\d+|server\.build\.memory|server\.id|server\.version|env\.\w+|[A-Z_][A-Z0-9_]*)$/

/** Returns the unknown placeholders in the strings of `values`. */
export const unknownPlaceholders = (values: ReadonlyArray<Schema.Json>): ReadonlyArray<string> => {
  const unknown = new Set<string>()
  const walk = (value: Schema.Json): void => {
    if (typeof value === "string") {
      for (const [written, name = ""] of value.matchAll(pattern))
        if (!known.test(name.trim())) unknown.add(written)
    } else if (value !== null && typeof value === "object") {
      for (const child of Object.values(value)) walk(child)
    }
  }
  for (const value of values) walk(value)
  return [...unknown]
}
