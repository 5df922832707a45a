import { execFileSync } from "node:child_process"
import { resolve } from "node:path"
import { isStale } from "../../src/app/bundle.ts"

const root = resolve(import.meta.dirname, "../..")

/** Builds what `npm start` runs, and most tests with it, unless no source has changed since the last build. */
export default () => {
  if (isStale(root)) execFileSync("npm", ["run", "-s", "build"], { cwd: root, stdio: "inherit" })
}
