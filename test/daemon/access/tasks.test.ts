import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  truncateSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ArchiveFormat, type FileChange } from "../../../src/contract/domain/Files.ts"
import type { FileTask } from "../../../src/contract/domain/FileTask.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { eventually } from "../../support/eventually.ts"
import { filesOf, places, put, refusalOf } from "./scene.ts"

const newOperation = () => serverId(idBytes(16))
const taskOf = (changes: ReadonlyArray<FileChange>): FileTask => ({ kind: "change", changes })
const remove = (path: string): FileChange => ({ kind: "delete", path })

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const ends = ({ files, id }: Scene, operation_id: string) =>
  eventually(files.progress(id, operation_id), ({ state }) => state !== "running")

/** Returns all names below a folder that an unfinished change may leave. */
const remnants = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))

/** The bytes of the regular files of a folder on its disk. */
const diskBytes = (folder: string) =>
  Number(execFileSync("du", ["-s", "--block-size=1", folder], { encoding: "utf8" }).split("\t")[0])

const recordAt = ({ folder }: Scene, operation_id: string) =>
  join(dirname(folder), "tasks", `${operation_id}.json`)

const staging = {
  aside: ".muster-00000000-0000-4000-8000-000000000001.tmp",
  old: ".muster-00000000-0000-4000-8000-000000000002.tmp"
}

/** Writes the record of a task that a killed daemon has left after some changes, or with a whole archive. */
const leave = (scene: Scene, operation_id: string, next: number, total: number, copied = false) => {
  const path = recordAt(scene, operation_id)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, JSON.stringify({ state: "running", next, total, refused: 0, copied, staging }))
}

