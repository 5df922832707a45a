import { linkSync, readdirSync, readFileSync, renameSync, statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { writeAtomic, writeSpared } from "../../../src/daemon/disk/replaceFile.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { fillDisk, smallDisk } from "../files/scene.ts"

const BLOCK = 4096

/** Asserts the text of a file, and that its spare is another file with as much room. */
const assertSpared = (path: string, text: string) => {
  assert.strictEqual(readFileSync(path, "utf8"), text)
  const [own, spare] = [statSync(path), statSync(`${path}.spare`)]
  assert.notStrictEqual(own.ino, spare.ino)
  assert.isAtLeast(Math.ceil(spare.size / BLOCK), Math.ceil(text.length / BLOCK))
}

describe("spec 9.6: disk full on a node: the spare of a state", () => {
  it.live("each write leaves the file and a spare that has as much room; the first text may have none", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const path = join(folder, "state")
      yield* writeAtomic(path, "first")
      for (const size of [10, 5000, 20, 9000, 9001, 1]) {
        const text = "x".repeat(size)
        yield* writeSpared(path, text)
        assertSpared(path, text)
        assert.deepStrictEqual(readdirSync(folder).toSorted(), ["state", "state.spare"])
      }
    }).pipe(Effect.scoped)
  )

  it.live(
    "a write does not change the files of earlier writes, which the disk may still have in its place",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const path = join(folder, "state")
        const texts = ["first", "second", "x".repeat(5000), "fourth"]
        for (const [index, text] of texts.entries()) {
          yield* index === 0 ? writeAtomic(path, text) : writeSpared(path, text)
          linkSync(path, join(folder, String(index)))
        }
        for (const [index, text] of texts.entries()) {
          assert.strictEqual(readFileSync(join(folder, String(index)), "utf8"), text)
        }
      }).pipe(Effect.scoped)
  )
})

describe.runIf(process.getuid?.() === 0)("spec 9.6: disk full on a node: a write without room", () => {
  it.live("it succeeds as often as needed, also after a crash at any of its points", () =>
    Effect.gen(function* () {
      for (const done of [0, 1, 2]) {
        const disk = yield* smallDisk(1)
        const path = join(disk, "state")
        yield* writeSpared(path, "first")
        yield* writeSpared(path, "second")
        const { free } = fillDisk(disk)
        assert.strictEqual(Exit.isFailure(yield* Effect.exit(writeAtomic(join(disk, "other"), "x"))), true)
        if (done > 0) linkSync(path, `${path}.former`)
        if (done > 1) renameSync(`${path}.spare`, path)
        for (const text of ["third", "fourth", "x".repeat(BLOCK)]) {
          yield* writeSpared(path, text)
          assertSpared(path, text)
        }
        assert.deepStrictEqual(
          readdirSync(disk)
            .filter((name) => name.startsWith("state"))
            .toSorted(),
          ["state", "state.spare"]
        )
        free()
      }
    }).pipe(Effect.scoped)
  )

  it.live("the file is not its own spare after a crash: the write fails and leaves the file", () =>
    Effect.gen(function* () {
      const disk = yield* smallDisk(1)
      const path = join(disk, "state")
      yield* writeAtomic(path, "first")
      linkSync(path, `${path}.spare`)
      const { free } = fillDisk(disk)
      const failed = yield* Effect.flip(writeSpared(path, "second"))
      assert.deepStrictEqual([failed.code, readFileSync(path, "utf8")], ["ENOSPC", "first"])
      free()
      yield* writeSpared(path, "second")
      assertSpared(path, "second")
    }).pipe(Effect.scoped)
  )
})
