import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as net from "node:net"
import { join } from "node:path"
import { promisify } from "node:util"
import { NodeFileSystem } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Option, Result } from "effect"
import fc from "fast-check"
import {
  enterAll,
  type Name,
  openRoot,
  partsOf,
  readFileInside,
  removeFileInside,
  writeFileInside
} from "../../../src/daemon/disk/safePath.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const LIMIT = 1024

/** An instance folder `root` beside a folder `outside` that no access may reach. */
const folders = Effect.gen(function* () {
  const base = yield* temporaryFolder
  const root = join(base, "root")
  const outside = join(base, "outside")
  fs.mkdirSync(root)
  fs.mkdirSync(outside)
  fs.writeFileSync(join(outside, "secret"), "secret")
  return { root, outside }
}).pipe(Effect.provide(NodeFileSystem.layer))

const untouched = (outside: string) => {
  assert.deepStrictEqual(fs.readdirSync(outside), ["secret"])
  assert.strictEqual(fs.readFileSync(join(outside, "secret"), "utf8"), "secret")
}

/** Asserts that the path cannot be read, inspected or written; returns the reason. */
const refused = Effect.fnUntraced(function* (root: string, path: string) {
  const read = yield* Effect.flip(readFileInside(root, path, LIMIT))
  const written = yield* Effect.flip(writeFileInside(root, path, Buffer.from("x")))
  if (read._tag !== "PathRefused" || written._tag !== "PathRefused") {
    return assert.fail(`${read._tag}, ${written._tag}`)
  }
  return read.reason
})

describe("spec 10.5: paths are walked in open folders", () => {
  it.effect("a deep path has no more open files than a short one", () =>
    Effect.gen(function* () {
      const { root } = yield* folders
      const parts = Array.from({ length: 60 }, () => "d")
      const open = () => fs.readdirSync("/proc/self/fd").length
      const top = yield* openRoot(root)
      const before = open()
      const made: Array<Name> = []
      yield* enterAll("deep", top, parts, (_, name) => made.push(name))
      assert.strictEqual(made.length, 60)
      yield* enterAll("deep", top, parts)
      assert.isAtMost(open() - before, 10)
      fs.writeFileSync(join(root, ...parts, "last"), "")
    }).pipe(Effect.scoped)
  )
})

