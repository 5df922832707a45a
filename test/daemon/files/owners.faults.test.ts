import { spawn } from "node:child_process"
import { lstatSync, readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../../support/eventually.ts"
import { ownUser, scene, write } from "./scene.ts"

const asRoot = process.getuid?.() === 0
const ONE = ownUser(70_101)

/** Returns `uid:gid path` of every file in a folder with another owner. */
const foreign = (folder: string, uid: number): ReadonlyArray<string> =>
  ["", ...readdirSync(folder, { recursive: true, encoding: "utf8" })].flatMap((name) => {
    const stats = lstatSync(join(folder, name))
    return stats.uid === uid && stats.gid === uid ? [] : [`${stats.uid}:${stats.gid} ${name}`]
  })

const needed = asRoot ? "" : " (needs root)"

describe.runIf(asRoot)(`isolation, interrupted upgrade${needed}`, () => {
  it.live("the next start completes it; no file is lost, and no base is copied", () =>
    Effect.gen(function* () {
      const { baseDir, dataDir, first, server, serversDir, volumes: sources } = yield* scene()
      write(first.folder, { big: "b".repeat(3_000_000) })
      const old = server({})
      yield* old.make
      const names = Array.from({ length: 3000 }, (_, index) => `world/d${index % 30}/f${index}`)
      write(old.files, Object.fromEntries(names.map((name) => [name, name])))
      yield* old.close
      const upper = join(old.folder, "tree/upper")
      const given = () => names.filter((name) => lstatSync(join(upper, name)).uid === ONE.uid).length
      const options = {
        baseDir,
        serversDir,
        sources: { node_id: "test-node", dataDir, volumesDir: sources, allowedMounts: [] },
        folder: old.folder,
        uid: ONE.uid
      }
      const child = spawn(process.execPath, [
        join(import.meta.dirname, "openChild.ts"),
        JSON.stringify(options)
      ])
      yield* until("some files are chowned", () => given() > 0)
      child.kill("SIGKILL")
      yield* until("it is dead", () => child.signalCode !== null)
      assert.isBelow(given(), names.length)
      const now = server({}, old.folder, ONE)
      yield* now.open
      assert.deepStrictEqual(foreign(now.files, ONE.uid), [])
      assert.strictEqual(statSync(upper).uid, ONE.uid)
      for (const name of names) assert.strictEqual(readFileSync(join(now.files, name), "utf8"), name)
      assert.deepStrictEqual(readdirSync(upper), ["world"])
      assert.strictEqual(foreign(first.folder, 0).length, 0)
    }).pipe(Effect.scoped)
  )
})
