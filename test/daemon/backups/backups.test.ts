import { execFileSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { eventually, until } from "../../support/eventually.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { harness } from "../support.ts"
import { HOLES, slow, slowly } from "./quietScene.ts"
import {
  createOf,
  downloaded,
  folderOf,
  here,
  indexOf,
  made,
  manifestOf,
  newId,
  objectsOf,
  readOf,
  restoreOf,
  verifyOf,
  worked
} from "./scene.ts"

const digest = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex")

/** What tar and diff tell of two folders; the volume of the server is not part of a backup. */
const differencesOf = (one: string, other: string) => {
  try {
    execFileSync("diff", ["-r", "--no-dereference", "--exclude=shared", one, other])
    return ""
  } catch (error) {
    return String(error)
  }
}

for (const [name, place] of Object.entries(places)) {
  describe(`spec 12.3: backups on the node: ${name}`, () => {
    it.live("a backup has every file of the server byte for byte, and none of its volumes", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, { files: { deny: ["secret.txt"] } })
        const { backups, folder, node } = scene
        const world = join(folder, "world")
        const long = join(world, "a".repeat(120), "b".repeat(120))
        mkdirSync(long, { recursive: true })
        mkdirSync(join(folder, "empty"))
        const large = randomBytes(3_000_001)
        writeFileSync(join(long, "large.bin"), large)
        writeFileSync(Buffer.from(`${world}/\xff\xfe.txt`, "latin1"), "bytes")
        put(folder, "secret.txt", "hidden from callers")
        put(folder, "run.sh", "#!/bin/sh")
        chmodSync(join(folder, "run.sh"), 0o750)
        utimesSync(join(folder, "run.sh"), 1_000_000_000, 1_000_000_000)
        symlinkSync("../outside", join(folder, "link"))
        const { backup_id, figures, state } = yield* made(scene)
        assert.strictEqual(state, "done")
        const { sha256, to } = yield* downloaded(scene, backup_id, figures)
        assert.strictEqual(differencesOf(folder, to), "")
        assert.strictEqual(readlinkSync(join(to, "link")), "../outside")
        assert.strictEqual(statSync(join(to, "run.sh")).mode & 0o777, 0o750)
        assert.strictEqual(statSync(join(to, "run.sh")).mtimeMs, 1_000_000_000_000)
        assert.strictEqual(figures?.sha256, sha256)
        assert.strictEqual(figures?.consistency, "stopped")
        assert.strictEqual(figures?.changed_files, 0)
        assert.isAbove(figures?.stored_bytes ?? 0, large.length)
        const entry = indexOf(scene, backup_id).get(`/world/${"a".repeat(120)}/${"b".repeat(120)}/large.bin`)
        assert.deepInclude(entry, { type: "file", size: large.length, sha256: digest(large) })
        const manifest = manifestOf(scene, backup_id)
        assert.deepInclude(manifest.server, { server_name: "one", labels: { team: "a" } })
        assert.strictEqual(manifest.spec.definition.blueprint_id, "test")
        for (const object of objectsOf(scene)) {
          const { mode } = statSync(join(node.dataDir, "backups", object))
          assert.strictEqual(mode & 0o077 & ~0o070, 0, object)
        }
        yield* backups.remove(backup_id, here)
        yield* backups.remove(backup_id, here)
        assert.deepStrictEqual(objectsOf(scene), [])
        assert.strictEqual(
          yield* refusalOf(readOf(scene, backup_id, figures)),
          `404 the target does not have backup ${backup_id}`
        )
      })
    )

    it.live("many small files, whose headers and entries fill many chunks, are in the backup", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { folder } = scene
        const world = join(folder, "world")
        mkdirSync(world, { recursive: true })
        for (let n = 0; n < 800; n++) writeFileSync(join(world, `chunk.${n}.dat`), randomBytes(n % 700))
        const { backup_id, figures, state } = yield* made(scene)
        assert.strictEqual(state, "done")
        assert.isAtLeast(figures?.files ?? 0, 800)
        const { to } = yield* downloaded(scene, backup_id, figures)
        assert.strictEqual(differencesOf(folder, to), "")
        assert.isAtLeast(indexOf(scene, backup_id).size, 800)
      })
    )

    it.live("a damaged or missing part is found by verification, and breaks a download", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { folder } = scene
        writeFileSync(join(folder, "noise.bin"), randomBytes(1_000_000))
        const { backup_id, figures } = yield* made(scene)
        const verify = verifyOf(backup_id, figures)
        const good = yield* worked(scene, verify)
        assert.strictEqual(good.state, "done")
        assert.strictEqual(good.progress.done, good.progress.total)
        const part = join(folderOf(scene, backup_id), "part-00001")
        const file = openSync(part, "r+")
        const [byte = 0] = readFileSync(part).subarray(500_000)
        writeSync(file, Buffer.from([byte ^ 1]), 0, 1, 500_000)
        const bad = yield* worked(scene, verify)
        assert.deepInclude(bad, {
          state: "failed",
          damaged: true,
          reason: `${backup_id}/part-00001 is damaged: its SHA-256 is another`
        })
        assert.notStrictEqual(yield* refusalOf(readOf(scene, backup_id, figures)), "no refusal")
        truncateSync(part, 1_000)
        const short = yield* worked(scene, verify)
        assert.match(short.reason ?? "", /part-00001 is damaged: it has 1000 of \d+ bytes/)
        rmSync(part)
        mkdirSync(part)
        const unread = yield* worked(scene, verify)
        assert.deepStrictEqual([unread.state, unread.damaged], ["failed", undefined])
        rmSync(folderOf(scene, backup_id), { recursive: true })
        const gone = `the target does not have backup ${backup_id}`
        const away = yield* worked(scene, verify)
        assert.deepStrictEqual([away.damaged, away.reason], [undefined, gone])
        yield* made(scene)
        const lost = yield* worked(scene, verify)
        assert.deepStrictEqual([lost.damaged, lost.reason], [true, gone])
      })
    )

    it.live("a backup is verified on its node after its server has left it", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { id, node } = scene
        const { backup_id, figures } = yield* made(scene)
        yield* node.daemon.remove(id, { moved: true })
        const { state } = yield* worked(scene, verifyOf(backup_id, figures))
        assert.strictEqual(state, "done")
        const request = { operation_id: newId(), task: restoreOf(backup_id, figures), target: here }
        assert.strictEqual(yield* refusalOf(scene.backups.work(id, request)), `404 server not found: ${id}`)
      })
    )
  })
}

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

