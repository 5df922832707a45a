import {
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { MOST_OPEN } from "../../../src/contract/nodeApi/NodeFiles.ts"
import { filesOf, places, refusalOf } from "./scene.ts"

const reading = { read: true, write: false, create: false, exclusive: false, truncate: false }
const writing = { ...reading, write: true, create: true }

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.6: random access on the node: ${name}`, () => {
    it.live("bytes are read and written at any offset, in place", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place)
        const session = yield* files.session(id)
        const file = yield* session.open("/new.bin", writing, 0o640)
        const large = Buffer.alloc(200_000, "ab")
        yield* file.write(10, large)
        yield* file.write(0, Buffer.from("0123456789"))
        yield* file.sync
        assert.deepStrictEqual(
          Buffer.from(yield* file.read(5, 200_000)),
          Buffer.concat([Buffer.from("56789"), large.subarray(0, 199_995)])
        )
        assert.strictEqual((yield* file.read(1_000_000, 10)).length, 0)
        yield* file.set({ size: 4, modified: 1_700_000_000 })
        assert.deepStrictEqual(yield* file.stat, { mode: 0o640, modified: 1_700_000_000, size: 4 })
        yield* file.close
        assert.match(yield* refusalOf(file.read(0, 1)), /^409 the file is (?:closed|not open)/)
        assert.strictEqual(readFileSync(join(folder, "new.bin"), "utf8"), "0123")
      }).pipe(Effect.scoped)
    )

    it.live("links are not followed, other names of a file stay, and nothing is removed recursively", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place)
        symlinkSync("/etc/passwd", join(folder, "link"))
        writeFileSync(join(folder, "one"), "one")
        linkSync(join(folder, "one"), join(folder, "two"))
        mkdirSync(join(folder, "full/below"), { recursive: true })
        const session = yield* files.session(id)
        assert.match(yield* refusalOf(session.open("/link", reading)), /^409 .*link/)
        assert.match(yield* refusalOf(session.open("/link", writing)), /^409 .*link/)
        assert.match(yield* refusalOf(session.open("/two", { ...writing, truncate: true })), /^403 .*names/)
        assert.match(
          yield* refusalOf(session.change({ kind: "set", path: "/two", attributes: { mode: 0o777 } })),
          /^403 /
        )
        assert.match(
          yield* refusalOf(session.change({ kind: "remove-folder", path: "/full" })),
          /^409 .*not empty/
        )
        assert.match(yield* refusalOf(session.change({ kind: "remove", path: "/full" })), /^409 .*folder/)
        assert.match(
          yield* refusalOf(session.change({ kind: "rename", from: "/one", path: "/full", replace: true })),
          /^409 .*folder/
        )
        assert.match(
          yield* refusalOf(session.change({ kind: "rename", from: "/full", path: "/one", replace: true })),
          /^409 .*file/
        )
        assert.strictEqual(readFileSync(join(folder, "two"), "utf8"), "one")
        yield* session.change({ kind: "remove", path: "/link" })
        yield* session.change({ kind: "folder", path: "/made", mode: 0o777 })
        assert.strictEqual(statSync(join(folder, "made")).mode & 0o777, 0o755)
        yield* session.change({ kind: "remove-folder", path: "/made" })
        assert.isAbove((yield* session.space).free_bytes, 0)
      }).pipe(Effect.scoped)
    )

    it.live("a file that is open for reading is not changed, and reading makes no file", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place)
        const before = statSync(join(folder, "server.jar"))
        const session = yield* files.session(id)
        const file = yield* session.open("/server.jar", { ...reading, create: true, truncate: true })
        for (const change of [{ mode: 0o777 }, { modified: 1 }, { size: 0 }])
          assert.match(yield* refusalOf(file.set(change)), /^403 .*reading only/)
        const { mode, mtimeMs, size } = statSync(join(folder, "server.jar"))
        assert.deepStrictEqual([mode, mtimeMs, size], [before.mode, before.mtimeMs, before.size])
        assert.match(yield* refusalOf(session.open("/none", { ...reading, create: true })), /^404 /)
        assert.isFalse(existsSync(join(folder, "none")))
      }).pipe(Effect.scoped)
    )

    it.live("a file does not become longer than there is room, though a hole takes none", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place, { limits: { disk_space: 3 } })
        const session = yield* files.session(id)
        const open = session.open("/sparse", writing)
        const file = yield* open
        const huge = 8_000_000_000_000
        for (const size of [4_000_000, huge]) {
          assert.match(yield* refusalOf(file.set({ size })), /^507 disk: /)
          const set = session.change({ kind: "set", path: "/sparse", attributes: { size } })
          assert.match(yield* refusalOf(set), /^507 disk: /)
          assert.match(yield* refusalOf((yield* open).write(size, Buffer.from("x"))), /^507 disk: /)
        }
        assert.strictEqual(statSync(join(folder, "sparse")).size, 0)
        yield* file.set({ size: 2_000_000 })
        yield* file.write(2_100_000, Buffer.from("x"))
        assert.strictEqual(statSync(join(folder, "sparse")).size, 2_100_001)
        assert.match(yield* refusalOf(file.set({ size: 4_000_000 })), /^507 disk: /)
      }).pipe(Effect.scoped)
    )

    it.live("without a disk limit, a file does not become longer than the disk has room", () =>
      Effect.gen(function* () {
        const { files, folder, id } = yield* filesOf(place)
        const session = yield* files.session(id)
        const file = yield* session.open("/sparse", writing)
        const { bsize, blocks } = statfsSync(folder)
        assert.match(
          yield* refusalOf(file.set({ size: blocks * bsize })),
          /^507 disk: .* free, the file needs /
        )
        yield* file.set({ size: 100_000_000 })
        assert.strictEqual(statSync(join(folder, "sparse")).size, 100_000_000)
      }).pipe(Effect.scoped)
    )

    it.live("a session has a bounded number of open files, and its end closes them", () =>
      Effect.gen(function* () {
        const { files, id } = yield* filesOf(place)
        const scope = yield* Scope.make()
        const session = yield* Scope.provide(files.session(id), scope)
        const opened = yield* Effect.forEach(Array.from({ length: MOST_OPEN }), () =>
          session.open("/server.jar", reading)
        )
        assert.match(yield* refusalOf(session.open("/server.jar", reading)), /^409 .*64 open files/)
        yield* Effect.forEach(opened.slice(0, 1), ({ close }) => close)
        yield* session.open("/server.jar", reading)
        yield* Scope.close(scope, Exit.void)
        const again = yield* files.session(id)
        assert.strictEqual(
          Buffer.from(yield* (yield* again.open("/server.jar", reading)).read(0, 9)).toString(),
          "jar\n"
        )
      }).pipe(Effect.scoped)
    )

    it.live("work on the files ends the session, and later ones are refused until it is done", () =>
      Effect.gen(function* () {
        const { files, id, node } = yield* filesOf(place)
        const session = yield* files.session(id)
        const file = yield* session.open("/server.jar", reading)
        yield* node.daemon.hold(id, true)
        assert.notStrictEqual(yield* refusalOf(session.ended), "no refusal")
        assert.notStrictEqual(yield* refusalOf(file.read(0, 1)), "no refusal")
        assert.match(yield* refusalOf(Effect.scoped(files.session(id))), /^409 .*migrating/)
        yield* node.daemon.hold(id, false)
        yield* Effect.scoped(files.session(id))
      }).pipe(Effect.scoped)
    )
  })
}
