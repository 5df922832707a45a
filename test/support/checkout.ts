/** A checkout in a temporary folder, and the service as `npm start` runs it there. */

import { cpSync, readdirSync, readFileSync, readlinkSync, symlinkSync } from "node:fs"
import { join, resolve } from "node:path"
import { Effect, type Scope } from "effect"
import { type Child, startChild } from "./child.ts"
import { freeAllocations, freePorts } from "./ports.ts"
import { endLeftovers } from "./processes.ts"
import { requestTo, type Service, type ServiceFailed } from "./Service.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")

/** Copies what a clone has after `npm ci`, without its history and tests; removed with the scope. */
export const checkout = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  for (const name of ["package.json", "blueprints", "software"]) {
    cpSync(join(root, name), join(folder, name), { recursive: true })
  }
  // A copy of the sources would be newer than the bundle.
  for (const name of ["src", "dist", "node_modules"]) symlinkSync(join(root, name), join(folder, name))
  return folder
})

/** The port in the documents. */
const PRINTED_PORT = 5620

export interface Started extends Pick<Service, "url" | "key" | "request"> {
  readonly folder: string
  readonly npm: Child
  /** A printed command with the port of this service instead of the printed one. */
  readonly asPrinted: (text: string) => string
}

/**
 * Runs `npm start` in a checkout as the README says; returns the first key once the service listens. Only the ports
 * differ, so that tests can run in parallel.
 */
export const npmStart = (
  folder: string,
  env: Readonly<Record<string, string>> = {}
): Effect.Effect<Started, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const port = yield* freePorts(1)
    const npm = yield* startChild(["npm", "start"], {
      cwd: folder,
      env: {
        ...env,
        ...(yield* freeAllocations(8)),
        MUSTER_PORT: String(port)
      }
    })
    yield* Effect.addFinalizer(() => endLeftovers(join(folder, "data")))
    const [, url = ""] = yield* npm.prints(/listens on (http:\S+)[\s\S]*\/docs/)
    const key = readFileSync(join(folder, "data/admin.key"), "utf8").trim()
    return {
      folder,
      npm,
      url,
      key,
      request: requestTo(url, key),
      asPrinted: (text) => text.replaceAll(String(PRINTED_PORT), String(port))
    }
  })

const linkOf = (path: string): string => {
  try {
    return readlinkSync(path)
  } catch {
    return "" // the process has ended or has another user
  }
}

/** Command lines of all live processes that have a working directory in the folder (Linux). */
export const processesBelow = (folder: string): ReadonlyArray<string> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => `${linkOf(`/proc/${pid}/cwd`)}/`.startsWith(`${folder}/`))
    .map((pid) => {
      try {
        return `${pid} ${readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim()}`
      } catch {
        return ""
      }
    })
    .filter((line) => /^\d+ ./.test(line))