/** The I/O classes and weights of the threads of this process. A thread may end meanwhile. */
const weights = () =>
  execFileSync("sh", ["-c", `ionice -p $(ls /proc/${process.pid}/task) || true`], { encoding: "utf8" })

describe("spec 12.3: weight of backups", () => {
  it.live("the thread that reads the files has the lowest one, and no other thread has", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf({ far: false, instanceFiles: "copy" })
      writeFileSync(join(scene.folder, "large.bin"), randomBytes(100_000_000))
      assert.notInclude(weights(), "prio 7")
      const work = yield* Effect.forkChild(made(scene))
      yield* until("the weight of the thread", () => weights().includes("prio 7"))
      assert.strictEqual((yield* Fiber.join(work)).state, "done")
      assert.notInclude(weights(), "prio 7")
    })
  )
})

describe("spec 12.2: consistency", () => {
  it.live("a server that runs is not stopped, and its backup says so; files that change are counted", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf({ ...place, ...slowly })
      const { backups, folder, id, node } = scene
      yield* node.daemon.power(id, "start", 30)
      yield* until("the server runs", () => node.statuses(id).includes("running"))
      slow(folder)
      const task = createOf(newId())
      const operation_id = newId()
      const running = yield* eventually(
        backups.work(id, { operation_id, task, target: here }),
        // The large file is being read.
        ({ progress }) => progress.done > 1024 ** 2
      )
      assert.strictEqual(running.state, "running")
      truncateSync(join(folder, "holes.bin"), 1024)
      const { figures, state } = yield* worked(scene, task, operation_id)
      assert.strictEqual(state, "done")
      assert.deepInclude(figures, { consistency: "crash", changed_files: 1 })
      const { to } = yield* downloaded(scene, task.backup_id, figures)
      assert.strictEqual(statSync(join(to, "holes.bin")).size, HOLES)
      assert.notInclude(node.statuses(id), "stopping")
    })
  )
})

