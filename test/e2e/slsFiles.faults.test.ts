import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { write } from "../daemon/files/scene.ts"
import { definitions } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { endLeftovers } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { becomes, expectStatus, logsOf, power, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const root = join(import.meta.dirname, "../controlPlane/blueprints/sls")

/** The files of a folder; the host folder that they name is `host`. */
const filesOf = (folder: string, host: string) => {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
  return Object.fromEntries(
    names
      .filter((name) => name.endsWith(".yml"))
      .map((name) => [name, readFileSync(join(root, folder, name), "utf8").replaceAll("/host/", `${host}/`)])
  )
}

describe("spec 4.11: a server of files written for SLS", () => {
  it.live("runs with their files, variables, placeholders and installation", () =>
    Effect.gen(function* () {
      const host = yield* temporaryFolder
      write(host, { "lobby/rules.txt": "be kind", "maps/spawn": "a map", "packs/extra.txt": "extra" })
      const folders = yield* definitions({
        blueprints: filesOf("blueprints", host),
        software: filesOf("software", host)
      })
      const api = yield* startService({ env: { ...folders.env, MUSTER_ALLOWED_MOUNTS: host } })
      yield* Effect.addFinalizer(() => endLeftovers(api.dataDir))
      const node = join(api.dataDir, "node")
      write(node, {
        "files/motd.txt": "welcome",
        "files/late.txt": "late",
        "volumes/lobby/shared/there": "",
        "volumes/lobby/assets/icon": "icon"
      })
      const { json: warnings } = yield* expectStatus(api, 200, "GET", "/api/definitions/warnings")
      assert.lengthOf(warnings, 4, JSON.stringify(warnings))

      const id = yield* running(api, "lobby")
      const { json: server } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}`)
      const { port } = server.allocations.default
      const lines = (motd: string) => [
        `arguments: --port=${port} --memory=512 --mode=calm`,
        `startup: sh server.sh --port=${port} --memory=512 --mode=calm`,
        "variables: calm hello none",
        "built: 1.0 build latest memory 512 flavour vanilla",
        `config/motd.txt: ${motd}`,
        "rules.txt: be kind",
        "maps/spawn: a map",
        "assets/icon: icon",
        "shared/late.txt: late",
        "extra.txt: extra",
        "Done"
      ]
      const since = (all: ReadonlyArray<string>) =>
        all.slice(all.findLastIndex((line) => line.startsWith("arguments")))
      const console = Effect.map(logsOf(api, id), since)
      assert.deepStrictEqual(yield* eventually(console, (seen) => seen.includes("Done")), lines("welcome"))
      const files = join(node, "servers", id, "files")
      assert.strictEqual(readFileSync(join(files, "settings.yml"), "utf8"), `server:\n  port: ${port}\n`)
      assert.isTrue(existsSync(join(node, "volumes/lobby/shared/late.txt")))

      // Copied at every start, and only at the creation.
      writeFileSync(join(files, "shared/late.txt"), "changed")
      writeFileSync(join(files, "config/motd.txt"), "changed")
      yield* power(api, id, "stop")
      yield* becomes(api, id, "offline")
      yield* power(api, id, "start")
      yield* becomes(api, id, "running")
      assert.deepStrictEqual(yield* eventually(console, (seen) => seen.includes("Done")), lines("changed"))

      // Another value of a variable that the script reads is another base; other variables share it.
      const bases = () => readdirSync(join(node, "base/lobby"))
      assert.lengthOf(bases(), 1)
      const builtOf = (env: Record<string, string>) =>
        Effect.gen(function* () {
          const other = yield* running(api, "lobby", { overrides: { env } })
          const seen = yield* logsOf(api, other)
          return seen.find((line) => line.startsWith("built: "))
        })
      assert.strictEqual(yield* builtOf({ UNREAD: "1" }), lines("")[3])
      assert.lengthOf(bases(), 1)
      const seventeen = "built: 1.0 build 17 memory 512 flavour vanilla"
      assert.strictEqual(yield* builtOf({ BUILD_NUMBER: "17" }), seventeen)
      assert.lengthOf(bases(), 2)
    }).pipe(Effect.scoped)
  )
})
