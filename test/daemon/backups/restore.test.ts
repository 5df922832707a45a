import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { eventually, until } from "../../support/eventually.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { harness } from "../support.ts"
import { compared, downloaded, folderOf, here, made, newId, restoreOf, storedOf, worked } from "./scene.ts"

/** What differs between two folders, but for the volumes of the server. */
const differencesOf = (one: string, other: string) => {
  try {
    execFileSync("diff", ["-r", "--no-dereference", "--exclude=shared", one, other])
    return ""
  } catch (error) {
    return String(error)
  }
}

/** Writes files of every kind, and returns the archive of their backup unpacked. */
const backedUp = Effect.fnUntraced(function* (scene: Effect.Success<ReturnType<typeof filesOf>>) {
  const { folder } = scene
  const world = join(folder, "world")
  mkdirSync(join(world, "a".repeat(120), "b".repeat(120)), { recursive: true })
  writeFileSync(join(world, "level.dat"), randomBytes(2_000_001))
  writeFileSync(Buffer.from(`${world}/\xff\xfe.txt`, "latin1"), "bytes")
  symlinkSync("/etc/hostname", join(folder, "link"))
  put(folder, "plugins/a.yml", "changed")
  rmSync(join(folder, "server.jar"))
  put(folder, "run.sh", "#!/bin/sh")
  chmodSync(join(folder, "run.sh"), 0o750)
  utimesSync(join(folder, "run.sh"), 1_000_000_000, 1_000_000_000)
  const { backup_id, figures } = yield* made(scene)
  const { to } = yield* downloaded(scene, backup_id, figures)
  return { backup_id, figures, to }
})

/** Changes files of a server in every way. */
const spoil = (folder: string) => {
  put(folder, "world/level.dat", "other")
  put(folder, "server.jar", "is back")
  rmSync(join(folder, "plugins"), { recursive: true })
  put(folder, "plugins", "a file now")
  mkdirSync(join(folder, "new"))
  put(folder, "new/file", "later")
  rmSync(join(folder, "link"))
}