describe("spec 12.4: one task a server", () => {
  it.live(
    "while a backup is made, its node refuses reset, reinstallation and migration; cancelling leaves nothing",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf({ ...place, ...slowly })
        const { backups, folder, id, node } = scene
        slow(folder)
        const request = { operation_id: newId(), task: createOf(newId()), target: here }
        yield* eventually(backups.work(id, request), ({ progress }) => progress.done > 0)
        const busy = `409 operation ${request.operation_id} (backup.create) runs on the server`
        for (const work of [node.daemon.reset(id), node.daemon.reinstall(id), node.daemon.hold(id, true)])
          assert.strictEqual(yield* refusalOf(work), busy)
        assert.strictEqual(
          yield* refusalOf(backups.remove(request.task.backup_id, here)),
          `409 backup ${request.task.backup_id}: a task works on it`
        )
        yield* backups.cancel(id, request)
        yield* backups.cancel(id, request)
        assert.isFalse(existsSync(folderOf(scene, request.task.backup_id)))
        yield* node.daemon.hold(id, true)
        const held = yield* worked(scene, createOf(newId()))
        assert.deepInclude(held, { state: "failed", reason: "the server is migrating" })
        assert.deepStrictEqual(objectsOf(scene), [])
      })
  )
})

describe("spec 12.4: one backup at a time on a node", () => {
  it.live("the next one says why it waits, and no longer once it has begun", () =>
    Effect.gen(function* () {
      const first = yield* filesOf({ ...place, ...slowly })
      slow(first.folder)
      const long = { operation_id: newId(), task: createOf(newId()), target: here }
      yield* eventually(first.backups.work(first.id, long), ({ progress }) => progress.done > 0)
      const second = yield* filesOf(place, {}, first.node)
      const request = { operation_id: newId(), task: createOf(newId()), target: here }
      const progress = Effect.map(second.backups.work(second.id, request), (task) => task.progress)
      const { waiting } = yield* eventually(progress, (now) => now.waiting !== undefined)
      assert.strictEqual(waiting, "the node makes or verifies another backup")
      yield* first.backups.cancel(first.id, long)
      const end = yield* worked(second, request.task, request.operation_id)
      assert.strictEqual(end.state, "done", end.reason)
      assert.notProperty(end.progress, "waiting")
    })
  )
})

describe("spec 12.4: a backup that is cancelled while its files are compressed", () => {
  it.live("ends without a part, and its node makes the next one", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(place)
      const { backups, folder, id } = scene
      writeFileSync(join(folder, "noise.bin"), randomBytes(10_000_000))
      for (let round = 0; round < 5; round++) {
        const request = { operation_id: newId(), task: createOf(newId()), target: here }
        yield* eventually(backups.work(id, request), ({ progress }) => progress.done > round * 1_500_000)
        yield* backups.cancel(id, request)
      }
      assert.deepStrictEqual(objectsOf(scene), [])
      assert.strictEqual((yield* made(scene)).state, "done")
    })
  )
})

describe("spec 12.3: what an unfinished backup leaves", () => {
  it.live("parts without a manifest are removed after 24 h; a finished backup is not made again", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(place)
      const { folder, id, node } = scene
      const { backup_id, figures } = yield* made(scene)
      const [old, recent] = [newId(), newId()]
      const yesterday = Date.now() / 1000 - 25 * 3600
      for (const one of [old, recent]) {
        mkdirSync(folderOf(scene, one))
        writeFileSync(join(folderOf(scene, one), "part-00001"), "part")
      }
      for (const path of [
        join(folderOf(scene, old), "part-00001"),
        folderOf(scene, old),
        join(folderOf(scene, backup_id), "manifest.json"),
        folderOf(scene, backup_id)
      ])
        utimesSync(path, yesterday, yesterday)
      yield* node.close
      const { daemon } = yield* harness({ instanceFiles: place.instanceFiles ?? "auto" }, node.dataDir)
      yield* until("the old parts are gone", () => !existsSync(folderOf(scene, old)))
      assert.isTrue(existsSync(folderOf(scene, recent)))
      put(folder, "later.txt", "not in the backup")
      const again = yield* worked({ backups: daemon.backups, id }, createOf(backup_id))
      assert.deepStrictEqual(again.figures, figures)
      assert.isFalse(indexOf(scene, backup_id).has("/later.txt"))
    })
  )
})
