import { existsSync, mkdirSync, readdirSync, renameSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { seal } from "../../../src/daemon/backups/manifest.ts"
import { partsWriter } from "../../../src/daemon/backups/parts.ts"
import { makeCollect, makeSweep } from "../../../src/daemon/backups/sweep.ts"
import { type BackupTarget, folderTarget, ownFolder } from "../../../src/daemon/backups/target.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { filesOf, places } from "../access/scene.ts"
import { createOf, downloaded, folderOf, newId, objectsOf, worked } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

const YESTERDAY = Date.now() / 1000 - 25 * 3600

/** A written backup and its base, all of them a day old. */
const scene = Effect.gen(function* () {
  const files = yield* filesOf(place)
  const backup_id = newId()
  const { figures, reason } = yield* worked(files, { ...createOf(backup_id), contents: "written" })
  assert.strictEqual(reason, undefined)
  const age = (id: string) => {
    for (const object of readdirSync(folderOf(files, id)))
      utimesSync(join(folderOf(files, id), object), YESTERDAY, YESTERDAY)
    utimesSync(folderOf(files, id), YESTERDAY, YESTERDAY)
  }
  const lay = (id: string, name: string) => {
    mkdirSync(folderOf(files, id), { recursive: true })
    writeFileSync(join(folderOf(files, id), name), "part")
  }
  const base = objectsOf(files).find((name) => /^base-[0-9a-f]{64}$/.test(name)) ?? ""
  age(base)
  age(backup_id)
  const target = folderTarget(ownFolder(join(files.node.dataDir, "backups")), 0)
  return { ...files, age, backup_id, base, figures, lay, target }
})

const sweep = (target: BackupTarget) => makeSweep(() => false)(target, Date.now())

describe("spec 12.12: what no backup of a target needs", () => {
  it.live("parts of a base whose storing was cut off go, while those that a backup needs stay", () =>
    Effect.gen(function* () {
      const { age, base, lay, target, ...at } = yield* scene
      const whole = objectsOf(at)
      const [cut, stores] = [newId(), newId()]
      lay(base, `${cut}-part-00001`)
      lay(base, `${cut}-part-00002.tmp`)
      lay(base, `${stores}-part-00001`)
      age(base)
      lay(base, `${stores}-part-00002.tmp`)
      yield* sweep(target)
      const young = ["part-00001", "part-00002.tmp"].map((name) => `${base}/${stores}-${name}`)
      assert.deepStrictEqual(objectsOf(at), [...whole, ...young].toSorted())
      yield* downloaded(at, at.backup_id, at.figures)
    })
  )

  it.live("a base that goes does not take the objects of one that another node is just storing", () =>
    Effect.gen(function* () {
      const { backup_id, base, lay, target, ...at } = yield* scene
      yield* target.remove(backup_id)
      const stored = `${newId()}-part-00001`
      const racing: BackupTarget = {
        ...target,
        remove: (id, only) => {
          lay(base, stored)
          return target.remove(id, only)
        }
      }
      yield* sweep(racing)
      assert.deepStrictEqual(objectsOf(at), [base, `${base}/${stored}`])
    })
  )

  it.live("a backup that ends while the manifest of its base goes keeps the parts of the base", () =>
    Effect.gen(function* () {
      const { backup_id, target, ...at } = yield* scene
      // The first look does not see it.
      const aside = join(at.node.dataDir, "aside")
      renameSync(folderOf(at, backup_id), aside)
      const racing: BackupTarget = {
        ...target,
        remove: (id, only) => {
          if (existsSync(aside)) renameSync(aside, folderOf(at, backup_id))
          return target.remove(id, only)
        }
      }
      yield* sweep(racing)
      yield* downloaded(at, backup_id, at.figures)
    })
  )

  it.live("no base goes while a backup is being written, which may need it", () =>
    Effect.gen(function* () {
      const { age, backup_id, base, lay, target, ...at } = yield* scene
      yield* target.remove(backup_id)
      const writing = newId()
      lay(writing, "part-00001.tmp")
      yield* sweep(target)
      assert.include(objectsOf(at), `${base}/manifest.json`)
      age(writing)
      yield* sweep(target)
      assert.deepStrictEqual(objectsOf(at), [])
    })
  )

  it.effect("a base in another target goes after the last backup that needs it, once it is a day old", () =>
    Effect.gen(function* () {
      const [own, folder] = [yield* temporaryFolder, yield* temporaryFolder]
      const target = folderTarget(ownFolder(folder), 0)
      const id = `base-${"0".repeat(64)}`
      yield* Effect.scoped(
        Effect.gen(function* () {
          const writer = yield* partsWriter(target, `${id}/${newId()}-part`)
          const { bytes, parts } = yield* writer.end
          yield* seal(
            target,
            id,
            JSON.stringify({ digest: "0".repeat(64), bytes, parts, frames: [], index: [] })
          )
        })
      )
      let sweeps = 0
      const watched: BackupTarget = {
        ...target,
        remove: (one, only) =>
          Effect.tap(target.remove(one, only), () =>
            Effect.sync(() => {
              if (one !== id) sweeps += 1
            })
          )
      }
      const node = folderTarget(ownFolder(own), 0)
      const collect = yield* makeCollect(
        node,
        makeSweep(() => false)
      )
      yield* collect.removed({ type: "node", folder }, watched)
      yield* TestClock.adjust("1 minute")
      yield* until("it was looked at", () => sweeps === 1)
      assert.deepStrictEqual(readdirSync(folder), [id])
      for (const name of readdirSync(join(folder, id)))
        utimesSync(join(folder, id, name), YESTERDAY, YESTERDAY)
      yield* TestClock.adjust("1 day")
      yield* until("it was looked at again", () => sweeps === 2)
      assert.deepStrictEqual(readdirSync(folder), [])
    }).pipe(Effect.scoped)
  )

  it.live("a damaged manifest keeps all bases, and nothing else", () =>
    Effect.gen(function* () {
      const { age, backup_id, base, lay, target, ...at } = yield* scene
      writeFileSync(join(folderOf(at, backup_id), "manifest.json"), "{}")
      const unfinished = newId()
      lay(unfinished, "part-00001")
      for (const id of [backup_id, unfinished]) age(id)
      const whole = objectsOf(at).filter((name) => name.startsWith("base-"))
      const first = Effect.map(target.list, (all) => all.toSorted(({ id }) => (id === backup_id ? -1 : 1)))
      yield* sweep({ ...target, list: first })
      assert.isFalse(existsSync(folderOf(at, unfinished)))
      assert.deepStrictEqual(
        objectsOf(at).filter((name) => name.startsWith(base)),
        whole
      )
    })
  )
})
