import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { RestoredPart } from "../../../src/contract/domain/Backup.ts"
import { until } from "../../support/eventually.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { harness } from "../support.ts"
import { compared, here, made, newId, restoreOf, worked } from "./scene.ts"

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const level = randomBytes(100_000)

/** Backs up `world` and `plugins`, and then changes both. */
const backedUp = Effect.fnUntraced(function* (scene: Scene) {
  const { folder } = scene
  mkdirSync(join(folder, "world/region"), { recursive: true })
  writeFileSync(join(folder, "world/level.dat"), level)
  put(folder, "world/region/r1", "old")
  put(folder, "plugins/b.yml", "old")
  const backup = yield* made(scene)
  put(folder, "world/level.dat", "new")
  put(folder, "world/region/r1", "new")
  put(folder, "world/later.txt", "later")
  rmSync(join(folder, "world/region/r0"))
  put(folder, "plugins/b.yml", "new")
  return backup
})

const restored = (scene: Scene, backup: Effect.Success<ReturnType<typeof made>>, part: RestoredPart) =>
  worked(scene, restoreOf(backup.backup_id, backup.figures, false, part))

const text = ({ folder }: Scene, name: string) => readFileSync(join(folder, name), "utf8")

const hidden = ({ folder }: Scene) => readdirSync(folder).filter((name) => name.startsWith(".muster"))

describe("spec 12.5: restoring a folder in place of another one", () => {
  it.live("never has a half of the old folder in place", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf({ far: false, instanceFiles: "copy" })
      const world = join(scene.folder, "world")
      const count = 40
      for (let at = 0; at < count; at++) writeFileSync(join(world, `file${at}`), "")
      const all = readdirSync(world).length
      const backup = yield* made(scene)
      writeFileSync(join(world, "later.txt"), "later")
      const seen = new Set<number>()
      const found = Effect.try(() => readdirSync(world).length)
      const look = Effect.map(
        Effect.orElseSucceed(found, () => 0),
        (names) => seen.add(names)
      )
      const watching = Effect.forever(Effect.andThen(look, Effect.yieldNow))
      const end = yield* Effect.raceFirst(
        restored(scene, backup, { mode: "replace", paths: ["/world"] }),
        watching
      )
      assert.strictEqual(end.state, "done", end.reason)
      yield* look
      assert.includeMembers([0, all, all + 1], [...seen])
      assert.isTrue(seen.has(all) && seen.has(all + 1), [...seen].join())
    })
  )
})

describe("spec 12.5: restoring a part, and the daemon is killed while it goes into place", () => {
  it.live.each(["merge", "replace"] as const)("%s: the next daemon completes it before a start", (mode) =>
    Effect.gen(function* () {
      const options = { instanceFiles: "copy" } as const
      const scene = yield* filesOf({ far: false, ...options })
      const { folder, id, node } = scene
      const server = join(folder, "..")
      const names = Array.from({ length: 300 }, (_, at) => `d${at % 20}/f${at}`)
      const fill = (contents: string) => {
        for (const one of names) put(folder, one, contents)
      }
      for (let at = 0; at < 20; at++) mkdirSync(join(folder, `d${at}`))
      const isOld = (one: string) => existsSync(join(folder, one)) && text(scene, one) === "old"
      fill("old")
      const backup = yield* made(scene)
      fill("new")
      const paths = Array.from({ length: 20 }, (_, at) => `/d${at}`)
      const request = {
        operation_id: newId(),
        task: restoreOf(backup.backup_id, backup.figures, false, { mode, paths }),
        target: here
      }
      yield* scene.backups.work(id, request)
      yield* until("a file is in place", () => names.some(isOld))
      // A copy of what a daemon leaves that is killed now: this process stands still until it is made.
      const killed = `${node.dataDir}-killed`
      execFileSync("cp", ["-a", server, killed])
      assert.isFalse(readdirSync(killed).includes("files.placed"))
      yield* worked(scene, request.task, request.operation_id)
      yield* node.close
      rmSync(server, { recursive: true })
      renameSync(killed, server)
      assert.isFalse(names.every(isOld))
      const next = yield* harness(options, node.dataDir)
      yield* next.daemon.power(id, "start", 30)
      yield* until("the server runs", () => next.statuses(id).includes("running"))
      assert.isTrue(names.every(isOld))
      assert.deepStrictEqual(hidden(scene), [])
      assert.notInclude(readdirSync(server), "part.ready")
      const again = yield* worked({ backups: next.daemon.backups, id }, request.task, request.operation_id)
      assert.strictEqual(again.state, "done", again.reason)
    })
  )
})

