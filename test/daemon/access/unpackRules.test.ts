import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { gzipSync, zstdCompressSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import * as fc from "fast-check"
import type { UnpackTask } from "../../../src/contract/domain/FileTask.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { eventually } from "../../support/eventually.ts"
import { freshSeed } from "../../support/random.ts"
import { archive, member } from "../../support/tar.ts"
import { zip } from "../../support/zip.ts"
import { filesOf, places, refusalOf } from "./scene.ts"

type Scene = Effect.Success<ReturnType<typeof filesOf>>

/** Sends an archive; returns the refusal of the call, and the end of the task. */
const send = Effect.fnUntraced(function* (
  { files, id }: Scene,
  bytes: Buffer,
  { overwrite = "fail", to = "/to" }: Partial<UnpackTask> = {}
) {
  const operation_id = serverId(idBytes(16))
  const task = { kind: "unpack" as const, to, overwrite }
  const refusal = yield* refusalOf(files.receive(id, { operation_id, task }, Stream.make(bytes)))
  const end = yield* eventually(files.progress(id, operation_id), ({ state }) => state !== "running")
  return { refusal, ...end }
})

const below = (folder: string) => readdirSync(folder, { recursive: true, encoding: "utf8" }).toSorted()

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.7: what archives must not exceed: ${name}`, () => {
    it.live("an archive without room is 507, at any byte, and leaves nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, { limits: { disk_space: 3 } })
        const before = below(scene.folder)
        const big = Buffer.alloc(4 * 1024 * 1024, "0123456789abcdef")
        const tar = archive(
          member({ name: "./small", content: "small" }),
          member({ name: "./big", content: big.toString() })
        )
        for (const bytes of [
          tar,
          gzipSync(tar),
          zstdCompressSync(tar),
          zip([{ name: "big", content: big }])
        ]) {
          const { reason, state } = yield* send(scene, bytes)
          assert.strictEqual(state, "failed")
          assert.match(reason ?? "", /^disk: .* of 3.0 MB are free/)
        }
        assert.match((yield* send(scene, tar)).refusal, /^507 disk: .* of 3.0 MB are free/)
        // The zip archive itself does not fit.
        const stored = zip([{ name: "big", content: big, method: 0 }])
        assert.match((yield* send(scene, stored)).refusal, /^507 disk: .* of 3.0 MB are free/)
        assert.deepStrictEqual(below(scene.folder), before)
        assert.strictEqual((yield* send(scene, archive(member({ name: "./a", content: "a" })))).state, "done")
      }).pipe(Effect.scoped)
    )

    const volumes = [{ name: "s", source: "shared", target: "world/shared", mode: "rw" }] as const

    it.live("entries of a volume go there, if callers may write it", () =>
      Effect.gen(function* () {
        const closed = yield* filesOf(place, { volumes })
        const bytes = archive(
          member({ name: "./shared/new/x", content: "x" }),
          member({ name: "./y", content: "y" })
        )
        const { reason } = yield* send(closed, bytes, { to: "/world" })
        assert.match(
          reason ?? "",
          /entry .*shared\/new\/x: \/world\/shared\/new\/x: callers may not write volumes$/
        )
        assert.isFalse(existsSync(join(closed.folder, "world/y")))
        const open = yield* filesOf(place, { volumes, files: { volumes: "write" } }, closed.node)
        assert.deepInclude(yield* send(open, bytes, { to: "/world" }), { state: "done" })
        const shared = join(open.node.dataDir, "volumes/shared")
        assert.strictEqual(readFileSync(join(shared, "new/x"), "utf8"), "x")
        assert.strictEqual(readFileSync(join(open.folder, "world/y"), "utf8"), "y")
        const into = archive(member({ name: "./v.txt", content: "replaced" }))
        assert.match(
          (yield* send(open, into, { to: "/world/shared" })).refusal,
          /^409 \/world\/shared\/v.txt: it exists; overwrite=replace/
        )
        const replaced = yield* send(open, into, { to: "/world/shared", overwrite: "replace" })
        assert.strictEqual(replaced.state, "done")
        assert.strictEqual(readFileSync(join(shared, "v.txt"), "utf8"), "replaced")
        assert.isFalse(below(open.node.dataDir).some((one) => one.includes(".muster-")))
      }).pipe(Effect.scoped)
    )
  })
}

const plain = { far: false, instanceFiles: "copy" } as const

const sound = [
  archive(
    member({ name: "./a", content: "aaaa" }),
    member({ name: "./d/", type: "5" }),
    member({ name: "./d/l", type: "2", link: "../a" }),
    member({ name: "./d/b", content: "b".repeat(700) })
  ),
  zip([
    { name: "a", content: "aaaa" },
    { name: "d/" },
    { name: "d/l", mode: 0o120777, content: "../a" },
    { name: "d/b", content: "b".repeat(700), method: 0 }
  ])
]

describe("spec 10.7: archives with any damage", () => {
  it.live("are unpacked or refused with a reason, and reach nothing but their folder", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const outside = below(scene.folder)
      const edit = fc.record({
        at: fc.nat(4000),
        bytes: fc.oneof(
          fc.uint8Array({ minLength: 1, maxLength: 8 }),
          fc.constantFrom("/", "../", "PK\u0001\u0002", "\u0000", "ffffffff").map((text) => Buffer.from(text))
        ),
        removed: fc.nat(40)
      })
      const damage = fc.record({
        from: fc.constantFrom(...sound),
        packed: fc.constantFrom("no", "gzip", "zstd"),
        edits: fc.array(edit, { maxLength: 4 }),
        cut: fc.option(fc.nat(4000), { nil: undefined })
      })
      const made = fc.sample(damage, { numRuns: 50, seed: freshSeed() })
      for (const { cut, edits, from, packed } of made) {
        let bytes = Buffer.from(from)
        for (const { at, bytes: given, removed } of edits) {
          const where = at % bytes.length
          bytes = Buffer.concat([bytes.subarray(0, where), given, bytes.subarray(where + removed)])
        }
        if (packed !== "no") bytes = packed === "gzip" ? gzipSync(bytes) : zstdCompressSync(bytes)
        const {
          reason = "",
          refusal,
          state
        } = yield* send(scene, bytes.subarray(0, cut), { overwrite: "replace" })
        const shown = `${refusal} ${reason} ${bytes.toString("base64")}`
        assert.match(refusal, /^(?:no refusal$|409 |422 )/, shown)
        assert.include(["done", "failed"], state, shown)
        assert.strictEqual(state === "failed", reason !== "", shown)
        const found = below(scene.folder).filter((one) => one !== "to" && !one.startsWith("to/"))
        assert.deepStrictEqual(found, outside, shown)
      }
    }).pipe(Effect.scoped)
  )

  it.live("bytes of any kind are no archive", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const magics = ["", "PK\u0003\u0004", "\u001f\u008b", "\u0028\u00b5\u002f\u00fd", "PK\u0005\u0006"]
      const bytes = fc.tuple(fc.constantFrom(...magics), fc.uint8Array({ maxLength: 600 }))
      for (const [magic, rest] of fc.sample(bytes, { numRuns: 25, seed: freshSeed() })) {
        const all = Buffer.concat([Buffer.from(magic, "latin1"), rest])
        writeFileSync(join(scene.folder, "any"), all)
        assert.strictEqual((yield* send(scene, all)).state, "failed", all.toString("base64"))
      }
      assert.isFalse(existsSync(join(scene.folder, "to")))
    }).pipe(Effect.scoped)
  )
})
