/** Attribution of processes to servers: the environment is set by the process, the uid is set by the daemon. */
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readMarker } from "../../src/daemon/host/procfs.ts"
import { makeProcessTable } from "../../src/daemon/runtime/processTable.ts"
import { until } from "../support/eventually.ts"

/** A process with a uid, whose environment names the server `victim`. */
const process_ = (uid: number, node: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const as = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "sleep", "60"]
      const env = { PATH: process.env.PATH, MUSTER_NODE: node, MUSTER_SERVER: "victim" }
      return spawn("setpriv", as, { env, stdio: "ignore" })
    }),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )

describe("SECURITY, process runtime: attribution of processes", () => {
  it.live(
    "a process with the uid of a server is attributed to that server, whatever its environment says",
    () =>
      Effect.gen(function* () {
        const [own, other, job] = [61_001, 61_002, 61_003]
        const names = new Map([
          [own, "victim"],
          [other, "attacker"],
          [job, "software:hostile"]
        ])
        const node = `markers-${process.pid}`
        const children = yield* Effect.forEach([own, other, job], (uid) => process_(uid, node))
        // setpriv has the environment, but not yet the uid.
        const runs = (pid: number) =>
          readMarker(pid)?.server === "victim" && readFileSync(`/proc/${pid}/comm`, "utf8") === "sleep\n"
        yield* until("all run", () => children.every(({ pid }) => runs(pid ?? 0)))
        const table = makeProcessTable(node, {
          uidOf: (name) => [...names].find(([, had]) => had === name)?.[0],
          nameOf: (uid) => names.get(uid)
        })
        const members = yield* table.members("victim", undefined, 0)
        assert.deepStrictEqual(
          members.map(({ pid }) => pid),
          [children[0]?.pid]
        )
      }).pipe(Effect.scoped)
  )
})