describe("paths that leave the instance folder are refused", () => {
  it.effect("`..`, absolute paths, NUL, empty and overlong names are refused", () =>
    Effect.gen(function* () {
      const { root, outside } = yield* folders
      fs.mkdirSync(join(root, "a"))
      for (const path of [
        "..",
        "../outside/secret",
        "a/../../outside/secret",
        "a/..",
        "./../outside/secret",
        join(outside, "secret"),
        "//etc/passwd",
        "/proc/self/environ",
        "a\0b",
        "secret\0.yml",
        "",
        ".",
        "./",
        "x".repeat(256),
        "a/".repeat(70)
      ]) {
        yield* refused(root, path)
      }
      untouched(outside)
    })
  )

  it("every accepted path consists of plain names", () => {
    const piece = fc.constantFrom("..", ".", "", "/", "a", "\0", "\\", "...", " ", "~")
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), fc.constantFrom("/", ""), (pieces, glue) => {
        const parts = partsOf(pieces.join(glue))
        if (Result.isFailure(parts)) return
        for (const part of parts.success) {
          assert.notInclude(["", ".", ".."], part)
          assert.isFalse(part.includes("/") || part.includes("\0"))
        }
      })
    )
  })

  it.effect("symbolic links to files and folders are refused at every depth, also within the folder", () =>
    Effect.gen(function* () {
      const { root, outside } = yield* folders
      fs.mkdirSync(join(root, "a"))
      fs.writeFileSync(join(root, "a", "real"), "real")
      fs.symlinkSync(outside, join(root, "dir"))
      fs.symlinkSync("../outside", join(root, "relative"))
      fs.symlinkSync("../../outside", join(root, "a", "deep"))
      fs.symlinkSync(join(outside, "secret"), join(root, "file"))
      fs.symlinkSync("/etc", join(root, "etc"))
      fs.symlinkSync("/etc/passwd", join(root, "passwd"))
      fs.symlinkSync("/proc/self/root", join(root, "magic"))
      fs.symlinkSync(join(outside, "new"), join(root, "dangling"))
      fs.symlinkSync("loop", join(root, "loop"))
      fs.symlinkSync("a/real", join(root, "inside"))
      for (const path of [
        "dir/secret",
        "dir/new",
        "dir/new/deeper",
        "relative/secret",
        "a/deep/secret",
        "a/deep/new",
        "file",
        "etc/passwd",
        "passwd",
        `magic${outside}/secret`,
        "dangling",
        "loop",
        "loop/x",
        "inside"
      ]) {
        assert.match(yield* refused(root, path), /symbolic link/)
      }
      untouched(outside)
      assert.strictEqual(fs.readFileSync(join(root, "a", "real"), "utf8"), "real")
    })
  )

  it.effect("a hard link to a file outside is replaced, not written through", () =>
    Effect.gen(function* () {
      const { root, outside } = yield* folders
      fs.linkSync(join(outside, "secret"), join(root, "linked"))
      yield* writeFileInside(root, "linked", Buffer.from("changed"))
      untouched(outside)
      assert.strictEqual(fs.readFileSync(join(root, "linked"), "utf8"), "changed")
      assert.strictEqual(fs.statSync(join(root, "linked")).nlink, 1)
    })
  )

  it.effect("pipes, sockets, devices and folders in place of a file are refused without blocking", () =>
    Effect.gen(function* () {
      const { root, outside } = yield* folders
      yield* Effect.promise(() => promisify(execFile)("mkfifo", [join(root, "pipe")]))
      fs.mkdirSync(join(root, "folder"))
      fs.writeFileSync(join(root, "plain"), "")
      yield* Effect.acquireRelease(
        Effect.callback<net.Server>((resume) => {
          const server = net.createServer().listen(join(root, "socket"), () => resume(Effect.succeed(server)))
        }),
        (server) => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
      )
      assert.match(yield* refused(root, "pipe"), /pipe/)
      assert.match(yield* refused(root, "pipe/x"), /pipe/)
      assert.match(yield* refused(root, "socket"), /socket/)
      assert.match(yield* refused(root, "folder"), /folder/)
      assert.match(yield* refused(root, "plain/x"), /not a folder/)
      assert.match(yield* refused("/dev", "null"), /device/)
      untouched(outside)
    })
  )

  it.effect("a folder that is repeatedly swapped for a link never exposes files outside", () =>
    Effect.gen(function* () {
      const { root, outside } = yield* folders
      const at = (name: string) => join(root, name)
      fs.mkdirSync(at("real"))
      fs.writeFileSync(join(root, "real", "secret"), "mine")
      fs.symlinkSync(outside, at("link"))
      fs.renameSync(at("real"), at("dir"))
      const swap = Effect.gen(function* () {
        fs.renameSync(at("dir"), at("real"))
        fs.renameSync(at("link"), at("dir"))
        yield* Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
        fs.renameSync(at("dir"), at("link"))
        fs.renameSync(at("real"), at("dir"))
        yield* Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
      })
      const swapping = yield* Effect.forkChild(Effect.forever(swap))
      for (let round = 0; round < 200; round++) {
        const read = yield* Effect.result(readFileInside(root, "dir/secret", LIMIT))
        if (Result.isSuccess(read) && Option.isSome(read.success)) {
          assert.strictEqual(read.success.value.toString(), "mine")
        }
        yield* Effect.result(writeFileInside(root, "dir/secret", Buffer.from("mine")))
        yield* Effect.result(writeFileInside(root, "dir/new/file", Buffer.from("mine")))
        untouched(outside)
      }
      yield* Fiber.interrupt(swapping)
      untouched(outside)
    })
  )
})

