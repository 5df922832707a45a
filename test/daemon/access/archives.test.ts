import { execFileSync } from "node:child_process"
import {
  mkdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Stream } from "effect"
import type { ArchiveFormat } from "../../../src/contract/domain/Files.ts"
import { MOST_ARCHIVES } from "../../../src/contract/nodeApi/NodeFiles.ts"
import { zipWriter } from "../../../src/daemon/access/archive.ts"
import { zipHeader } from "../../../src/daemon/archives/format.ts"
import { eventually } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { filesOf, places, put, refusalOf } from "./scene.ts"

const unpack = (format: ArchiveFormat, archive: string, to: string) => {
  if (format === "zip") execFileSync("unzip", ["-q", archive, "-d", to])
  else
    execFileSync("tar", [
      "-x",
      ...(format === "tar" ? [] : [format === "tar.gz" ? "-z" : "--zstd"]),
      "-f",
      archive,
      "-C",
      to
    ])
}

const formats = ["tar.zst", "tar.gz", "tar", "zip"] as const

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.3: archives: ${name}`, () => {
    it.live("files, folders and links arrive as they are, in each format", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place, { files: { deny: ["*.key"] } })
        const big = Buffer.alloc(1_000_000, "0123456789abcdef\n")
        writeFileSync(join(folder, "world/big.bin"), big)
        const long = `${"d".repeat(120)}/${"f".repeat(200)}`
        mkdirSync(join(folder, "world", "d".repeat(120)))
        put(folder, `world/${long}`, "long")
        put(folder, "world/secret.key", "secret")
        put(folder, "world/é", "utf8")
        writeFileSync(join(folder, "world/run.sh"), "#!", { mode: 0o755 })
        mkdirSync(join(folder, "world/empty"))
        symlinkSync("/etc/passwd", join(folder, "world/link"))
        execFileSync("mkfifo", [join(folder, "world/pipe")])
        for (const format of formats) {
          const to = yield* temporaryFolder
          const archive = join(to, "archive")
          const pieces = yield* files
            .archive(id, { paths: ["/world", "/plugins/a.yml"], format })
            .pipe(Effect.flatMap(Stream.runCollect), Effect.scoped)
          writeFileSync(archive, Buffer.concat(pieces))
          unpack(format, archive, to)
          const found = execFileSync("find", [".", "-mindepth", "1", "-not", "-name", "archive"], {
            cwd: to,
            encoding: "utf8"
          })
          assert.deepStrictEqual(
            found.trim().split("\n").toSorted(),
            [
              "./plugins",
              "./plugins/a.yml",
              "./world",
              "./world/big.bin",
              `./world/${"d".repeat(120)}`,
              `./world/${long}`,
              "./world/empty",
              "./world/link",
              "./world/region",
              "./world/region/r0",
              "./world/run.sh",
              "./world/é"
            ].toSorted(),
            format
          )
          assert.isTrue(readFileSync(join(to, "world/big.bin")).equals(big), format)
          assert.strictEqual(readFileSync(join(to, "world", long), "utf8"), "long")
          assert.strictEqual(readlinkSync(join(to, "world/link")), "/etc/passwd")
          assert.strictEqual(statSync(join(to, "world/run.sh")).mode & 0o777, 0o755)
        }
      }).pipe(Effect.scoped)
    )

    it.live("a path that does not exist is refused before the first byte", () =>
      Effect.gen(function* () {
        const { files, id } = yield* filesOf(place)
        const missing = files.archive(id, { paths: ["/world", "/nothing"], format: "zip" })
        assert.match(yield* refusalOf(Effect.scoped(missing)), /^404 /)
      }).pipe(Effect.scoped)
    )

    it.live("a link that the server exchanges for a folder meanwhile does not break an archive", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place)
        const at = (name: string) => join(folder, "world", name)
        mkdirSync(at("folder"))
        symlinkSync("region", at("link"))
        const exchange = Effect.sync(() => {
          renameSync(at("folder"), at("aside"))
          renameSync(at("link"), at("folder"))
          renameSync(at("aside"), at("link"))
        })
        yield* Effect.forkScoped(Effect.forever(Effect.andThen(exchange, Effect.yieldNow)))
        const archive = files.archive(id, { paths: ["/world"], format: "tar" })
        for (let n = 0; n < 40; n++)
          assert.strictEqual(
            yield* refusalOf(Effect.scoped(Stream.runDrain(Stream.unwrap(archive)))),
            "no refusal"
          )
      }).pipe(Effect.scoped)
    )

    it.live("a server has a bounded number of archives that are read, and their end makes room", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place)
        put(folder, "large", "")
        truncateSync(join(folder, "large"), 200_000_000)
        const archive = files.archive(id, { paths: ["/large"], format: "tar" })
        /** Reads an archive up to its first piece. */
        const begun = Effect.gen(function* () {
          const first = yield* Deferred.make<void>()
          const reading = Stream.runForEach(Stream.unwrap(archive), () =>
            Effect.andThen(Deferred.succeed(first, undefined), Effect.never)
          )
          const reader = yield* Effect.forkScoped(Effect.scoped(reading))
          yield* Effect.raceFirst(Deferred.await(first), Fiber.join(reader))
          return reader
        })
        const readers = yield* Effect.forEach(Array.from({ length: MOST_ARCHIVES }), () => begun)
        assert.match(yield* refusalOf(Effect.scoped(begun)), /^429 .*4 archives/)
        yield* Effect.forEach(readers.slice(0, 1), Fiber.interrupt)
        yield* eventually(refusalOf(Effect.scoped(begun)), (outcome) => outcome === "no refusal")
      }).pipe(Effect.scoped)
    )
  })

  describe(`spec 10.3: search: ${name}`, () => {
    it.live("finds names by a glob and lines by a literal text", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place, { files: { deny: ["*.key"] } })
        put(folder, "plugins/b.yml", "one: 1\nTwo: 2\n\nthree: 3 two\n")
        put(folder, "plugins/x.key", "two")
        writeFileSync(
          join(folder, "plugins/binary"),
          Buffer.concat([Buffer.from([0, 1]), Buffer.from("two\n")])
        )
        put(folder, "log", `${"line\n".repeat(200_000)}needle here${"x".repeat(5000)}\nneedle\n`)
        symlinkSync("/etc", join(folder, "etc"))
        const search = (request: {
          readonly name?: string
          readonly text?: string
          readonly path?: string
          readonly limit?: number
          readonly case_sensitive?: boolean
        }) => files.search(id, { path: "/", limit: 100, case_sensitive: false, ...request })
        const paths = (found: { readonly matches: ReadonlyArray<{ readonly path: string }> }) =>
          found.matches.map(({ path }) => path).toSorted()
        assert.deepStrictEqual(paths(yield* search({ name: "*.YML" })), ["/plugins/a.yml", "/plugins/b.yml"])
        assert.deepStrictEqual(paths(yield* search({ name: "*.YML", case_sensitive: true })), [])
        const text = yield* search({ text: "two", path: "/plugins" })
        assert.deepStrictEqual(
          text.matches.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0)),
          [
            { path: "/plugins/binary" },
            { path: "/plugins/b.yml", line: 2, excerpt: "Two: 2" },
            { path: "/plugins/b.yml", line: 4, excerpt: "three: 3 two" }
          ]
        )
        const needles = yield* search({ text: "needle" })
        assert.deepStrictEqual(
          needles.matches.map(({ line }) => line),
          [200_001, 200_002]
        )
        assert.isFalse(needles.incomplete)
        assert.strictEqual((yield* search({ text: "line", limit: 7 })).matches.length, 7)
        assert.deepStrictEqual(paths(yield* search({ text: "root:" })), [])
        assert.match(yield* refusalOf(search({})), /^422 /)
      }).pipe(Effect.scoped)
    )
  })

  describe(`spec 10.3: the difference from the base: ${name}`, () => {
    it.live("has what was added, changed and removed", () =>
      Effect.gen(function* () {
        const { change, files, folder, id, write } = yield* filesOf(place, { files: { deny: ["*.key"] } })
        assert.deepStrictEqual(yield* files.diff(id), [])
        put(folder, "own", "own")
        put(folder, "x.key", "secret")
        mkdirSync(join(folder, "new"))
        put(folder, "new/file", "12345")
        put(folder, "plugins/added", "")
        yield* write("/plugins/a.yml", "changed")
        yield* change({ kind: "delete", path: "/server.jar" }, { kind: "delete", path: "/world/region" })
        assert.deepStrictEqual(yield* files.diff(id), [
          { path: "/new", change: "added", size: 0 },
          { path: "/new/file", change: "added", size: 5 },
          { path: "/own", change: "added", size: 3 },
          { path: "/plugins/a.yml", change: "changed", size: 7 },
          { path: "/plugins/added", change: "added", size: 0 },
          { path: "/server.jar", change: "removed", size: 4 },
          { path: "/world/region", change: "removed", size: 0 }
        ])
      }).pipe(Effect.scoped)
    )
  })
}

describe("spec 10.3: the limits of a search", () => {
  it.live("ends at 1 GiB, and says so", () =>
    Effect.gen(function* () {
      const { files, folder, id } = yield* filesOf({ far: false, instanceFiles: "copy" })
      put(folder, "sparse", "")
      truncateSync(join(folder, "sparse"), 1024 ** 3 + 1)
      const found = yield* files.search(id, { path: "/", text: "nothing", limit: 1, case_sensitive: true })
      assert.isTrue(found.incomplete)
      assert.deepStrictEqual(found.matches, [])
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.3: the directory of a zip archive", () => {
  it.effect("has at most 64 MiB, which are in memory until its end", () =>
    Effect.gen(function* () {
      const writer = zipWriter(() => Effect.void)
      const entry = { kind: "folder", mode: 0o755, mtime: 0, size: 0, target: Buffer.alloc(0) } as const
      const length = 60_000
      const fits = Math.floor((64 * 1024 * 1024) / (length + 75))
      for (let count = 0; count <= fits; count++)
        yield* writer.add({ ...entry, name: Buffer.alloc(length, "n") }, Stream.empty)
      const more = writer.add({ ...entry, name: Buffer.from("more") }, Stream.empty)
      assert.match(yield* refusalOf(more), /^422 .*64 MiB/)
    })
  )
})

describe("spec 10.3: names in a zip archive", () => {
  it.effect(
    "say that they are UTF-8 if they are, so that other names do not make an archive unreadable",
    () =>
      Effect.sync(() => {
        const entry = { kind: "file", mode: 0o644, mtime: 0, size: 0, target: Buffer.alloc(0) } as const
        const isMarked = (name: Buffer) =>
          (zipHeader({ ...entry, name }, name, 8).readUInt16LE(6) & 0x800) !== 0
        assert.isTrue(isMarked(Buffer.from("Welt-é.txt")))
        assert.isFalse(isMarked(Buffer.from("Welt-é.txt", "latin1")))
      })
  )
})
