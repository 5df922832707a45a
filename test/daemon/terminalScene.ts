/** Servers with a terminal, of a daemon in a process of its own. */
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { ProcessIsolation } from "../../src/contract/domain/Node.ts"
import type { ProcessConfiguration } from "../../src/contract/domain/Software.ts"
import { until } from "../support/eventually.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"
import { daemonProcessAs, stateOf } from "./daemonChild.ts"
import { newId } from "./support.ts"

/** The uid of an ordinary user. */
const ORDINARY = 12_346
const asOrdinary = ["setpriv", `--reuid=${ORDINARY}`, `--regid=${ORDINARY}`, "--clear-groups"]
/** A separate uid range, because other tests run in parallel. */
const FIRST = 54_000 + (process.pid % 4000)
const uids = { first: FIRST, last: FIRST + 9 }

export interface Scene {
  readonly by: ReadonlyArray<string>
  readonly owner: number
  readonly level: ProcessIsolation
}

/** A daemon that is root. */
export const rootScene: Scene = { by: [], owner: 0, level: "user+namespaces" }

export const otherScenes: ReadonlyArray<Scene> = [
  { by: [], owner: 0, level: "user" },
  { by: asOrdinary, owner: ORDINARY, level: "namespaces" },
  { by: [], owner: 0, level: "none" }
]

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`

/** A daemon in a process of its own, and servers with a terminal that run a script. */
export const opened = Effect.fnUntraced(function* ({ by, level, owner }: Scene) {
  const folder = yield* temporaryFolderIn("/var/lib")
  const data = join(folder, "node")
  mkdirSync(data)
  for (const path of [folder, data]) {
    chownSync(path, owner, owner)
    chmodSync(path, 0o700)
  }
  const isolation =
    level === "none"
      ? { mode: "none" }
      : { mode: "auto", uids, hidden: [folder], claimsDir: join(folder, "claims"), levels: [level] }
  const start = daemonProcessAs(by, data, "", "", "test-node", JSON.stringify(isolation))
  const daemon = yield* start
  assert.strictEqual(daemon.level, level)
  const serverDir = (id: string) => join(data, "servers", id)
  const console = (id: string) => {
    const path = join(serverDir(id), "console.log")
    return existsSync(path) ? readFileSync(path, "latin1") : ""
  }
  const isIn = (id: string) => (status: string) =>
    until(`${id} is ${status}: ${console(id)}`, () => stateOf(data, id).status === status)
  const prints = (id: string, text: string) =>
    until(`${text} in ${console(id)}`, () => console(id).includes(text))
  const up = Effect.fnUntraced(function* (script: string, more: Partial<ProcessConfiguration> = {}) {
    const id = newId()
    // The daemon may be dead then. The group of the shim has the namespaces of the server.
    yield* Effect.addFinalizer(() =>
      Effect.ignore(
        Effect.try(() => {
          const { pid } = JSON.parse(readFileSync(join(serverDir(id), "run.json"), "utf8"))
          process.kill(-pid, "SIGKILL")
        })
      )
    )
    const software = { invocation: `sh -c ${quoted(script)}`, terminal: true, ...more }
    yield* daemon.ask(`create ${JSON.stringify({ id, process: software })}`)
    yield* isIn(id)("offline")
    yield* daemon.ask(`power ${id} start 30`)
    yield* isIn(id)("running")
    return id
  })
  /** Returns the recorded exit code. */
  const exitOf = (id: string) => Number(readFileSync(join(serverDir(id), "exit"), "utf8"))
  return { console, exitOf, daemon, isIn, prints, serverDir, start, up }
})

/** Echoes its input as `got <line>`, ends with `stop`. */
export const echoes = `while read -r line; do [ "$line" = stop ] && exit 0; echo "got $line"; done`
