/** The entries and single files of backups, read from the index and from the frames that are needed. */
import { createHash, randomBytes } from "node:crypto"
import {
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { BackupFigures } from "../../../src/contract/domain/Backup.ts"
import type { TargetAccess } from "../../../src/contract/domain/BackupTarget.ts"
import type { ArchiveRange, NodeBackups } from "../../../src/contract/nodeApi/NodeBackups.ts"
import { s3, startFront, startS3Server } from "../../support/s3Server.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { harness } from "../support.ts"
import { folderOf, made, manifestOf, storedOf } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

const MIB = 1024 ** 2

interface Known {
  readonly backup_id: string
  readonly figures?: BackupFigures
}

const lookerOf =
  (backups: NodeBackups, { backup_id, figures }: Known, target?: TargetAccess) =>
  (path: string, limit = 1000, after?: string) =>
    backups.look(storedOf(backup_id, figures, target), {
      path,
      limit,
      ...(after === undefined ? {} : { after })
    })

/** Returns a function that reads a file of a backup, whole or from one byte to another. */
const readerOf = (backups: NodeBackups, known: Known, target?: TargetAccess) => {
  const look = lookerOf(backups, known, target)
  return Effect.fnUntraced(function* (path: string, first?: number, last?: number) {
    const { at = 0, sha256 = "", size = 0 } = (yield* look(path, 0)).entry ?? {}
    const file = { at, sha256, size, start: first ?? 0, end: last ?? size - 1 }
    const bytes = yield* backups.contents(storedOf(known.backup_id, known.figures, target), file)
    return Buffer.concat(yield* Stream.runCollect(bytes))
  }, Effect.scoped)
}

const namesOf = ({ entries }: Effect.Success<ReturnType<NodeBackups["look"]>>) =>
  entries.map(({ path }) => path)

for (const [name, one] of Object.entries(places)) {
  describe(`spec 12.9: the files of a backup: ${name}`, () => {
    it.live("folders are listed by name in pages, and files are read byte for byte, whole and in part", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(one)
        const { backups, folder } = scene
        const world = join(folder, "world")
        mkdirSync(join(world, "region"), { recursive: true })
        const large = randomBytes(3_000_001)
        writeFileSync(join(world, "large.bin"), large)
        writeFileSync(Buffer.from(`${world}/\xff\xfe.txt`, "latin1"), "bytes")
        for (const odd of ['quo"te\\', '","type":"file', "new\nline", "ünï", "a", "B", "empty"])
          put(world, odd, odd === "empty" ? "" : odd)
        put(join(world, "region"), "r.0.0.mca", "region")
        symlinkSync("../outside", join(world, "link"))
        const known = yield* made(scene)
        const look = lookerOf(backups, known)
        const read = readerOf(backups, known)
        const sorted = ['","type":"file', "B", "a", "empty", "large.bin", "link", "new\nline", 'quo"te\\']
        const all = [...sorted, "region", "ünï", "%FF%FE.txt"].map((entry) => `/world/${entry}`)
        assert.deepStrictEqual(namesOf(yield* look("/world")), all)
        const first = yield* look("/world", 4)
        assert.deepStrictEqual([namesOf(first), first.next], [all.slice(0, 4), "empty"])
        const second = yield* look("/world", 7, first.next)
        assert.deepStrictEqual([namesOf(second), second.next], [all.slice(4), undefined])
        assert.deepInclude((yield* look("/world/link")).entry, { type: "link", target: "../outside" })
        assert.include(namesOf(yield* look("/")), "/world")
        assert.deepStrictEqual(namesOf(yield* look("/world/region")), [
          "/world/region/r.0.0.mca",
          "/world/region/r0"
        ])
        for (const path of ["/worl", "/world/region/r", "/nothing", "/world/link/x"])
          assert.deepStrictEqual(yield* look(path), { entries: [] })
        const { entry } = yield* look("/world/large.bin", 0)
        assert.deepInclude(entry, {
          type: "file",
          size: large.length,
          sha256: createHash("sha256").update(large).digest("hex"),
          mtime: Math.floor(statSync(join(world, "large.bin")).mtimeMs / 1000)
        })
        assert.isTrue((yield* read("/world/large.bin")).equals(large))
        assert.isTrue(
          (yield* read("/world/large.bin", 1_000_000, 2_999_999)).equals(large.subarray(1e6, 3e6))
        )
        assert.strictEqual((yield* read("/world/large.bin", 3_000_000)).length, 1)
        assert.strictEqual((yield* read('/world/","type":"file')).toString(), '","type":"file')
        assert.strictEqual((yield* read("/world/%FF%FE.txt")).toString(), "bytes")
      })
    )
  })
}

