/** Backups in a folder that the control plane names (spec 12.6). */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { until } from "../support.ts"
import { downloaded, made, newId, objectsOf, readOf, restoreOf, verifyOf, worked } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

const folderTarget = (folder: string) => ({ type: "node", folder }) as const
const modeOf = (path: string) => statSync(path).mode & 0o777

/** A server whose node allows backups in a folder. */
const allowing = Effect.fnUntraced(function* () {
  const allowed = yield* temporaryFolder
  return { allowed, scene: yield* filesOf({ ...place, backupFolders: [allowed] }) }
})

describe("spec 12.6: targets that are folders of the node", () => {
  it.live("a backup is made there for the daemon alone, verified, read, restored and removed", () =>
    Effect.gen(function* () {
      const { allowed, scene } = yield* allowing()
      const folder = join(allowed, "deep", "backups")
      const target = folderTarget(folder)
      put(scene.folder, "a.txt", "a")
      const { backup_id, figures, reason } = yield* made(scene, undefined, target)
      assert.strictEqual(reason, undefined)
      assert.deepStrictEqual(objectsOf(scene), [])
      const own = join(folder, backup_id)
      assert.deepStrictEqual(readdirSync(own).toSorted(), ["index-00001", "manifest.json", "part-00001"])
      for (const path of [join(allowed, "deep"), folder, own]) assert.strictEqual(modeOf(path), 0o700, path)
      for (const name of readdirSync(own)) assert.strictEqual(modeOf(join(own, name)), 0o600, name)
      const verified = yield* worked(scene, verifyOf(backup_id, figures), newId(), target)
      assert.deepInclude(verified, { state: "done" })
      const { sha256 } = yield* downloaded(scene, backup_id, figures, target)
      assert.strictEqual(sha256, figures?.sha256)
      put(scene.folder, "a.txt", "changed")
      const restored = yield* worked(scene, restoreOf(backup_id, figures), newId(), target)
      assert.strictEqual(restored.reason, undefined)
      assert.strictEqual(yield* scene.read("/a.txt"), "a")
      yield* scene.backups.remove(backup_id, target)
      yield* scene.backups.remove(backup_id, target)
      assert.deepStrictEqual(readdirSync(folder), [])
    })
  )

  it.live("a folder that other users can read is closed; a test leaves nothing in it", () =>
    Effect.gen(function* () {
      const { allowed, scene } = yield* allowing()
      const folder = join(allowed, "open")
      mkdirSync(folder)
      chmodSync(folder, 0o755)
      assert.deepStrictEqual(yield* scene.backups.test(folderTarget(folder)), { ok: true })
      assert.strictEqual(modeOf(folder), 0o700)
      assert.deepStrictEqual(readdirSync(folder), [])
      assert.deepStrictEqual(yield* scene.backups.test(folderTarget(allowed)), { ok: true })
    })
  )

  it.live(
    "a folder that the setting of the node does not allow is never made; the reason names the setting",
    () =>
      Effect.gen(function* () {
        const { allowed, scene } = yield* allowing()
        const elsewhere = yield* temporaryFolder
        const plain = yield* filesOf(place)
        for (const [node, folder] of [
          [scene, join(elsewhere, "backups")],
          [scene, `${allowed}-beside`],
          [plain, join(allowed, "backups")]
        ] as const) {
          const why = `the setting MUSTER_NODE_BACKUP_FOLDERS of the node does not allow ${folder}`
          const tested = yield* node.backups.test(folderTarget(folder))
          assert.deepInclude(tested, { ok: false, step: "write" })
          assert.include(tested.reason, `${why}. Add the folder`)
          const { reason, state } = yield* made(node, undefined, folderTarget(folder))
          assert.deepStrictEqual([state, reason], ["failed", why])
          assert.isFalse(existsSync(folder))
        }
      })
  )

  it.live("no link is followed: not on the way, not to the folder of a backup, not to a part", () =>
    Effect.gen(function* () {
      const { allowed, scene } = yield* allowing()
      const outside = yield* temporaryFolder
      symlinkSync(outside, join(allowed, "link"))
      const tested = yield* scene.backups.test(folderTarget(join(allowed, "link", "backups")))
      assert.deepInclude(tested, { ok: false, step: "write" })
      assert.match(tested.reason ?? "", /`link` is a symbolic link, not a folder$/)
      const target = folderTarget(allowed)
      const { backup_id, figures } = yield* made(scene, undefined, target)
      const part = join(allowed, backup_id, "part-00001")
      renameSync(part, join(outside, "part-00001"))
      symlinkSync(join(outside, "part-00001"), part)
      assert.match(
        yield* refusalOf(readOf(scene, backup_id, figures, target)),
        /is a symbolic link, not a file/
      )
      const id = newId()
      symlinkSync(outside, join(allowed, id))
      assert.match(yield* refusalOf(scene.backups.remove(id, target)), /symbolic link, not a folder/)
      assert.deepStrictEqual(readdirSync(outside), ["part-00001"])
    })
  )

  it.live("a disk that is not mounted fails with a reason, and loses no backup", () =>
    Effect.gen(function* () {
      const { allowed, scene } = yield* allowing()
      const folder = join(allowed, "mount", "backups")
      const target = folderTarget(folder)
      const { backup_id } = yield* made(scene, undefined, target)
      renameSync(join(allowed, "mount"), join(allowed, "away"))
      const gone = `the folder ${join(allowed, "mount")} does not exist`
      assert.include(yield* refusalOf(scene.backups.remove(backup_id, target)), gone)
      renameSync(join(allowed, "away"), join(allowed, "mount"))
      renameSync(allowed, `${allowed}-away`)
      const { reason, state } = yield* made(scene, undefined, target)
      assert.deepStrictEqual([state, reason], ["failed", `the folder ${allowed} does not exist`])
      assert.isFalse(existsSync(allowed))
      renameSync(`${allowed}-away`, allowed)
      yield* scene.backups.remove(backup_id, target)
      assert.deepStrictEqual(readdirSync(folder), [])
    })
  )

  it.live("old parts without a manifest are removed after a backup; what else lies there stays", () =>
    Effect.gen(function* () {
      const { allowed, scene } = yield* allowing()
      const yesterday = Date.now() / 1000 - 25 * 3600
      const lay = (id: string, name: string) => {
        mkdirSync(join(allowed, id))
        writeFileSync(join(allowed, id, name), "part")
        for (const path of [join(allowed, id, name), join(allowed, id)])
          utimesSync(path, yesterday, yesterday)
      }
      const old = newId()
      lay(old, "part-00001")
      lay("screenshots1", "a.png")
      lay("lost+found", "part-00001")
      const mixed = newId()
      lay(mixed, "part-00001")
      writeFileSync(join(allowed, mixed, "notes.txt"), "of another program")
      const { reason } = yield* made(scene, undefined, folderTarget(allowed))
      assert.strictEqual(reason, undefined)
      yield* until("the old parts are gone", () => !existsSync(join(allowed, old)))
      assert.isTrue(existsSync(join(allowed, "screenshots1", "a.png")))
      assert.isTrue(existsSync(join(allowed, "lost+found", "part-00001")))
      yield* scene.backups.remove(mixed, folderTarget(allowed))
      assert.deepStrictEqual(readdirSync(join(allowed, mixed)), ["notes.txt"])
    })
  )
})
