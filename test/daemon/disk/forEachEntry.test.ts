import * as fs from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { forEachEntry, isEmptyFolder, removeTree } from "../../../src/daemon/disk/fsio.ts"
import { treeSize } from "../../../src/daemon/files/copyTree.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const FILES = 2500

const filled = Effect.map(temporaryFolder, (folder) => {
  const many = join(folder, "many")
  fs.mkdirSync(join(many, "inner", "empty"), { recursive: true })
  for (let n = 0; n < FILES; n++) fs.writeFileSync(join(many, `f${n}`), "")
  fs.writeFileSync(Buffer.concat([Buffer.from(`${many}/inner/`), Buffer.from([0xff, 0xfe])]), "x")
  return { folder, many }
})

describe("Folders with many files", () => {
  it.effect(
    "every entry is met once, files before folders of a batch, and at most a batch is in memory",
    () =>
      Effect.gen(function* () {
        const { many } = yield* filled
        const met = new Map<string, number>()
        let now = 0
        let most = 0
        const use = ({ name }: { readonly name: Buffer }) =>
          Effect.gen(function* () {
            most = Math.max(most, ++now)
            yield* Effect.yieldNow
            now--
            met.set(String(name), (met.get(String(name)) ?? 0) + 1)
          })
        yield* forEachEntry(many, use, { others: 8 })
        assert.deepStrictEqual([met.size, new Set(met.values()), most], [FILES + 1, new Set([1]), 8])
      })
  )

  it.effect("a missing folder is empty, and cannot be read", () =>
    Effect.gen(function* () {
      const { folder } = yield* filled
      const failed = yield* Effect.flip(forEachEntry(join(folder, "none"), () => Effect.void))
      assert.strictEqual(failed.code, "ENOENT")
      assert.deepStrictEqual(
        [yield* isEmptyFolder(join(folder, "none")), yield* isEmptyFolder(folder)],
        [true, false]
      )
    })
  )

  it.effect("all entries count; a tree is removed with names of any bytes and closed folders", () =>
    Effect.gen(function* () {
      const { folder, many } = yield* filled
      const { entries, unmeasured } = yield* treeSize(many)
      assert.deepStrictEqual([entries, unmeasured], [FILES + 3, undefined])
      fs.chmodSync(join(many, "inner"), 0)
      yield* removeTree(many)
      assert.deepStrictEqual(fs.readdirSync(folder), [])
    })
  )
})