describe("files in the instance folder", () => {
  it.effect("a write creates missing folders; the file can be read", () =>
    Effect.gen(function* () {
      const { root } = yield* folders
      assert.isTrue(Option.isNone(yield* readFileInside(root, "a/b/c.yml", LIMIT)))
      yield* writeFileInside(root, "a/b/c.yml", Buffer.from("x: 1\n"))
      assert.strictEqual(
        String(Option.getOrUndefined(yield* readFileInside(root, "./a//b/c.yml", LIMIT))),
        "x: 1\n"
      )
      assert.strictEqual(fs.statSync(join(root, "a/b/c.yml")).mode & 0o777, 0o644)
    })
  )

  it.effect("a write keeps permission bits and owner, and leaves no temporary file", () =>
    Effect.gen(function* () {
      const { root } = yield* folders
      fs.writeFileSync(join(root, "run.sh"), "old", { mode: 0o750 })
      fs.chmodSync(join(root, "run.sh"), 0o750)
      const owner = process.getuid?.() === 0 ? 1234 : (process.getuid?.() ?? 0)
      fs.chownSync(join(root, "run.sh"), owner, fs.statSync(root).gid)
      yield* writeFileInside(root, "run.sh", Buffer.from("new"))
      const stats = fs.statSync(join(root, "run.sh"))
      assert.strictEqual(stats.mode & 0o777, 0o750)
      assert.strictEqual(stats.uid, owner)
      assert.deepStrictEqual(fs.readdirSync(root), ["run.sh"])
    })
  )

  it.effect("files and links are removed; folders and the targets of links are not", () =>
    Effect.gen(function* () {
      const { root, outside } = yield* folders
      fs.mkdirSync(join(root, "a"))
      fs.writeFileSync(join(root, "a", "file"), "")
      fs.symlinkSync(join(outside, "secret"), join(root, "link"))
      fs.symlinkSync(outside, join(root, "dir"))
      for (const path of ["a/file", "a/file", "link", "none/at/all"]) yield* removeFileInside(root, path)
      assert.deepStrictEqual(fs.readdirSync(root).toSorted(), ["a", "dir"])
      assert.deepStrictEqual(fs.readdirSync(join(root, "a")), [])
      for (const path of ["dir/secret", "a", "../outside/secret"]) {
        assert.strictEqual((yield* Effect.flip(removeFileInside(root, path)))._tag, "PathRefused")
      }
      untouched(outside)
    })
  )

  it.effect("a file over the limit is refused, also if its size is not known in advance", () =>
    Effect.gen(function* () {
      const { root } = yield* folders
      fs.writeFileSync(join(root, "big"), Buffer.alloc(LIMIT + 1))
      fs.writeFileSync(join(root, "fits"), Buffer.alloc(LIMIT))
      assert.strictEqual((yield* Effect.flip(readFileInside(root, "big", LIMIT)))._tag, "FileTooLarge")
      assert.strictEqual(Option.getOrUndefined(yield* readFileInside(root, "fits", LIMIT))?.length, LIMIT)
      // Files of /proc have size 0 but contents.
      assert.strictEqual(
        (yield* Effect.flip(readFileInside("/proc/self", "status", 10)))._tag,
        "FileTooLarge"
      )
    })
  )

  it.effect("no operation leaves an open file", () =>
    Effect.gen(function* () {
      const { root } = yield* folders
      const open = () => fs.readdirSync("/proc/self/fd").length
      yield* writeFileInside(root, "a/b", Buffer.from("x"))
      const before = open()
      for (let round = 0; round < 50; round++) {
        yield* writeFileInside(root, "a/b", Buffer.from("x"))
        yield* readFileInside(root, "a/b", LIMIT)
        yield* Effect.ignore(readFileInside(root, "a/b/c", LIMIT))
        yield* Effect.ignore(readFileInside(root, "a/b", 0))
      }
      assert.strictEqual(open(), before)
    })
  )

  it.effect("an error of the file system has its code, and a failed write keeps the old file", () =>
    Effect.gen(function* () {
      const { root } = yield* folders
      const missing = yield* Effect.flip(readFileInside(join(root, "nowhere"), "a", LIMIT))
      assert.deepInclude(missing, { _tag: "IoError", code: "ENOENT" })
      const full = yield* Effect.flip(writeFileInside("/proc/self", "new-file", Buffer.from("x")))
      assert.strictEqual(full._tag, "IoError")
    })
  )
})
