// The entry point imports this module before Node.js is known to be new enough, so it imports modules of Node.js alone.
import { existsSync, readdirSync, statSync } from "node:fs"
import { join } from "node:path"

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