for (const [name, place] of Object.entries(places)) {
  describe(`spec 11.4: tasks on the node: ${name}`, () => {
    it.live("changes are made once, and refusals are counted", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        const names = Array.from({ length: 200 }, (_, n) => `f${n}`)
        for (const one of names) put(folder, one, one)
        const operation_id = newOperation()
        const task = taskOf([remove("/nothing"), ...names.map((one) => remove(`/${one}`)), remove("/")])
        yield* files.begin(id, { operation_id, task })
        yield* files.begin(id, { operation_id, task })
        const end = yield* ends(scene, operation_id)
        assert.deepStrictEqual(end, {
          state: "failed",
          progress: { done: 202, total: 202, unit: "files" },
          reason: "2 of 202 changes were refused; the first: no such path: /nothing"
        })
        assert.isFalse(names.some((one) => existsSync(join(folder, one))))
        put(folder, "f1", "new")
        assert.deepStrictEqual(yield* files.begin(id, { operation_id, task }), end)
        assert.strictEqual(readFileSync(join(folder, "f1"), "utf8"), "new")
      })
    )

    it.live("old records are removed, and not those that other tasks write meanwhile", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, id } = scene
        const old = Array.from({ length: 80 }, newOperation)
        for (const one of old) leave(scene, one, 0, 1)
        const writing = `${recordAt(scene, newOperation())}.tmp`
        writeFileSync(writing, "{}")
        utimesSync(writing, 1, 1)
        const task = taskOf([remove("/nothing")])
        const begun = Array.from({ length: 8 }, newOperation)
        yield* Effect.forEach(begun, (operation_id) => files.begin(id, { operation_id, task }), {
          concurrency: "unbounded"
        })
        for (const one of begun)
          assert.match((yield* ends(scene, one)).reason ?? "", /no such path: \/nothing$/)
        assert.isTrue(existsSync(writing))
        assert.isAtMost(old.filter((one) => existsSync(recordAt(scene, one))).length, 63)
      })
    )

    it.live("progress counts the entries of whole trees", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        mkdirSync(join(folder, "large/inner"), { recursive: true })
        for (let n = 0; n < 100; n++) put(join(folder, "large/inner"), `f${n}`, "x")
        const changes: ReadonlyArray<FileChange> = [
          { kind: "copy", from: "/large", path: "/copy" },
          remove("/large")
        ]
        const operation_id = newOperation()
        yield* files.begin(id, { operation_id, task: taskOf(changes) })
        const end = yield* ends(scene, operation_id)
        const counted = 102 + 101
        assert.deepStrictEqual(end, {
          state: "done",
          progress: { done: counted, total: counted, unit: "files" }
        })
        assert.deepStrictEqual([existsSync(join(folder, "large")), remnants(folder)], [false, []])
      })
    )

    it.live("after the end of its daemon, a task continues with the change that was in doubt", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        put(folder, "b", "b")
        put(folder, "kept", "kept")
        const made = newOperation()
        leave(scene, made, 1, 3)
        assert.strictEqual((yield* files.progress(id, made)).state, "interrupted")
        // The first change is counted, the second one was made without being counted.
        yield* files.begin(id, {
          operation_id: made,
          task: taskOf([remove("/kept"), remove("/a"), remove("/b")])
        })
        const end = yield* ends(scene, made)
        assert.deepStrictEqual(end, { state: "done", progress: { done: 3, total: 3, unit: "files" } })
        assert.deepStrictEqual(
          [existsSync(join(folder, "kept")), existsSync(join(folder, "b"))],
          [true, false]
        )

        const copied = newOperation()
        mkdirSync(join(folder, staging.aside))
        put(join(folder, staging.aside), "half", "half")
        put(folder, staging.old, "replaced")
        leave(scene, copied, 0, 1)
        const copy: FileChange = { kind: "copy", from: "/world", path: "/copy", overwrite: "replace" }
        yield* files.begin(id, { operation_id: copied, task: taskOf([copy]) })
        assert.strictEqual((yield* ends(scene, copied)).state, "done")
        assert.deepStrictEqual(readdirSync(join(folder, "copy")), ["region"])
        assert.deepStrictEqual(remnants(folder), [])
      })
    )

    it.live("a cancelled task leaves nothing that is half made, and does not begin again", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        mkdirSync(join(folder, "large"))
        for (let n = 0; n < 500; n++) put(join(folder, "large"), `f${n}`, "x")
        const operation_id = newOperation()
        const task = taskOf([{ kind: "copy", from: "/large", path: "/copy" }])
        yield* files.begin(id, { operation_id, task })
        yield* files.cancel(id, { operation_id, task })
        yield* files.cancel(id, { operation_id, task })
        assert.strictEqual((yield* files.progress(id, operation_id)).state, "cancelled")
        assert.strictEqual((yield* files.begin(id, { operation_id, task })).state, "cancelled")
        assert.isFalse(existsSync(join(folder, "copy")))
        assert.deepStrictEqual(remnants(folder), [])

        const interrupted = newOperation()
        put(folder, staging.aside, "half")
        put(folder, staging.old, "replaced")
        leave(scene, interrupted, 0, 1)
        yield* files.cancel(id, { operation_id: interrupted, task })
        assert.strictEqual(readFileSync(join(folder, "copy"), "utf8"), "replaced")
        assert.deepStrictEqual(remnants(folder), [])
        const unknown = newOperation()
        yield* files.cancel(id, { operation_id: unknown, task })
        assert.strictEqual(yield* refusalOf(files.progress(id, unknown)), `404 no such path: task ${unknown}`)
      })
    )
  })
}

const pack = (to: string, format: ArchiveFormat, ...paths: ReadonlyArray<string>): FileTask => ({
  kind: "pack",
  paths: paths.length === 0 ? ["/world", "/plugins"] : paths,
  to,
  format
})

