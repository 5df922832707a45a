/** Files made aside go into place, whatever step a killed daemon has reached (spec 12.5). */
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import {
  isBuilt,
  markReady,
  notePlaced,
  placedNote,
  recoverFiles
} from "../../../src/daemon/files/swapFiles.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const made = (folder: string, name: string, text: string) => {
  mkdirSync(join(folder, name))
  writeFileSync(join(folder, name, "which"), text)
}

const which = (folder: string, name: string) => readFileSync(join(folder, name, "which"), "utf8")

type Step = (folder: string) => void
const moved =
  (from: string, to: string): Step =>
  (folder) =>
    renameSync(join(folder, from), join(folder, to))

/** The steps of the daemon after its decision, and the names that old and new files have. */
const changes = {
  "a plain folder": {
    old: ["files"],
    aside: "files.building",
    in: "files",
    steps: [moved("files", "files.old"), moved("files.building", "files")]
  },
  layers: {
    old: ["files", "tree"],
    aside: "tree.building",
    in: "tree",
    steps: [
      moved("files", "files.old"),
      moved("tree", "tree.old"),
      (folder: string) => mkdirSync(join(folder, "files")),
      moved("tree.building", "tree")
    ]
  }
} as const

for (const [name, change] of Object.entries(changes)) {
  describe(`spec 12.5: a daemon is killed while it puts files in place: ${name}`, () => {
    for (let killedAfter = 0; killedAfter <= change.steps.length; killedAfter++) {
      it.effect(`after step ${killedAfter}, the next daemon has the new files alone`, () =>
        Effect.gen(function* () {
          const folder = yield* temporaryFolder
          for (const one of change.old) made(folder, one, "old")
          made(folder, change.aside, "new")
          assert.isTrue(yield* isBuilt(folder))
          yield* markReady(folder, "task and its note")
          for (const step of change.steps.slice(0, killedAfter)) step(folder)
          yield* recoverFiles(folder)
          assert.strictEqual(which(folder, change.in), "new")
          assert.strictEqual(yield* placedNote(folder, "task"), "and its note")
          assert.sameMembers(readdirSync(folder), [...change.old, "files.placed"])
          yield* recoverFiles(folder)
          assert.strictEqual(which(folder, change.in), "new")
        })
      )
    }

    it.effect("a later task does not make an earlier one unknown", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        for (const task of ["first", "second"]) {
          made(folder, change.aside, "new")
          yield* markReady(folder, task)
          yield* recoverFiles(folder)
        }
        yield* notePlaced(folder, "third")
        assert.deepStrictEqual(
          yield* Effect.forEach(["first", "second", "third", "fourth"], (task) => placedNote(folder, task)),
          ["", "", "", undefined]
        )
      })
    )

    it.effect("before its decision, the next daemon has the old files", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        for (const one of change.old) made(folder, one, "old")
        made(folder, change.aside, "new")
        yield* recoverFiles(folder)
        for (const one of change.old) assert.strictEqual(which(folder, one), "old")
        assert.isUndefined(yield* placedNote(folder, "task"))
      })
    )
  })
}
