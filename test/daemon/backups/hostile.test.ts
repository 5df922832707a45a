/** Backups against servers and writers of targets that mean harm. */
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { copyFileSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import {
  folderOf,
  made,
  manifestOf,
  objectsOf,
  readOf,
  restoreOf,
  storedOf,
  verifyOf,
  worked
} from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

describe("spec 12.6: a target that others write", () => {
  it.live("a manifest with parts of another backup or of another archive is found, also by a download", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(place)
      put(scene.folder, "a.txt", "good")
      const { backup_id, figures } = yield* made(scene)
      put(scene.folder, "a.txt", "evil")
      const other = yield* made(scene)
      const [good, evil] = [manifestOf(scene, backup_id), manifestOf(scene, other.backup_id)]
      /** Replaces the manifest, and returns the figures of a control plane that takes it for the right one. */
      const forge = (parts: ReadonlyArray<object>) => {
        const manifest = JSON.stringify({ ...good, parts })
        const sha256 = createHash("sha256").update(manifest).digest("hex")
        const text = JSON.stringify({ sha256, manifest })
        writeFileSync(join(folderOf(scene, backup_id), "manifest.json"), text)
        return figures && { ...figures, manifest_sha256: sha256 }
      }
      const verified = (known = figures) =>
        Effect.map(worked(scene, verifyOf(backup_id, known)), ({ reason, state }) => [state, reason])
      assert.deepStrictEqual(yield* verified(), ["done", undefined])
      const another = `the manifest of backup ${backup_id} is damaged: its SHA-256 is another`
      const refused = Effect.fnUntraced(function* (known: typeof figures, why: string) {
        for (const [one, expected] of [
          [figures, another],
          [known, why]
        ] as const) {
          assert.deepStrictEqual(yield* verified(one), ["failed", expected])
          assert.include(yield* refusalOf(readOf(scene, backup_id, one)), expected)
        }
        const look = scene.backups.look(storedOf(backup_id, figures), { path: "/", limit: 1 })
        assert.include(yield* refusalOf(look), another)
      })
      for (const key of [`${other.backup_id}/part-00001`, `${backup_id}/../${other.backup_id}/part-00001`]) {
        const known = forge([{ ...evil.parts[0], key }])
        yield* refused(
          known,
          `the manifest of backup ${backup_id} is damaged: the part ${key} is not of this backup`
        )
      }
      const name = "part-00001"
      copyFileSync(join(folderOf(scene, other.backup_id), name), join(folderOf(scene, backup_id), name))
      const known = forge([{ ...evil.parts[0], key: `${backup_id}/${name}` }])
      yield* refused(known, `the archive of backup ${backup_id} is damaged: its SHA-256 is another`)
    })
  )
})

describe("spec 12.3: a backup that is done can be restored", () => {
  it.live("a path that is too long for a restore fails the backup, and the longest one is restored", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(place)
      const names = Array.from({ length: 20 }, (_, index) => String(index).padEnd(203, "n"))
      // 20 names with their slashes have 4,080 bytes.
      const deep = (last: string) =>
        execFileSync(
          "sh",
          ["-ec", 'for one in "$@"; do mkdir -p "$one"; cd -P "$one"; done', "sh", ...names, last],
          { cwd: scene.folder }
        )
      deep("f".repeat(14))
      const good = yield* made(scene)
      assert.strictEqual(good.reason, undefined)
      const restored = yield* worked(scene, restoreOf(good.backup_id, good.figures))
      assert.strictEqual(restored.reason, undefined)
      deep("g".repeat(15))
      const { reason, state } = yield* made(scene)
      assert.strictEqual(state, "failed")
      assert.strictEqual(reason, `/${names[0]?.slice(0, 199)}...: its path is longer than 4094 bytes`)
    })
  )

  it.live("a sparse file for which a restore has no room fails the backup at once, and leaves no part", () =>
    Effect.gen(function* () {
      for (const [limits, room] of [
        [{}, /[0-9.]+ MB/],
        [{ disk_space: 20 }, /20\.0 MB/]
      ] as const) {
        const scene = yield* filesOf(place, { limits })
        put(scene.folder, "sparse.bin", "")
        truncateSync(join(scene.folder, "sparse.bin"), 8 * 1024 ** 4)
        const { reason, state } = yield* made(scene)
        assert.strictEqual(state, "failed")
        assert.match(reason ?? "", new RegExp(`^/sparse.bin: with it, .* room for ${room.source}`))
        assert.deepStrictEqual(objectsOf(scene), [])
        truncateSync(join(scene.folder, "sparse.bin"), 8 * 1024 ** 2)
        const good = yield* made(scene)
        assert.strictEqual(good.reason, undefined)
        const restored = yield* worked(scene, restoreOf(good.backup_id, good.figures))
        assert.strictEqual(restored.reason, undefined)
      }
    })
  )
})
