import { globSync } from "node:fs"
import { dirname } from "node:path"

/** Debian's package `postgresql`: a server with its `pg_dump` and `pg_restore`, which the registry's has not. */
const [tool] = globSync("/usr/lib/postgresql/*/bin/pg_restore").toSorted().reverse()

/** Folder of its programs. */
export const postgresTools = tool === undefined ? "" : dirname(tool)
/** Tests run where they are; in CI they have to be there. */
export const withPostgresTools = tool !== undefined || process.env.CI !== undefined
/** Goes into the title of what does not run without them. */
export const postgresToolsNote = tool === undefined ? " (needs pg_dump: apt-get install postgresql)" : ""
