/** Backups that pack copies of a server's files while the server goes on. */
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Quiesce } from "../../../src/contract/domain/Quiesce.ts"
import { makeHold } from "../../../src/daemon/backups/hold.ts"
import { eventually, until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { put } from "../access/scene.ts"
import { withXfs, xfsDisk } from "../files/scene.ts"
import { harness } from "../support.ts"
import { commands, quiescing, runningQuiet, slow, slowly } from "./quietScene.ts"
import { downloaded, here, newId } from "./scene.ts"

const storages = {
  overlay: { options: { instanceFiles: "overlay" }, contents: "written" },
  "plain folder": { options: { instanceFiles: "copy" }, contents: "full" }
} as const

/** A running server on a file system whose files can share blocks. */
const running = Effect.fnUntraced(function* (storage: keyof typeof storages) {
  const { contents, options } = storages[storage]
  const dataDir = join(yield* xfsDisk, "data")
  const node = yield* harness({ ...options, ...slowly }, dataDir)
  const scene = yield* runningQuiet({ far: false }, {}, node)
  const begin = (quiesce: Quiesce) => {
    const request = { operation_id: newId(), task: { ...quiescing(quiesce), contents }, target: here }
    return { request, work: scene.backups.work(scene.id, request) }
  }
  return { ...scene, begin, held: join(dataDir, "backups-held") }
})

describe.runIf(withXfs)(
  "spec 12.3: where files can share blocks, the server goes on while they are packed",
  () => {
    for (const storage of ["overlay", "plain folder"] as const) {
      it.live(`${storage}: the backup has the files of the time in which the server held still`, () =>
        Effect.gen(function* () {
          const scene = yield* running(storage)
          const { begin, folder, got, held, state } = scene
          mkdirSync(join(folder, "deep/er"), { recursive: true })
          put(folder, "deep/er/world.txt", "before")
          writeFileSync(Buffer.from(`${folder}/deep/\xff.txt`, "latin1"), "before")
          symlinkSync("world.txt", join(folder, "deep/er/link"))
          put(folder, "plugins/a.yml", "changed")
          slow(folder)
          const { request, work } = begin(commands)
          yield* eventually(work, () => got().at(-1) === "save-on")
          assert.strictEqual((yield* work).state, "running")
          yield* until("the server is released", () => state().quiesced === undefined)
          put(folder, "deep/er/world.txt", "after, and longer")
          const { figures, state: end } = yield* eventually(work, (it) => it.state !== "running")
          assert.deepInclude(figures, { consistency: "quiesced", changed_files: 0 })
          assert.strictEqual(end, "done")
          assert.isFalse(existsSync(held))
          const { to } = yield* downloaded(scene, request.task.backup_id, figures)
          assert.strictEqual(readFileSync(join(to, "deep/er/link"), "utf8"), "before")
          assert.strictEqual(readFileSync(Buffer.from(`${to}/deep/\xff.txt`, "latin1"), "utf8"), "before")
          assert.strictEqual(readFileSync(join(to, "plugins/a.yml"), "utf8"), "changed")
          assert.strictEqual(readFileSync(join(to, "server.jar"), "utf8"), "jar\n")
        })
      )

      it.live(`${storage}: a server may be restarted or deleted meanwhile`, () =>
        Effect.gen(function* () {
          const { begin, folder, got, held, id, node } = yield* running(storage)
          slow(folder)
          const { work } = begin(commands)
          yield* eventually(work, () => got().at(-1) === "save-on")
          yield* node.daemon.power(id, "restart", 30)
          assert.strictEqual((yield* work).state, "running")
          const { figures } = yield* eventually(work, (it) => it.state !== "running")
          assert.strictEqual(figures?.consistency, "quiesced")
          const again = begin({ by: "stop" })
          yield* eventually(again.work, ({ progress }) => progress.done > 0)
          yield* node.daemon.remove(id)
          yield* until("the folder of the server is gone", () => !existsSync(folder))
          yield* until("nothing is held", () => !existsSync(held))
        })
      )
    }

    it.live(
      "a cancelled backup holds nothing any more, and a daemon that starts removes what a killed one held",
      () =>
        Effect.gen(function* () {
          const { backups, begin, folder, got, held, id } = yield* running("overlay")
          slow(folder)
          const { request, work } = begin(commands)
          yield* eventually(work, () => got().at(-1) === "save-on")
          assert.isTrue(existsSync(held))
          yield* backups.cancel(id, request)
          assert.isFalse(existsSync(held))
          const dataDir = yield* temporaryFolder
          mkdirSync(join(dataDir, "backups-held"))
          writeFileSync(join(dataDir, "backups-held", "0"), "left")
          yield* harness({}, dataDir)
          assert.isFalse(existsSync(join(dataDir, "backups-held")))
        })
    )
  }
)

describe("spec 10.5: a server that exchanges folders for links while its files are held", () =>
  it.live("no link in a layer is followed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      for (const name of ["layer", "outside", "held"]) mkdirSync(join(folder, name))
      put(folder, "outside/secret", "secret")
      symlinkSync(join(folder, "outside"), join(folder, "layer/world"))
      symlinkSync(join(folder, "outside/secret"), join(folder, "layer/file"))
      const hold = makeHold(join(folder, "held"), join(folder, "layer"))
      for (const path of ["world/secret", "file"]) {
        const walked = { path: `/${path}`, name: Buffer.from(path), real: join(folder, "outside/secret") }
        const error = yield* Effect.flip(hold(walked))
        assert.match(error.code, /^(ELOOP|ENOTDIR)$/)
      }
    })
  ))
