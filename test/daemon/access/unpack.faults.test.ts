/** Archives at the bounds of spec 10.7, which take seconds. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { gzipSync, zstdCompressSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { UnpackTask } from "../../../src/contract/domain/FileTask.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { readTar } from "../../../src/daemon/archives/tar.ts"
import { eventually } from "../../support/eventually.ts"
import { member } from "../../support/tar.ts"
import { type ZipMember, zip } from "../../support/zip.ts"
import { filesOf, refusalOf } from "./scene.ts"

const plain = { far: false, instanceFiles: "copy" } as const
const MEBIBYTE = 1024 * 1024

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const remnants = ({ folder }: Scene) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))

const unpack = Effect.fnUntraced(function* ({ files, folder, id }: Scene, bytes: Buffer, to = "/to") {
  writeFileSync(join(folder, "archive.bin"), bytes)
  const operation_id = serverId(idBytes(16))
  const task: UnpackTask = { kind: "unpack", path: "/archive.bin", to, overwrite: "fail" }
  yield* files.begin(id, { operation_id, task })
  return yield* eventually(
    files.progress(id, operation_id),
    ({ state }) => state !== "running",
    "180 seconds"
  )
})

/** An archive of zeros: a file of 8 MiB for each eight of these. */
const zeros = (mebibytes: number) => {
  const files = Array.from({ length: mebibytes / 8 }, (_, n) => [
    member({ name: `./f${n}`, size: 8 * MEBIBYTE }),
    Buffer.alloc(8 * MEBIBYTE)
  ])
  return Buffer.concat([...files.flat(), Buffer.alloc(1024)])
}

const BOMB = "the archive unpacks to more than 200 times its size"

describe("spec 10.7: the bounds of archives", () => {
  it.live(
    "from 100 MiB on, an archive unpacks to 200 times its bytes at most",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(plain)
        assert.strictEqual((yield* unpack(scene, gzipSync(zeros(96)), "/small")).state, "done")
        for (const bytes of [gzipSync(zeros(112)), zstdCompressSync(zeros(112))])
          assert.strictEqual((yield* unpack(scene, bytes)).reason, BOMB)
        const members: ReadonlyArray<ZipMember> = Array.from({ length: 14 }, (_, n) => ({
          name: `f${n}`,
          content: Buffer.alloc(8 * MEBIBYTE)
        }))
        assert.strictEqual((yield* unpack(scene, zip(members))).reason, BOMB)
        assert.strictEqual((yield* unpack(scene, zeros(112))).state, "done")
        assert.deepStrictEqual(remnants(scene), [])
      }).pipe(Effect.scoped),
    300_000
  )

  it.live(
    "an archive has 200,000 entries at most",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(plain)
        const tooMany = "the archive has more than 200000 entries"
        const names = Array.from({ length: 200_001 }, (_, n) => `f${n % 50}/${n}`)
        const records = zip(names.map((name) => ({ name, method: 0 })))
        assert.strictEqual((yield* unpack(scene, records)).reason, tooMany)
        assert.deepStrictEqual(remnants(scene), [])
        let read = 0
        const members = Stream.fromIterable(names).pipe(Stream.map((name) => member({ name })))
        const counted = readTar(members, () => Effect.sync(() => void read++))
        assert.strictEqual(yield* refusalOf(counted), `422 ${tooMany}`)
        assert.strictEqual(read, 200_000)
      }).pipe(Effect.scoped),
    300_000
  )

  it.live(
    "a large archive takes little memory, whatever its format",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(plain)
        const { files, folder, id } = scene
        const block = Buffer.from(Array.from({ length: MEBIBYTE }, (_, at) => (at * 2654435761) >>> 24))
        const size = 512 * MEBIBYTE
        const head = member({
          name: "./big",
          rawSize: [...Buffer.from(`${size.toString(8).padStart(11, "0")}\0`)]
        })
        const bytes = Stream.concat(
          Stream.make(head),
          Stream.concat(
            Stream.take(Stream.forever(Stream.make(block)), size / MEBIBYTE),
            Stream.make(Buffer.alloc(1024))
          )
        )
        const operation_id = serverId(idBytes(16))
        const task = { kind: "unpack" as const, to: "/to", overwrite: "fail" as const }
        const before = process.memoryUsage.rss()
        let most = 0
        const watched = Stream.tap(bytes, () =>
          Effect.sync(() => {
            most = Math.max(most, process.memoryUsage.rss() - before)
          })
        )
        yield* files.receive(id, { operation_id, task }, watched)
        yield* eventually(files.progress(id, operation_id), ({ state }) => state === "done")
        assert.isBelow(most, 96 * MEBIBYTE)
        assert.strictEqual(readFileSync(join(folder, "to/big")).length, size)
      }).pipe(Effect.scoped),
    300_000
  )
})
