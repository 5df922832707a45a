import { globSync } from "node:fs"
import { dirname } from "node:path"

/** Debian's package `postgresql`, which has `pg_dump` and `pg_restore`; the npm package has neither. */
const [tool] = globSync("/usr/lib/postgresql/*/bin/pg_restore").toSorted().reverse()

export const postgresTools = tool === undefined ? "" : dirname(tool)
/** Tests run if the tools are installed; in CI they are required. */
export const withPostgresTools = tool !== undefined || process.env.CI !== undefined
/** Appended to the titles of tests that require the tools. */
export const postgresToolsNote = tool === undefined ? " (needs pg_dump: apt-get install postgresql)" : ""
