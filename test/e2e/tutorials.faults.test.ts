import { existsSync, globSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { chromium, chromiumNote, openPage } from "../support/browser.ts"
import { checkout, npmStart } from "../support/checkout.ts"
import { runToEnd, startChild } from "../support/child.ts"
import { writeFiles } from "../support/definitions.ts"
import { printed } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { freeAllocations, freePorts } from "../support/ports.ts"
import { endLeftovers } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const minutes = 5 * 60_000

/** Runs printed blocks in a checkout, with the address of its service. */
const runner =
  (folder: string, env: Readonly<Record<string, string>> = {}) =>
  (block: string, change: (text: string) => string = (text) => text) =>
    runToEnd(["bash", "-ec", change(block)], { cwd: folder, env })

describe("docs/tutorials/friends.md", () => {
  it.live(
    "as printed: a server installs and runs; its console, its list, its changes and its files",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        assert.match(
          printed("docs/tutorials/friends.md", "start"),
          /^MUSTER_EMBEDDED_ALLOCATIONS=[\d.:-]+ npm start\n$/
        )
        const service = yield* npmStart(folder)
        const run = runner(folder)
        // The blueprint of the tutorial downloads a whole Minecraft server; flyingSquid.faults does that.
        const small = (text: string) => text.replace("flying-squid", "demo-saved")
        assert.match(
          yield* run(printed("docs/tutorials/friends.md", "create"), small),
          / world +demo-saved +running +local +127\.0\.0\.1:\d+/
        )
        assert.match(yield* run(printed("docs/tutorials/friends.md", "show")), / world +demo-saved +running/)
        const output = yield* eventually(run(printed("docs/tutorials/friends.md", "console")), (text) =>
          text.includes("[Server] welcome")
        )
        assert.include(output, "demo: ready on")
        const changed = yield* run(printed("docs/tutorials/friends.md", "change"), (text) =>
          text.replace(/ \\\n.*motd=Friday night'/, "")
        )
        assert.match(changed, /\w+ is running/)
        const { limits } = (yield* service.request("GET", "/api/servers?include=limits")).json[0]
        assert.strictEqual(limits.memory_limit, 1024)
        yield* run(printed("docs/tutorials/friends.md", "files"))
        yield* writeFiles(join(folder, "world-copy"), { "restored.txt": "kept" })
        assert.match(yield* run(printed("docs/tutorials/friends.md", "restore")), /\w+ is running/)
        const listed = yield* run("npm run -s muster -- files ls world:/")
        assert.include(listed, "restored.txt")
      }).pipe(Effect.scoped),
    minutes
  )
})

describe("docs/tutorials/fleet.md", () => {
  it.live(
    "as printed: two nodes run the servers; a drained one gives them to the other",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        const [port, first] = [yield* freePort, yield* freePorts(20)]
        const here = (text: string) =>
          text.replaceAll("10.0.0.5:5620", `127.0.0.1:${port}`).replace(/10\.0\.0\.\d/g, "127.0.0.1")
        const start = (block: string, env: Readonly<Record<string, string>>) =>
          startChild(["bash", "-c", here(block)], { cwd: folder, env })
        const control = yield* start(printed("docs/tutorials/fleet.md", "control"), {
          MUSTER_PORT: String(port)
        })
        yield* control.prints(/listens on http:[\s\S]*\/docs/)
        const run = runner(folder)
        const keys = (yield* run(printed("docs/tutorials/fleet.md", "keys"), here)).trim().split("\n")
        const nodes = [
          printed("docs/tutorials/fleet.md", "alpha"),
          printed("docs/tutorials/fleet.md", "beta")
        ]
        for (const [at, block] of nodes.entries()) {
          const data = join(yield* temporaryFolder, "node")
          yield* Effect.addFinalizer(() => endLeftovers(data))
          const own = String(yield* freePort)
          const command = block
            .replace("mst_...", keys[at] ?? "")
            .replace("5585", own)
            .replace("25565-25664", `${first + 10 * at}-${first + 10 * at + 9}`)
          const node = yield* start(command, { MUSTER_DATA_DIR: data, MUSTER_NODE_PORT: own })
          yield* node.prints(/node \S+, listens on/)
        }
        const created = yield* eventually(
          run(printed("docs/tutorials/fleet.md", "create")),
          (text) => /world-4/.test(text),
          "120 seconds"
        )
        assert.match(created, / alpha +\w+ +connected/)
        assert.match(created, / world-\d +demo-saved +running +alpha/)
        assert.match(created, / world-\d +demo-saved +running +beta/)
        yield* run(printed("docs/tutorials/fleet.md", "drain"))
        const list = run("npm run -s muster -- servers list")
        yield* eventually(list, (text) => (text.match(/running +beta/g) ?? []).length === 4, "60 seconds")
        yield* run(printed("docs/tutorials/fleet.md", "undrain"))
      }).pipe(Effect.scoped),
    minutes
  )
})

