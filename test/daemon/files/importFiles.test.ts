import * as fs from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { packFiles } from "../../../src/daemon/archives/packFiles.ts"
import type { UnpackOptions } from "../../../src/daemon/archives/unpackFiles.ts"
import { receiveFiles } from "../../../src/daemon/files/importFiles.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const write = (root: string, files: Readonly<Record<string, string>>) => {
  for (const [path, content] of Object.entries(files)) {
    fs.mkdirSync(join(root, path, ".."), { recursive: true })
    fs.writeFileSync(join(root, path), content)
  }
}

/** Returns files and links; links are not followed. */
const filesIn = (root: string, path = ""): ReadonlyArray<string> =>
  fs
    .readdirSync(join(root, path), { withFileTypes: true })
    .flatMap((entry) =>
      entry.isDirectory() ? filesIn(root, join(path, entry.name)) : [join(path, entry.name)]
    )
    .toSorted()

const received = (
  source: string,
  target: string,
  shared: ReadonlyArray<string> = [],
  own: ReadonlyArray<string> = []
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const archive = yield* packFiles(source, { shared, own })
      yield* receiveFiles(target, { shared, own }, archive)
    })
  )

const trees = Effect.gen(function* () {
  const root = yield* temporaryFolder
  const [source, target] = [join(root, "source"), join(root, "target")]
  fs.mkdirSync(source)
  fs.mkdirSync(target)
  return { root, source, target }
})

describe("migration: files of an arriving server", () => {
  it.live("the archive replaces the server's own files", () =>
    Effect.gen(function* () {
      const { source, target } = yield* trees
      write(source, { "server.jar": "old", "world/level.dat": "a castle", kind: "a file" })
      write(target, {
        "server.jar": "new",
        "world/level.dat": "empty",
        "eula.txt": "true",
        "kind/file": "a folder"
      })
      fs.chmodSync(source, 0o750)
      fs.utimesSync(source, 900_000_000, 900_000_000)
      fs.utimesSync(join(source, "world"), 800_000_000, 800_000_000)
      yield* received(source, target)
      assert.deepStrictEqual(filesIn(target), ["kind", "server.jar", "world/level.dat"])
      assert.strictEqual(fs.readFileSync(join(target, "server.jar"), "utf8"), "old")
      const stats = fs.statSync(target)
      assert.strictEqual(stats.mode & 0o777, 0o750)
      assert.strictEqual(stats.mtimeMs, 900_000_000_000)
      assert.strictEqual(fs.statSync(join(target, "world")).mtimeMs, 800_000_000_000)
    })
  )

  it.live("shared files of the new node are kept", () =>
    Effect.gen(function* () {
      const { root, source, target } = yield* trees
      write(root, { "there/maps": "of there", "here/maps": "of here" })
      write(source, { "plugins/own/config": "its own", "plugins/old": "old" })
      write(target, { "plugins/own/config": "standard", "plugins/fresh": "fresh" })
      fs.symlinkSync(join(root, "there"), join(source, "plugins/shared"))
      fs.symlinkSync(join(root, "here"), join(target, "plugins/shared"))
      yield* received(source, target, ["plugins/shared"])
      assert.deepStrictEqual(filesIn(target), ["plugins/old", "plugins/own/config", "plugins/shared"])
      assert.strictEqual(fs.readFileSync(join(target, "plugins/shared/maps"), "utf8"), "of here")
      assert.deepStrictEqual(fs.readdirSync(join(root, "here")), ["maps"])
    })
  )

  it.live("shared files are kept also if the archive has a link above their target", () =>
    Effect.gen(function* () {
      const { root, source, target } = yield* trees
      write(root, { "outside/secret": "secret", "here/maps": "of here" })
      fs.symlinkSync(join(root, "outside"), join(source, "plugins"))
      fs.mkdirSync(join(target, "plugins"))
      fs.symlinkSync(join(root, "here"), join(target, "plugins/shared"))
      yield* received(source, target, ["plugins/shared"])
      assert.deepStrictEqual(filesIn(target), ["plugins/shared"])
      assert.deepStrictEqual(fs.readdirSync(join(root, "outside")), ["secret"])
    })
  )

  it.live("an interrupted archive changes no file; the next attempt is complete", () =>
    Effect.gen(function* () {
      const { source, target } = yield* trees
      write(source, { "a/b": "b".repeat(5000), c: "c" })
      write(target, { fresh: "fresh" })
      const broken = Effect.scoped(
        Effect.gen(function* () {
          const archive = yield* packFiles(source, { shared: [], own: [] })
          const half = Stream.take(archive, 1).pipe(Stream.map((bytes) => bytes.subarray(0, 2048)))
          return yield* Effect.flip(receiveFiles(target, { shared: [], own: [] }, half))
        })
      )
      assert.strictEqual((yield* broken)._tag, "ArchiveRefused")
      assert.deepStrictEqual(filesIn(target), ["fresh"])
      yield* received(source, target)
      assert.deepStrictEqual(filesIn(target), ["a/b", "c"])
    })
  )

  it.live("a refused or too large archive changes no file", () =>
    Effect.gen(function* () {
      const { source, target } = yield* trees
      write(source, { "a/b": "b".repeat(5000), c: "c" })
      write(target, { fresh: "fresh" })
      const paths = { shared: [], own: [] }
      const refused = (change: (bytes: Uint8Array) => Uint8Array, options: UnpackOptions) =>
        Effect.scoped(
          Effect.gen(function* () {
            const archive = Stream.map(yield* packFiles(source, paths), change)
            const { _tag } = yield* Effect.flip(receiveFiles(target, paths, archive, options))
            assert.deepStrictEqual(filesIn(target), ["fresh"])
            return _tag
          })
        )
      // Turns the second entry into a device.
      const device = (bytes: Uint8Array) => {
        const changed = Buffer.from(bytes)
        const header = changed.subarray(512, 1024)
        header[156] = "4".charCodeAt(0)
        header.write("        ", 148)
        const sum = header.reduce((all, byte) => all + byte, 0)
        header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148)
        return changed
      }
      assert.strictEqual(yield* refused(device, {}), "ArchiveRefused")
      assert.strictEqual(yield* refused((bytes) => bytes, { limit: 5000 }), "IoError")
    })
  )

  it.live("folders and links in place are told apart by the bytes of their names", () =>
    Effect.gen(function* () {
      const { source, target } = yield* trees
      const at = (root: string, name: string) => Buffer.from(`${root}/${name}`, "latin1")
      for (const [root, links] of [
        [source, "\xff"],
        [target, "\xfe"]
      ] as const) {
        for (const name of ["\xff", "\xfe"]) {
          fs.mkdirSync(at(root, name))
          fs.writeFileSync(at(root, `${name}/of`), name)
        }
        fs.symlinkSync(Buffer.from(links, "latin1"), join(root, "link"))
      }
      fs.writeFileSync(at(target, "\xff/gone"), "gone")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const archive = yield* packFiles(source, { shared: [], own: [] })
          yield* receiveFiles(target, { shared: [], own: [] }, archive, { keepsSame: true })
        })
      )
      for (const name of ["\xff", "\xfe"]) {
        assert.deepStrictEqual(fs.readdirSync(at(target, name)), ["of"])
        assert.strictEqual(fs.readFileSync(at(target, `${name}/of`), "utf8"), name)
      }
      assert.strictEqual(fs.readlinkSync(join(target, "link"), "buffer").toString("latin1"), "\xff")
    })
  )
})
