/** Changes of definitions in tables. */
import type { DefinitionChange } from "../../contract/domain/DefinitionChange.ts"
import { jsonOf, type Listing } from "./output.ts"

const textOf = (value: unknown): string =>
  value === undefined || value === null ? "" : typeof value === "string" ? value : jsonOf(value)

/** How the changes of one server are printed. */
export const changes: Listing<DefinitionChange> = {
  id: ({ path }) => path,
  columns: [
    { name: "path", of: ({ path }) => path },
    { name: "from", of: ({ from }) => textOf(from) },
    { name: "to", of: ({ to }) => textOf(to) },
    { name: "needs", of: ({ needs }) => needs }
  ]
}