describe("docs/tutorials/pterodactyl.md", () => {
  it.live(
    "as printed: the blueprint is checked, and a server of it begins with the copied world",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        const old = join(yield* temporaryFolder, "1a7ce997")
        yield* writeFiles(old, { "world/level.dat": "the old world" })
        // The checkout links its sources only; its definitions are files of its own.
        yield* writeFiles(join(folder, "blueprints"), {
          "survival.yml": printed("docs/tutorials/pterodactyl.md", "survival")
        })
        yield* npmStart(folder)
        const run = runner(folder)
        yield* run(printed("docs/tutorials/pterodactyl.md", "check"))
        yield* run(printed("docs/tutorials/pterodactyl.md", "copy"), (text) =>
          text.replace("/var/lib/pterodactyl/volumes/1a7ce997", old)
        )
        assert.isTrue(existsSync(join(folder, "data/node/volumes/worlds/survival/level.dat")))
        // Paper needs a Docker Engine and the internet.
        const small = printed("docs/tutorials/pterodactyl.md", "survival").replace(
          "software: paper",
          "software: demo"
        )
        yield* writeFiles(join(folder, "blueprints"), { "survival.yml": small })
        assert.include(yield* run(printed("docs/tutorials/pterodactyl.md", "create")), "demo: ready on")
        const worlds = globSync("data/node/servers/*/**/world/level.dat", { cwd: folder })
        assert.isNotEmpty(worlds)
      }).pipe(Effect.scoped),
    minutes
  )
})

describe.runIf(chromium !== undefined)(`docs/tutorials/live-page.md${chromiumNote}`, () => {
  it.live(
    "as printed: the page shows every server, and its changes",
    () =>
      Effect.gen(function* () {
        const api = yield* startService({ env: yield* freeAllocations(4) })
        const folder = yield* temporaryFolder
        yield* writeFiles(folder, { "page.mjs": printed("docs/tutorials/live-page.md", "page") })
        const root = join(import.meta.dirname, "../..")
        const env = { MUSTER_DATA_DIR: api.dataDir, MUSTER_URL: api.url, MUSTER_API_KEY: api.key }
        const key = (yield* runner(root, env)(printed("docs/tutorials/live-page.md", "key"))).trim()
        const port = yield* freePort
        yield* startChild([process.execPath, "page.mjs"], {
          cwd: folder,
          env: { MUSTER_URL: api.url, MUSTER_API_KEY: key, PORT: String(port) }
        })
        const before = yield* running(api, "demo-saved")
        const { evaluate, problems } = yield* eventually(
          Effect.option(openPage(`http://127.0.0.1:${port}/`)),
          (page) => page._tag === "Some"
        ).pipe(Effect.flatMap(Effect.fromOption))
        const text = evaluate("document.querySelector('table').innerText")
        yield* eventually(text, (shown) => String(shown).includes(`${before}\tdemo-saved\trunning`))
        const after = yield* running(api, "demo")
        yield* eventually(text, (shown) => String(shown).includes(`${after}\tdemo\trunning`))
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${before}?force=true`)
        yield* eventually(text, (shown) => !String(shown).includes(before))
        assert.deepStrictEqual(problems(), [])
      }).pipe(Effect.scoped),
    minutes
  )
})
