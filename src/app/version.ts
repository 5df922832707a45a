import { existsSync, readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { Schema } from "effect"

const Package = Schema.fromJsonString(Schema.Struct({ version: Schema.String }))

/** The version of the package, for `GET /api/system` and `muster --version`. */
export const version: string = Schema.decodeSync(Package)(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
).version

/** Whether a path below `src` goes into the bundle; the client is built into a folder of its own. */
const isSource = (path: string): boolean => !/^client(?:\/dist(?:\/.*)?)?$/.test(path)

/** Whether the bundle is missing or older than the sources below `root`. A package without sources is never stale. */
export const isStale = (root: string): boolean => {
  const sources = join(root, "src")
  if (!existsSync(sources)) return false
  const made = statSync(join(root, "dist/main.js"), { throwIfNoEntry: false })?.mtimeMs ?? 0
  return readdirSync(sources, { recursive: true, encoding: "utf8" }).some(
    (path) => isSource(path) && statSync(join(sources, path)).mtimeMs > made
  )
}