for (const [name, place] of Object.entries(places)) {
  describe(`spec 12.5: restoring some paths of a backup: ${name}`, () => {
    it.live("replace makes a folder what it was in the backup, and touches nothing else", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const backup = yield* backedUp(scene)
        const end = yield* restored(scene, backup, { mode: "replace", paths: ["/world"] })
        assert.strictEqual(end.state, "done", end.reason)
        assert.isTrue(readFileSync(join(scene.folder, "world/level.dat")).equals(level))
        assert.strictEqual(text(scene, "world/region/r1"), "old")
        assert.strictEqual(text(scene, "world/region/r0"), "r\n")
        assert.isFalse(existsSync(join(scene.folder, "world/later.txt")))
        assert.strictEqual(text(scene, "plugins/b.yml"), "new")
        assert.deepStrictEqual(hidden(scene), [])
      })
    )

    it.live("merge lets files stay that the backup lacks; a file comes back into a folder that is gone", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const backup = yield* backedUp(scene)
        const merged = yield* restored(scene, backup, { mode: "merge", paths: ["/world"] })
        assert.strictEqual(merged.state, "done", merged.reason)
        assert.strictEqual(text(scene, "world/region/r1"), "old")
        assert.strictEqual(text(scene, "world/later.txt"), "later")
        assert.strictEqual(text(scene, "plugins/b.yml"), "new")
        rmSync(join(scene.folder, "world"), { recursive: true })
        const one = yield* restored(scene, backup, { mode: "replace", paths: ["/world/region/r1"] })
        assert.strictEqual(one.state, "done", one.reason)
        assert.deepStrictEqual(readdirSync(join(scene.folder, "world"), { recursive: true }), [
          "region",
          "region/r1"
        ])
        const all = yield* restored(scene, backup, { mode: "merge", paths: ["/"] })
        assert.strictEqual(all.state, "done", all.reason)
        assert.strictEqual(text(scene, "plugins/b.yml"), "old")
        assert.deepStrictEqual(hidden(scene), [])
      })
    )

    it.live("merge does not write what another server had there into a volume, and a dry run says so", () =>
      Effect.gen(function* () {
        const other = yield* filesOf(place)
        mkdirSync(join(other.folder, "shared"))
        put(other.folder, "shared/v.txt", "of the other server")
        put(other.folder, "plugins/b.yml", "b")
        const backup = yield* made(other)
        const volumes = [{ name: "s", source: "shared", target: "shared", mode: "rw" as const }]
        const scene = yield* filesOf(place, { volumes }, other.node)
        const all = { mode: "merge" as const, paths: ["/"] }
        const end = yield* restored(scene, backup, all)
        const why = "/shared: a volume or mount lies there, and the backup has files of its own there"
        assert.deepInclude(end, { state: "failed", reason: why })
        assert.strictEqual(yield* refusalOf(compared(scene, backup, { part: all })), `409 ${why}`)
        assert.strictEqual(readFileSync(join(scene.node.dataDir, "volumes/shared/v.txt"), "utf8"), "volume")
        assert.isFalse(existsSync(join(scene.folder, "plugins/b.yml")))
        assert.deepStrictEqual(hidden(scene), [])
        const beside = yield* restored(scene, backup, { mode: "merge", paths: ["/plugins"] })
        assert.strictEqual(beside.state, "done", beside.reason)
        assert.strictEqual(text(scene, "plugins/b.yml"), "b")
      })
    )

    it.live("a path that the backup lacks, and a folder in the way, change nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const backup = yield* backedUp(scene)
        const lacking = yield* restored(scene, backup, { mode: "replace", paths: ["/world", "/none"] })
        assert.deepInclude(lacking, { state: "failed", reason: "the backup has no /none" })
        rmSync(join(scene.folder, "world/level.dat"))
        mkdirSync(join(scene.folder, "world/level.dat"))
        const inTheWay = yield* restored(scene, backup, { mode: "merge", paths: ["/world"] })
        assert.match(inTheWay.reason ?? "", /\/world\/level\.dat: it is a folder/)
        assert.strictEqual(text(scene, "world/region/r1"), "new")
        assert.deepStrictEqual(hidden(scene), [])
      })
    )

    it.live("a folder that is gone on the node is named", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf({ far: false, instanceFiles: "copy" })
        const backup = yield* made(scene)
        rmSync(scene.folder, { recursive: true })
        const { reason } = yield* restored(scene, backup, { mode: "replace", paths: ["/world"] })
        assert.include(reason, `${scene.folder}: no such file or folder`)
      })
    )
  })
}