for (const [name, place] of Object.entries(places)) {
  describe(`spec 11.4: archives that the node writes: ${name}`, () => {
    it.live("an archive has all that callers may read, and gets its name once it is whole", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, { files: { deny: ["*.key"] } })
        const { files, folder, id } = scene
        put(folder, "world/secret.key", "secret")
        const contents = (path: string) => readFileSync(join(folder, path)).length
        for (const format of ArchiveFormat.literals) {
          const operation_id = newOperation()
          yield* files.begin(id, { operation_id, task: pack(`/made/all.${format}`, format) })
          const end = yield* ends(scene, operation_id)
          const size = contents("world/region/r0") + contents("plugins/a.yml")
          assert.deepStrictEqual(end, {
            state: "done",
            progress: { done: size, total: size, unit: "bytes" }
          })
          const archive = join(folder, `made/all.${format}`)
          const listed =
            format === "zip"
              ? execFileSync("unzip", ["-Z1", archive], { encoding: "utf8" })
              : execFileSync("tar", ["-taf", archive], { encoding: "utf8" })
          const expected = ["plugins/", "plugins/a.yml", "world/", "world/region/", "world/region/r0"]
          assert.deepStrictEqual(listed.trim().split("\n").toSorted(), expected)
        }
        assert.deepStrictEqual(remnants(folder), [])
      })
    )

    it.live("an archive that exists, must not be written or does not fit fails, and leaves nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, {
          files: { deny: ["*.key"], read_only: ["/plugins"] },
          limits: { disk_space: 3 }
        })
        const { files, folder, id } = scene
        writeFileSync(join(folder, "world/big.bin"), randomBytes(2_000_000))
        const fails = Effect.fnUntraced(function* (task: FileTask) {
          const operation_id = newOperation()
          yield* files.begin(id, { operation_id, task })
          const { reason, state } = yield* ends(scene, operation_id)
          assert.strictEqual(state, "failed")
          return reason ?? ""
        })
        put(folder, "old.zip", "old")
        assert.strictEqual(yield* fails(pack("/old.zip", "zip")), "/old.zip: it exists")
        assert.strictEqual(
          yield* fails(pack("/plugins/x.zip", "zip")),
          "/plugins/x.zip: callers may not write it"
        )
        assert.strictEqual(yield* fails(pack("/x.zip", "zip", "/a.key")), "/a.key: callers may not read it")
        assert.strictEqual(yield* fails(pack("/x.zip", "zip", "/none")), "no such path: /none")
        assert.match(
          yield* fails(pack("/new/x.tar", "tar")),
          /^disk: [\d.]+ [KM]B of 3\.0 MB are free, at least [\d.]+ [KM]B are needed$/
        )
        assert.strictEqual(readFileSync(join(folder, "old.zip"), "utf8"), "old")
        assert.deepStrictEqual([existsSync(join(folder, "new")), remnants(folder)], [false, []])
      })
    )

    it.live(
      "progress counts what is read of a sparse file, of how much, of which the archive has a few bytes",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { files, folder, id } = scene
          const bytes = 1_000_000_000_000
          put(folder, "world/sparse", "")
          truncateSync(join(folder, "world/sparse"), bytes)
          const operation_id = newOperation()
          const task = pack("/x.tar.zst", "tar.zst", "/world")
          yield* files.begin(id, { operation_id, task })
          const { progress } = yield* eventually(
            files.progress(id, operation_id),
            ({ progress }) => progress.done > 20_000_000
          )
          assert.strictEqual(progress.total, bytes + "r\n".length)
          assert.isBelow(diskBytes(folder), 2_000_000)
          yield* files.cancel(id, { operation_id, task })
          assert.deepStrictEqual(remnants(folder), [])
        })
    )

    it.live("an archive without contents is known as finished after the end of its daemon", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        put(folder, "world/empty", "")
        const task = pack("/x.zip", "zip", "/world/empty")
        put(folder, "x.zip", "made")
        const operation_id = newOperation()
        leave(scene, operation_id, 0, 0, true)
        yield* files.begin(id, { operation_id, task })
        assert.strictEqual((yield* ends(scene, operation_id)).state, "done")
      })
    )

    it.live("a cancelled one leaves nothing; after the end of its daemon, the work begins again", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        writeFileSync(join(folder, "world/big.bin"), randomBytes(10_000_000))
        const cancelled = newOperation()
        const task = pack("/x.tar.gz", "tar.gz")
        yield* files.begin(id, { operation_id: cancelled, task })
        yield* eventually(files.progress(id, cancelled), ({ progress }) => progress.done > 0)
        yield* files.cancel(id, { operation_id: cancelled, task })
        assert.strictEqual((yield* files.progress(id, cancelled)).state, "cancelled")
        assert.deepStrictEqual([existsSync(join(folder, "x.tar.gz")), remnants(folder)], [false, []])

        const killed = newOperation()
        put(folder, staging.aside, "half")
        leave(scene, killed, 4, 0)
        yield* files.begin(id, { operation_id: killed, task })
        assert.strictEqual((yield* ends(scene, killed)).state, "done")
        execFileSync("tar", ["-tzf", join(folder, "x.tar.gz")])
        // The daemon was killed between the rename and the last record.
        const renamed = newOperation()
        leave(scene, renamed, 4, 4, true)
        yield* files.begin(id, { operation_id: renamed, task })
        assert.strictEqual((yield* ends(scene, renamed)).state, "done")
        const unfinished = newOperation()
        put(folder, staging.aside, "half")
        leave(scene, unfinished, 4, 0)
        yield* files.cancel(id, { operation_id: unfinished, task })
        assert.deepStrictEqual(remnants(folder), [])
      })
    )
  })
}
