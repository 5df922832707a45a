/** Backups that pack copies of a server's files while the server goes on. */
import { execFileSync } from "node:child_process"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Quiesce } from "../../../src/contract/domain/Quiesce.ts"
import { makeHold } from "../../../src/daemon/backups/hold.ts"
import { eventually, until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { put } from "../access/scene.ts"
import { btrfsDisk, withBtrfs, withXfs, xfsDisk } from "../files/scene.ts"
import { harness } from "../support.ts"
import { commands, HOLES, quiescing, runningQuiet, slow, slowly } from "./quietScene.ts"
import { downloaded, here, newId } from "./scene.ts"

const storages = {
  overlay: { options: { instanceFiles: "overlay" }, contents: "written" },
  "plain folder": { options: { instanceFiles: "copy" }, contents: "full" }
} as const

/** A running server on a file system whose files can share blocks. */
const running = Effect.fnUntraced(function* (storage: keyof typeof storages, disk: typeof xfsDisk = xfsDisk) {
  const { contents, options } = storages[storage]
  const dataDir = join(yield* disk, "data")
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
          const { reason, state } = yield* eventually(again.work, (it) => it.state !== "running")
          assert.strictEqual(state, "done", reason)
          assert.isFalse(existsSync(held))
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

/** A server that is held still, and the first look at its backup at which bytes were read. */
const underway = Effect.fnUntraced(function* (
  scene: Effect.Success<ReturnType<typeof running>>,
  bytes: number
) {
  const { work } = scene.begin(commands)
  const { state } = yield* eventually(
    work,
    ({ progress, state }) => progress.done > bytes || state !== "running"
  )
  assert.strictEqual(state, "running")
  const held = existsSync(scene.held) ? readdirSync(scene.held) : []
  return {
    held,
    isStill: scene.state().quiesced !== undefined,
    end: eventually(work, (it) => it.state !== "running")
  }
})

describe.runIf(withXfs)("spec 12.3: a server that may fill the disk with blocks that it overwrites", () =>
  it.live("is held still until its files are packed", () =>
    Effect.gen(function* () {
      const scene = yield* running("plain folder")
      for (let n = 0; n < 4; n++) writeFileSync(join(scene.folder, `region${n}`), Buffer.alloc(HOLES))
      const { end, held, isStill } = yield* underway(scene, HOLES)
      assert.deepStrictEqual({ held, isStill }, { held: [], isStill: true })
      assert.strictEqual((yield* end).figures?.consistency, "quiesced")
      yield* until("the server is released", () => scene.state().quiesced === undefined)
    })
  )
)

const btrfs = withBtrfs ? "" : " (skipped: needs root, btrfs-progs, a loop device and a kernel with btrfs)"
describe.runIf(withBtrfs)(`spec 12.3: a file that btrfs has without checksums${btrfs}`, () =>
  it.live("is in the backup, and the server is held still until its files are packed", () =>
    Effect.gen(function* () {
      const scene = yield* running("plain folder", btrfsDisk)
      const { begin, folder } = scene
      writeFileSync(join(folder, "players.db"), "")
      execFileSync("chattr", ["+C", join(folder, "players.db")])
      put(folder, "players.db", "players")
      const { request, work } = begin(commands)
      const { figures } = yield* eventually(work, (it) => it.state !== "running")
      assert.deepInclude(figures, { consistency: "quiesced", changed_files: 0 })
      const { to } = yield* downloaded(scene, request.task.backup_id, figures)
      assert.strictEqual(readFileSync(join(to, "players.db"), "utf8"), "players")
    })
  )
)

describe("spec 12.3: copies of files that share their blocks", () => {
  it.live("fail otherwise than a file that the server has removed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      put(folder, "file", "one")
      const walked = { path: "/file", name: Buffer.from("file") }
      const error = yield* Effect.flip(makeHold(join(folder, "missing"), folder)(walked))
      assert.strictEqual(error.code, "EHELD")
      rmSync(join(folder, "file"))
      assert.strictEqual((yield* Effect.flip(makeHold(folder, folder)(walked))).code, "ENOENT")
    })
  )

  it.live.runIf(withXfs)("have no set-id bits, and are the daemon's alone", () =>
    Effect.gen(function* () {
      const folder = yield* xfsDisk
      put(folder, "file", "one")
      chmodSync(join(folder, "file"), 0o6755)
      const walked = { path: "/file", name: Buffer.from("file") }
      const { mode } = statSync(yield* makeHold(folder, folder)(walked))
      assert.strictEqual(mode & 0o7777, 0o600)
    })
  )
})

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
        const walked = { path: `/${path}`, name: Buffer.from(path) }
        const error = yield* Effect.flip(hold(walked))
        assert.match(error.code, /^(ELOOP|ENOTDIR)$/)
      }
    })
  ))