describe("spec 12.9: what a read of one file costs, and what it finds", () => {
  it.live(
    "a file is read from the frame in which it begins: damage before it is not met, damage in it is",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backups, folder } = scene
        writeFileSync(join(folder, "noise.bin"), randomBytes(40 * MIB))
        const known = yield* made(scene)
        put(folder, "small.txt", "small")
        const { frames } = manifestOf(scene, known.backup_id)
        assert.isAbove(frames.length, 2)
        const look = lookerOf(backups, known)
        const read = readerOf(backups, known)
        const damage = (at: number) => {
          const part = join(folderOf(scene, known.backup_id), "part-00001")
          const file = openSync(part, "r+")
          const [byte = 0] = readFileSync(part).subarray(at)
          writeSync(file, Buffer.from([byte ^ 1]), 0, 1, at)
        }
        const { at = 0 } = (yield* look("/noise.bin", 0)).entry ?? {}
        const config = (yield* look("/")).entries.find(
          (entry) => entry.type === "file" && (entry.at ?? 0) > at
        )
        // The last byte of the file is in its last frame, and its range ends before.
        damage(frames[1].stored + MIB)
        assert.notStrictEqual(yield* refusalOf(read("/noise.bin")), "no refusal")
        assert.notStrictEqual(yield* refusalOf(read("/noise.bin", 0, 10)), "no refusal")
        if (config !== undefined) assert.strictEqual((yield* read(config.path)).length, config.size)
        truncateSync(join(folderOf(scene, known.backup_id), "index-00001"), 100)
        assert.match(yield* refusalOf(look("/")), /index-00001 is damaged: it has 100 of \d+ bytes/)
      })
  )

  it.live(
    "the end of a damaged file is never passed on, and one that is damaged at its beginning is refused",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backups, folder } = scene
        put(folder, "small.txt", "small")
        const { backup_id, figures } = yield* made(scene)
        const stored = storedOf(backup_id, figures)
        const { at = 0, size = 0 } =
          (yield* backups.look(stored, { path: "/small.txt", limit: 0 })).entry ?? {}
        const file = { at, size, sha256: "0".repeat(64), start: 0, end: size - 1 }
        const opened = Effect.scoped(backups.contents(stored, file))
        assert.match(yield* refusalOf(opened), /a file of backup \w+ is damaged: its SHA-256 is another/)
        const beyond = Effect.scoped(backups.contents(stored, { ...file, at: at + 1e9 }))
        assert.match(yield* refusalOf(beyond), /is damaged/)
      })
  )
})

describe.skipIf(!s3.run)(`spec 12.9: the files of a backup in a bucket${s3.note}`, () => {
  it.live("another node lists and reads them, with ranges of the objects that have them", () =>
    Effect.gen(function* () {
      const { access } = yield* startS3Server
      const scene = yield* filesOf(place)
      for (const one of ["a", "b", "c"])
        writeFileSync(join(scene.folder, `${one}.bin`), randomBytes(12 * MIB))
      const known = yield* made(scene, undefined, access)
      assert.strictEqual(known.reason, undefined)
      const another = yield* harness({})
      const asked: Array<string> = []
      const front = yield* startFront(access.endpoint, ({ headers, method, url = "" }) => {
        if (method === "GET") asked.push(`${url.split("/").at(-1)} ${headers.range ?? "whole"}`)
        return undefined
      })
      const target = { ...access, endpoint: front }
      const look = lookerOf(another.daemon.backups, known, target)
      const read = readerOf(another.daemon.backups, known, target)
      const { entries } = yield* look("/")
      const bins = entries.filter(({ path }) => path.endsWith(".bin"))
      assert.lengthOf(bins, 3)
      const latest = bins.toSorted((a, b) => (a.at ?? 0) - (b.at ?? 0)).at(-1)
      if (latest === undefined) assert.fail("there is no file")
      assert.isFalse(asked.some((one) => one.startsWith("part")))
      const bytes = yield* read(latest.path)
      assert.isTrue(bytes.equals(readFileSync(join(scene.folder, latest.path))))
      const parts = asked.filter((one) => one.startsWith("part"))
      assert.isFalse(parts.includes("part-00001 whole"), String(parts))
    })
  )

  it.live("a range of the archive is the same bytes, and breaks before the end of a damaged part", () =>
    Effect.gen(function* () {
      const { access, write } = yield* startS3Server
      const scene = yield* filesOf(place)
      writeFileSync(join(scene.folder, "noise.bin"), randomBytes(40 * MIB))
      const { backup_id, figures } = yield* made(scene, undefined, access)
      const stored = storedOf(backup_id, figures, access)
      const read = (range?: ArchiveRange) =>
        scene.backups.archive(stored, range).pipe(
          Effect.flatMap(Stream.runCollect),
          Effect.map((chunks) => Buffer.concat(chunks)),
          Effect.scoped
        )
      const whole = yield* read()
      const last = whole.length - 1
      for (const [start, end] of [
        [0, 0],
        [0, last],
        [16 * MIB - 1, 16 * MIB],
        [16 * MIB, last],
        [1_000_000, 18 * MIB]
      ] as const)
        assert.isTrue(
          (yield* read({ start, end, size: whole.length })).equals(whole.subarray(start, end + 1)),
          `${start}-${end}`
        )
      yield* write(`${access.prefix}/${backup_id}/part-00002`, "short")
      assert.notStrictEqual(
        yield* refusalOf(read({ start: 16 * MIB, end: last, size: whole.length })),
        "no refusal"
      )
      assert.strictEqual((yield* read({ start: 0, end: 100, size: whole.length })).length, 101)
    })
  )
})
