/** Backups against servers and writers of targets that mean harm. */
import { createHash } from "node:crypto"
import { copyFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { folderOf, made, manifestOf, readOf, verifyOf, worked } from "./scene.ts"

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
      const forge = (parts: ReadonlyArray<object>) => {
        const manifest = JSON.stringify({ ...good, parts })
        const sha256 = createHash("sha256").update(manifest).digest("hex")
        const text = JSON.stringify({ sha256, manifest })
        writeFileSync(join(folderOf(scene, backup_id), "manifest.json"), text)
      }
      const verified = Effect.map(worked(scene, verifyOf(backup_id, figures)), ({ reason, state }) => [
        state,
        reason
      ])
      const read = refusalOf(readOf(scene, backup_id, figures?.sha256))
      assert.deepStrictEqual(yield* verified, ["done", undefined])
      for (const key of [`${other.backup_id}/part-00001`, `${backup_id}/../${other.backup_id}/part-00001`]) {
        forge([{ ...evil.parts[0], key }])
        const why = `the manifest of backup ${backup_id} is damaged: the part ${key} is not of this backup`
        assert.deepStrictEqual(yield* verified, ["failed", why])
        assert.include(yield* read, why)
      }
      const name = "part-00001"
      copyFileSync(join(folderOf(scene, other.backup_id), name), join(folderOf(scene, backup_id), name))
      forge([{ ...evil.parts[0], key: `${backup_id}/${name}` }])
      const why = `the archive of backup ${backup_id} is damaged: its SHA-256 is another`
      assert.deepStrictEqual(yield* verified, ["failed", why])
      assert.include(yield* read, why)
    })
  )
})
