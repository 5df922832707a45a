import { readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { withXfs, xfsDisk } from "../daemon/files/scene.ts"
import { blueprintFile, type Definitions, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { endLeftovers } from "../support/processes.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, commands, expectStatus, installed, powered, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const MB = 1_000_000

/** Writes `blob` with as many bytes as a line of the console says. */
const server = `echo ready
while read -r bytes; do
  test "$bytes" = stop && exit 0
  head -c "$bytes" /dev/zero > blob
done`

/** A base of 50 MB. */
const software = softwareFile("game", {
  files: { "server.sh": server },
  install: { script: `echo "$VERSION" > version.txt\nhead -c ${50 * MB} /dev/zero > big` }
})
const blueprint = (version: string) =>
  blueprintFile("kept", "game", { server: { version, limits: { memory_limit: 64, disk_space: 100 } } })

const startScene = Effect.fnUntraced(function* (dataDir: string, env: Record<string, string>) {
  const folders = yield* definitions({
    software: { "game.yml": software },
    blueprints: { "kept.yml": blueprint("1.0") }
  })
  const service = yield* startService({ dataDir, env: { ...folders.env, ...env } })
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  return { ...service, ...folders }
})

const fileOf = (api: Service, id: string, name: string) =>
  join(api.dataDir, "node/servers", id, "files", name)

const upgradeTo = Effect.fnUntraced(function* (api: Service & Definitions, id: string, version: string) {
  writeFileSync(join(api.blueprints, "kept.yml"), blueprint(version))
  yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
  yield* expectStatus(api, 202, "POST", `/api/servers/${id}/upgrade`, { body: {} })
})

const installOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/install`), ({ json }) => json)

describe("spec 3.12: the files of an upgrade", () => {
  const reflinks = withXfs ? "" : " (needs root, xfsprogs and a loop device)"
  it.live.runIf(withXfs)(`with reflinks an upgrade takes the space of the new base only${reflinks}`, () =>
    Effect.gen(function* () {
      const disk = yield* xfsDisk
      const used = () => {
        const { bfree, blocks, bsize } = statfsSync(disk)
        return (blocks - bfree) * bsize
      }
      const api = yield* startScene(join(disk, "data"), { MUSTER_INSTANCE_FILES: "reflink" })
      const id = yield* installed(api, "kept")
      writeFileSync(fileOf(api, id, "world"), "w".repeat(30 * MB))
      const before = used()
      yield* upgradeTo(api, id, "2.0")
      yield* eventually(
        () => readFileSync(fileOf(api, id, "version.txt"), "utf8"),
        (text) => text === "2.0\n"
      )
      yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=installed`)
      assert.strictEqual(readFileSync(fileOf(api, id, "world")).length, 30 * MB)
      assert.isBelow(used() - before, 60 * MB)
      yield* powered(api, id, "start")
      yield* becomes(api, id, "running")
    }).pipe(Effect.scoped)
  )

  it.live("without the earlier base an upgrade fails, the files stay, and the next step works", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const api = yield* startScene(dataDir, { MUSTER_INSTANCE_FILES: "copy" })
      const id = yield* installed(api, "kept")
      writeFileSync(fileOf(api, id, "world"), "the world")
      const generations = join(dataDir, "node/base/.generations")
      for (const name of readdirSync(generations)) rmSync(join(generations, name), { recursive: true })
      yield* upgradeTo(api, id, "2.0")
      const failed = yield* eventually(installOf(api, id), ({ phase }) => phase === "failed")
      assert.match(failed.failure_reason, /^the base from which the files of the server were made is gone/)
      assert.strictEqual(readFileSync(fileOf(api, id, "world"), "utf8"), "the world")
      assert.match(failed.failure_reason, /which a reinstallation replaces, then reinstall$/)
      yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`)
      yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=installed`)
      assert.strictEqual(readFileSync(fileOf(api, id, "version.txt"), "utf8"), "2.0\n")
      assert.strictEqual(readFileSync(fileOf(api, id, "world"), "utf8"), "the world")
      yield* powered(api, id, "start")
      yield* becomes(api, id, "running")
    }).pipe(Effect.scoped)
  )
})

describe("spec 4.10: limits.disk_space", () => {
  it.live("a changed limit applies at the next start", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const api = yield* startScene(dataDir, { MUSTER_DISK_CHECK: "1" })
      const id = yield* running(api, "kept")
      const patch = (disk_space: number) =>
        Effect.map(
          expectStatus(api, 200, "PATCH", `/api/servers/${id}`, {
            body: { overrides: { limits: { disk_space } } }
          }),
          ({ json }) => json.pending
        )
      assert.deepStrictEqual(yield* patch(2), ["limits.disk_space"])
      yield* powered(api, id, "restart")
      yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=running`)
      yield* commands(api, id, String(3 * MB))
      yield* becomes(api, id, "offline")
      const refused = yield* api.request("POST", `/api/servers/${id}/power`, { body: { action: "start" } })
      assert.strictEqual(refused.status, 409)
      assert.match(refused.json.detail, /^the server uses 3\.0 MB, its disk limit is 2\.0 MB$/)
      assert.deepStrictEqual(yield* patch(10), [])
      yield* powered(api, id, "start")
      yield* becomes(api, id, "running")
      const stats = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/stats?update_disk_usage=true`)
      assert.strictEqual(stats.json.disk_max, 10 * MB)
    }).pipe(Effect.scoped)
  )
})