for (const [name, place] of Object.entries(places)) {
  describe(`spec 12.5: restoring a backup: ${name}`, () => {
    it.live("the server has exactly the files of the backup, and its volumes as they are", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, {
          volumes: [{ name: "s", source: "shared", target: "shared", mode: "rw" }],
          files: { volumes: "write" }
        })
        const { folder, node } = scene
        const { backup_id, figures, to } = yield* backedUp(scene)
        spoil(folder)
        yield* scene.write("/shared/v.txt", "newer")
        const end = yield* worked(scene, restoreOf(backup_id, figures))
        assert.deepInclude(end, { state: "done" }, end.reason)
        assert.strictEqual(differencesOf(folder, to), "")
        assert.strictEqual(statSync(join(folder, "run.sh")).mode & 0o777, 0o750)
        assert.strictEqual(statSync(join(folder, "run.sh")).mtimeMs, 1_000_000_000_000)
        assert.strictEqual(readFileSync(join(node.dataDir, "volumes/shared/v.txt"), "utf8"), "newer")
        assert.strictEqual(yield* scene.read("/shared/v.txt"), "newer")
        assert.notInclude(readdirSync(join(folder, "..")).join(), "old")
        yield* node.daemon.power(scene.id, "start", 30)
        yield* until("the server runs", () => node.statuses(scene.id).includes("running"))
      })
    )

    it.live("files of another server where this one has a volume are left out, and both runs name them", () =>
      Effect.gen(function* () {
        const from = yield* filesOf(place)
        const { node } = from
        mkdirSync(join(from.folder, "shared/deep"), { recursive: true })
        put(from.folder, "shared/a.txt", "a")
        put(from.folder, "shared/deep/b.txt", "b")
        put(from.folder, "readonly", "no folder")
        const backup = yield* made(from)
        const volumes = [
          { name: "s", source: "shared", target: "shared", mode: "rw" },
          { name: "r", source: "readonly", target: "readonly", mode: "ro" }
        ] as const
        const to = yield* filesOf(place, { volumes, files: { volumes: "write" } }, node)
        const { covered } = yield* compared(to, backup)
        assert.deepStrictEqual(covered?.first.toSorted(), [
          "/readonly",
          "/shared/a.txt",
          "/shared/deep",
          "/shared/deep/b.txt"
        ])
        const operation = newId()
        const end = yield* worked(to, restoreOf(backup.backup_id, backup.figures), operation)
        assert.strictEqual(end.state, "done", end.reason)
        assert.match(end.reason ?? "", /^left out, .*: 3 files of the backup, such as /)
        for (const path of ["/readonly", "/shared/a.txt", "/shared/deep/b.txt"])
          assert.include(end.reason, path)
        assert.strictEqual(readFileSync(join(node.dataDir, "volumes/shared/v.txt"), "utf8"), "volume")
        const own = yield* worked(from, restoreOf(backup.backup_id, backup.figures))
        assert.deepInclude(own, { state: "done" })
        assert.notProperty(own, "reason")
        assert.notProperty(yield* compared(from, backup), "covered")
        yield* node.close
        const { daemon } = yield* harness({ instanceFiles: place.instanceFiles ?? "auto" }, node.dataDir)
        for (const arrives of [false, true]) {
          const task = restoreOf(backup.backup_id, backup.figures, arrives)
          const { reason, state } = yield* worked({ backups: daemon.backups, id: to.id }, task, operation)
          assert.deepStrictEqual({ reason, state }, { reason: end.reason, state: "done" })
        }
      })
    )

    it.live("an archive from another node is checked before it is in place, and may be sent again", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backups, folder, id } = scene
        const { backup_id, figures, to } = yield* backedUp(scene)
        spoil(folder)
        const archive = Buffer.concat(
          yield* Effect.scoped(
            Effect.flatMap(backups.archive(storedOf(backup_id, figures)), Stream.runCollect)
          )
        )
        const request = { operation_id: newId(), task: restoreOf(backup_id, figures, true), target: here }
        const send = (...bytes: ReadonlyArray<Buffer>) =>
          backups.receive(id, request, Stream.fromIterable(bytes))
        assert.strictEqual((yield* backups.work(id, request)).state, "waiting")
        const broken = Stream.concat(
          Stream.make(archive.subarray(0, 1000)),
          Stream.fail("the connection broke")
        )
        assert.strictEqual(yield* Effect.flip(backups.receive(id, request, broken)), "the connection broke")
        yield* eventually(backups.work(id, request), ({ state }) => state === "waiting")
        const unended = Stream.concat(Stream.make(archive.subarray(0, 1000)), Stream.never)
        const sender = yield* Effect.forkChild(backups.receive(id, request, unended))
        yield* eventually(backups.work(id, request), ({ state }) => state === "running")
        yield* Fiber.interrupt(sender)
        const left = yield* eventually(backups.work(id, request), ({ state }) => state !== "running")
        assert.deepStrictEqual([left.state, left.reason], ["waiting", undefined])
        assert.match(
          yield* refusalOf(send(archive.subarray(0, -1), Buffer.of((archive.at(-1) ?? 0) ^ 1))),
          /422 the archive is damaged: it has (\d+) of \1 bytes, or its SHA-256 is another/
        )
        assert.strictEqual(readFileSync(join(folder, "world/level.dat"), "utf8"), "other")
        yield* send(archive)
        const end = yield* worked(scene, request.task, request.operation_id)
        assert.strictEqual(end.state, "done", end.reason)
        assert.strictEqual(differencesOf(folder, to), "")
      })
    )

    it.live.each([
      ["all files", undefined],
      ["merge", { mode: "merge", paths: ["/world"] }],
      ["replace", { mode: "replace", paths: ["/world"] }]
    ] as const)(
      "%s: a cancellation leaves the old files, or puts all of the backup in place and says so",
      ([, part]) =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { backups, folder, id } = scene
          const names = Array.from({ length: 300 }, (_, at) => `world/f${at}`)
          const fill = (text: string) => {
            for (const one of names) put(folder, one, text)
          }
          const texts = () => new Set(names.map((one) => readFileSync(join(folder, one), "utf8")))
          fill("old")
          const { backup_id, figures } = yield* made(scene)
          fill("new")
          const task = restoreOf(backup_id, figures, true, part)
          const arriving = { operation_id: newId(), task, target: here }
          // The first byte of the format, after which the rest is awaited.
          const begun = Stream.concat(Stream.make(Buffer.of(0x28)), Stream.never)
          const sender = yield* Effect.forkChild(backups.receive(id, arriving, begun))
          yield* eventually(backups.work(id, arriving), ({ state }) => state === "running")
          assert.isUndefined(yield* backups.cancel(id, arriving))
          yield* Fiber.interrupt(sender)
          assert.deepStrictEqual([...texts()], ["new"])
          const request = { ...arriving, operation_id: newId(), task: { ...task, arrives: false } }
          yield* backups.work(id, request)
          // All files are exchanged meanwhile.
          const read = (one: string) => Effect.try(() => readFileSync(join(folder, one), "utf8"))
          yield* until(
            "a file is in place",
            Effect.map(
              Effect.forEach(names, (one) => Effect.orElseSucceed(read(one), () => "")),
              (all) => all.includes("old")
            )
          )
          for (const _ of ["first", "repeated"])
            assert.deepStrictEqual(yield* backups.cancel(id, request), {})
          assert.deepStrictEqual([...texts()], ["old"])
          assert.notInclude(readdirSync(folder).join(), ".muster")
        })
    )

    it.live(
      "spec 12.1: a backup says that no restore of it fits the disk limit, also once it is asked again",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place, { limits: { disk_space: 20 } })
          writeFileSync(join(scene.folder, "noise.bin"), randomBytes(30_000_000))
          const { backup_id, reason, state } = yield* made(scene)
          assert.match(
            `${state}: ${reason}`,
            /^done: a restore of it needs 30\.0 MB, and .* 20\.0 MB: raise its disk_space$/
          )
          assert.strictEqual((yield* made(scene, backup_id)).reason, reason)
          rmSync(join(scene.folder, "noise.bin"))
          assert.notProperty(yield* made(scene), "reason")
        })
    )

    it.live("a damaged part, and an archive that does not fit, change nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, { limits: { disk_space: 20 } })
        const { folder } = scene
        writeFileSync(join(folder, "noise.bin"), randomBytes(15_000_000))
        const { backup_id, figures } = yield* made(scene)
        rmSync(join(folder, "noise.bin"))
        put(folder, "present.txt", "present")
        const part = join(folderOf(scene, backup_id), "part-00001")
        const [bytes, before] = [readFileSync(part), readdirSync(folder)]
        truncateSync(part, 1_000_000)
        const damaged = yield* worked(scene, restoreOf(backup_id, figures))
        assert.match(damaged.reason ?? "", /part-00001 is damaged/)
        writeFileSync(part, bytes)
        assert.deepStrictEqual(readdirSync(folder), before)
        assert.isFalse(existsSync(join(folder, "noise.bin")))
        const end = yield* worked(scene, restoreOf(backup_id, figures))
        assert.strictEqual(end.state, "done", end.reason)
        assert.strictEqual(statSync(join(folder, "noise.bin")).size, 15_000_000)
      })
    )
  })
}
