import { execFileSync } from "node:child_process"
import {
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope, Stream } from "effect"
import { until } from "../support.ts"
import { asRoot, bytesOf, everyPlace, filesOf, put, refusalOf, sha256, statusesOf } from "./scene.ts"

/** Returns all names below a folder that a write may leave. */
const temporaryFiles = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))

for (const [name, place] of Object.entries(everyPlace)) {
  describe(`spec 10.2, 10.3: files on the node: ${name}`, () => {
    it.live("a folder is listed by name, page by page, with types, modes, times and layers", () =>
      Effect.gen(function* () {
        const { folder, list, stat } = yield* filesOf(place)
        put(folder, "own.txt", "own")
        symlinkSync("plugins/a.yml", join(folder, "link"))
        execFileSync("mkfifo", [join(folder, "pipe")])
        utimesSync(join(folder, "own.txt"), 1_700_000_000, 1_700_000_000)
        const { entries, next } = yield* list("/")
        assert.deepStrictEqual(
          entries.map((entry) => [entry.name, entry.type, entry.layer]),
          [
            ["link", "link", "server"],
            ["own.txt", "file", "server"],
            ["pipe", "other", "server"],
            ["plugins", "folder", "base"],
            ["server.jar", "file", "base"],
            ["world", "folder", "base"]
          ]
        )
        assert.isUndefined(next)
        assert.strictEqual(entries[0]?.target, "plugins/a.yml")
        assert.deepStrictEqual(
          [entries[1]?.size, entries[1]?.mode, entries[1]?.modified_at, entries[1]?.writable],
          [3, "0644", "2023-11-14T22:13:20.000Z", true]
        )
        const first = yield* list("/", { limit: 2 })
        assert.deepStrictEqual(
          [first.entries.map(({ name }) => name), first.next],
          [["link", "own.txt"], "own.txt"]
        )
        const second = yield* list("/", { limit: 5, after: "own.txt" })
        assert.deepStrictEqual(
          [second.entries.map(({ name }) => name), second.next],
          [["pipe", "plugins", "server.jar", "world"], undefined]
        )
        assert.strictEqual((yield* stat("/own.txt")).entry.name, "own.txt")
        assert.strictEqual((yield* stat("/")).entry.type, "folder")
        const [sized] = (yield* list("/", { sizes: true, after: "pipe" })).entries
        assert.isAbove(sized?.size ?? 0, 0)
      }).pipe(Effect.scoped)
    )

    it.live("names that are not UTF-8, and percent signs, are shown and accepted", () =>
      Effect.gen(function* () {
        const { change, folder, names, read } = yield* filesOf(place)
        const odd = Buffer.concat([Buffer.from(`${folder}/plugins/x`), Buffer.from([0xff, 0x25, 0x32, 0x35])])
        writeFileSync(odd, "odd")
        assert.deepStrictEqual(yield* names("/plugins"), ["a.yml", "x%FF%2525"])
        assert.strictEqual(yield* read("/plugins/x%FF%2525"), "odd")
        assert.deepStrictEqual(yield* change({ kind: "delete", path: "/plugins/x%FF%2525" }), [undefined])
        assert.isFalse(existsSync(odd))
      }).pipe(Effect.scoped)
    )

    it.live("paths that are none, lead through a link, or name nothing are refused", () =>
      Effect.gen(function* () {
        const { folder, list, read, write } = yield* filesOf(place)
        symlinkSync("/etc", join(folder, "out"))
        execFileSync("mkfifo", [join(folder, "pipe")])
        const refused = (effect: Effect.Effect<unknown, unknown>) =>
          Effect.map(refusalOf(effect), (it) => it.slice(0, 3))
        assert.strictEqual(yield* refused(read("/../x")), "422")
        assert.strictEqual(yield* refused(read("/nothing")), "404")
        assert.strictEqual(yield* refused(read("/no/thing")), "404")
        assert.strictEqual(yield* refused(read("/out/passwd")), "409")
        assert.strictEqual(yield* refused(list("/out")), "409")
        assert.strictEqual(yield* refused(write("/out/x", "x")), "409")
        assert.strictEqual(yield* refused(read("/pipe")), "409")
        assert.strictEqual(yield* refused(write("/pipe", "x")), "409")
        assert.strictEqual(yield* refused(read("/plugins")), "409")
        assert.strictEqual(yield* refused(list("/server.jar")), "409")
        assert.strictEqual(yield* refused(write("/server.jar/x", "x")), "409")
        assert.isFalse(existsSync("/etc/x"))
      }).pipe(Effect.scoped)
    )

    it.live("a file is read as a whole, in part, and only while it has the tag", () =>
      Effect.gen(function* () {
        const { folder, read, stat } = yield* filesOf(place)
        const text = Array.from({ length: 200_000 }, (_, index) => `${index}\n`).join("")
        put(folder, "big.txt", text)
        const { etag } = yield* stat("/big.txt")
        assert.match(etag, /^"[^"]+"$/)
        assert.isTrue((yield* read("/big.txt", { etag })) === text)
        assert.strictEqual(yield* read("/big.txt", { start: 2, end: 6 }), text.slice(2, 7))
        assert.strictEqual(yield* read("/big.txt", { start: text.length - 3 }), text.slice(-3))
        assert.strictEqual(
          yield* read("/big.txt", { end: 1e12 }).pipe(Effect.map((it) => it.length)),
          text.length
        )
        assert.match(yield* refusalOf(read("/big.txt", { start: text.length })), /^416 /)
        put(folder, "big.txt", "changed")
        assert.match(yield* refusalOf(read("/big.txt", { etag })), /^412 /)
        put(folder, "empty", "")
        assert.strictEqual(yield* read("/empty"), "")
      }).pipe(Effect.scoped)
    )

    it.live("a write makes folders, keeps mode and owner, and replaces one name of a file", () =>
      Effect.gen(function* () {
        const { folder, read, stat, write } = yield* filesOf(place)
        const created = yield* write("/new/deep/file.txt", "one")
        assert.isTrue(created.created)
        assert.strictEqual((yield* stat("/new/deep/file.txt")).etag, created.etag)
        assert.strictEqual((yield* stat("/new/deep/file.txt")).entry.mode, "0644")
        execFileSync("chmod", ["0600", join(folder, "new/deep/file.txt")])
        if (asRoot) chownSync(join(folder, "new/deep/file.txt"), 12_345, 12_345)
        linkSync(join(folder, "new/deep/file.txt"), join(folder, "other-name"))
        const replaced = yield* write("/new/deep/file.txt", "two")
        assert.isFalse(replaced.created)
        assert.strictEqual((yield* stat("/new/deep/file.txt")).entry.mode, "0600")
        if (asRoot) assert.strictEqual(statSync(join(folder, "new/deep/file.txt")).uid, 12_345)
        assert.strictEqual(readFileSync(join(folder, "other-name"), "utf8"), "one")
        assert.strictEqual(yield* read("/new/deep/file.txt"), "two")
        yield* write("/run.sh", "#!", { mode: "0755" })
        assert.strictEqual((yield* stat("/run.sh")).entry.mode, "0755")
        yield* write("/plugins/a.yml", "own")
        assert.strictEqual((yield* stat("/plugins/a.yml")).entry.layer, "server")
        assert.deepStrictEqual(temporaryFiles(folder), [])
      }).pipe(Effect.scoped)
    )

    it.live(
      "conditions of a write that do not hold are 412, another digest is 422, and nothing changes",
      () =>
        Effect.gen(function* () {
          const { folder, read, stat, write } = yield* filesOf(place)
          const { etag } = yield* stat("/server.jar")
          assert.match(yield* refusalOf(write("/server.jar", "x", { if_none_match: "*" })), /^412 /)
          assert.match(yield* refusalOf(write("/server.jar", "x", { if_match: '"other"' })), /^412 /)
          assert.match(yield* refusalOf(write("/missing", "x", { if_match: etag })), /^412 /)
          assert.match(yield* refusalOf(write("/made/x", "x", { sha256: sha256("y") })), /^422 /)
          assert.strictEqual(yield* read("/server.jar"), "jar\n")
          assert.isFalse(existsSync(join(folder, "made")))
          const next = yield* write("/server.jar", "next", { if_match: etag, sha256: sha256("next") })
          assert.match(yield* refusalOf(write("/server.jar", "late", { if_match: etag })), /^412 /)
          yield* write("/server.jar", "last", { if_match: next.etag })
          assert.strictEqual(yield* read("/server.jar"), "last")
          assert.deepStrictEqual(temporaryFiles(folder), [])
        }).pipe(Effect.scoped)
    )

    it.live("of two writes with the same condition, one is refused", () =>
      Effect.gen(function* () {
        const { write } = yield* filesOf(place)
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 8 }, (_, index) => index),
          (index) => refusalOf(write("/once", String(index), { if_none_match: "*" })),
          { concurrency: 8 }
        )
        assert.strictEqual(outcomes.filter((outcome) => outcome === "no refusal").length, 1)
        assert.strictEqual(outcomes.filter((outcome) => outcome.startsWith("412 ")).length, 7)
      }).pipe(Effect.scoped)
    )

    it.live("a write whose source fails, or whose caller leaves, leaves the old file and nothing else", () =>
      Effect.gen(function* () {
        const { files, folder, id, read } = yield* filesOf(place)
        const half = Stream.concat(bytesOf("half"), Stream.fail("lost" as const))
        const error = yield* Effect.flip(files.write(id, { path: "/made/server.jar" }, half))
        assert.strictEqual(error, "lost")
        const endless = Stream.concat(bytesOf("half"), Stream.never)
        yield* files.write(id, { path: "/server.jar" }, endless).pipe(Effect.timeoutOption("300 millis"))
        assert.strictEqual(yield* read("/server.jar"), "jar\n")
        // The node notices the end of a connection a moment later.
        yield* until("no remnant", () => temporaryFiles(folder).length === 0)
        assert.deepStrictEqual(temporaryFiles(folder), [])
        assert.isFalse(existsSync(join(folder, "made")))
      }).pipe(Effect.scoped)
    )

    it.live(
      "folders are made, entries moved, copied, deleted and given permissions, each with its outcome",
      () =>
        Effect.gen(function* () {
          const { change, folder, names, read, stat } = yield* filesOf(place)
          const outcomes = yield* change(
            { kind: "folder", path: "/a/b" },
            { kind: "copy", from: "/world", path: "/a/world" },
            { kind: "move", from: "/world", path: "/moved" },
            { kind: "move", from: "/server.jar", path: "/a/b/s.jar" },
            { kind: "mode", path: "/a/b/s.jar", mode: "0600" },
            { kind: "delete", path: "/plugins" },
            { kind: "delete", path: "/plugins" },
            { kind: "move", from: "/a", path: "/a/b/c" },
            { kind: "copy", from: "/moved", path: "/a/world" },
            { kind: "copy", from: "/moved/region/r0", path: "/a/world", overwrite: "replace" },
            { kind: "copy", from: "/moved/region", path: "/moved", overwrite: "replace" },
            { kind: "move", from: "/moved/region", path: "/moved", overwrite: "replace" }
          )
          const expected = [200, 200, 200, 200, 200, 200, 404, 422, 409, 200, 409, 409] as const
          assert.deepStrictEqual(statusesOf(outcomes), [...expected])
          assert.deepStrictEqual(yield* names("/"), ["a", "moved"])
          assert.strictEqual(yield* read("/a/world"), "r\n")
          assert.strictEqual(yield* read("/moved/region/r0"), "r\n")
          assert.strictEqual((yield* stat("/a/b/s.jar")).entry.mode, "0600")
          assert.deepStrictEqual(temporaryFiles(folder), [])
        }).pipe(Effect.scoped)
    )

    it.live("trees of more than 1,000 entries are too large for one call, and nothing is done", () =>
      Effect.gen(function* () {
        const { change, folder, names } = yield* filesOf(place)
        mkdirSync(join(folder, "many"))
        for (let at = 0; at < 1000; at++) put(folder, `many/${at}`, "")
        const before = yield* names("/")
        for (const kind of ["copy", "delete"] as const) {
          const changes = kind === "copy" ? { kind, from: "/many", path: "/copy" } : { kind, path: "/many" }
          assert.strictEqual(yield* change({ kind: "delete", path: "/server.jar" }, changes), "large")
        }
        assert.deepStrictEqual(yield* names("/"), before)
        rmSync(join(folder, "many/0"))
        assert.deepStrictEqual(statusesOf(yield* change({ kind: "delete", path: "/many" })), [200])
      }).pipe(Effect.scoped)
    )
  })

  describe(`spec 10.4: rules of blueprints: ${name}`, () => {
    const volumes = [
      { name: "s", source: "shared", target: "shared", mode: "rw" },
      { name: "r", source: "readonly", target: "lib/ro", mode: "ro" }
    ] as const

    it.live("volumes are read, written if the rules say so, and never moved or deleted", () =>
      Effect.gen(function* () {
        const read = yield* filesOf(place, { volumes })
        assert.deepStrictEqual(
          (yield* read.list("/")).entries
            .filter(({ name }) => name === "shared")
            .map(({ layer, type, writable }) => [layer, type, writable]),
          [["volume", "folder", false]]
        )
        assert.strictEqual(yield* read.read("/shared/v.txt"), "volume")
        assert.match(yield* refusalOf(read.write("/shared/x", "x")), /^403 /)
        const written = yield* filesOf(place, { volumes, files: { volumes: "write" } }, read.node)
        yield* written.write("/shared/w.txt", "written")
        assert.strictEqual(yield* read.read("/shared/w.txt"), "written")
        assert.match(yield* refusalOf(written.write("/lib/ro/x", "x")), /^403 /)
        const outcomes = yield* written.change(
          { kind: "delete", path: "/shared" },
          { kind: "delete", path: "/lib" },
          { kind: "move", from: "/lib", path: "/x" },
          { kind: "move", from: "/shared/w.txt", path: "/own.txt" },
          { kind: "move", from: "/server.jar", path: "/shared/server.jar" }
        )
        assert.deepStrictEqual(statusesOf(outcomes), [409, 409, 409, 200, 200])
        assert.strictEqual(
          readFileSync(join(read.node.dataDir, "volumes/shared/server.jar"), "utf8"),
          "jar\n"
        )
        assert.strictEqual(yield* written.read("/own.txt"), "written")
      }).pipe(Effect.scoped)
    )

    it.live("denied paths are 403 and not listed, read-only ones are not written", () =>
      Effect.gen(function* () {
        const { change, folder, names, read, stat, write } = yield* filesOf(place, {
          files: { deny: ["*.key", "/world/region/**"], read_only: ["server.jar"] }
        })
        put(folder, "plugins/private.key", "secret")
        assert.deepStrictEqual(yield* names("/plugins"), ["a.yml"])
        assert.match(yield* refusalOf(read("/plugins/private.key")), /^403 /)
        assert.match(yield* refusalOf(write("/x.key", "x")), /^403 /)
        assert.match(yield* refusalOf(read("/world/region/r0")), /^403 /)
        assert.isFalse((yield* stat("/server.jar")).entry.writable)
        assert.match(yield* refusalOf(write("/server.jar", "x")), /^403 /)
        const outcomes = yield* change(
          { kind: "delete", path: "/plugins" },
          { kind: "move", from: "/plugins", path: "/p" },
          { kind: "copy", from: "/plugins", path: "/p" },
          { kind: "copy", from: "/server.jar", path: "/copy.jar" },
          { kind: "copy", from: "/plugins/a.yml", path: "/a.key" }
        )
        assert.deepStrictEqual(statusesOf(outcomes), [403, 403, 403, 200, 403])
        assert.isTrue(existsSync(join(folder, "plugins/private.key")))
        // The refusal of a folder does not name what it hides.
        assert.notInclude(JSON.stringify(outcomes), "private")
      }).pipe(Effect.scoped)
    )
  })
}

describe("spec 10.3: copies of folders that are written meanwhile", () => {
  it.live("leave out what is not finished", () =>
    Effect.gen(function* () {
      const { change, files, folder, id } = yield* filesOf({ far: false, instanceFiles: "copy" })
      yield* Effect.forkChild(
        files.write(id, { path: "/plugins/slow" }, Stream.concat(bytesOf("half"), Stream.never))
      )
      yield* until("the write has begun", () => temporaryFiles(join(folder, "plugins")).length > 0)
      const outcomes = yield* change({ kind: "copy", from: "/plugins", path: "/copied" })
      assert.deepStrictEqual(statusesOf(outcomes), [200])
      assert.deepStrictEqual(readdirSync(join(folder, "copied")), ["a.yml"])
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.3: access while the node works on the files", () => {
  it.live("is refused by 409, and interrupted where it runs", () =>
    Effect.gen(function* () {
      const { files, folder, id, node, read, write } = yield* filesOf({ far: false, instanceFiles: "copy" })
      const scope = yield* Scope.fork(yield* Effect.scope)
      yield* write("/big", "x".repeat(4 * 1024 * 1024))
      const stream = yield* Scope.provide(files.read(id, { path: "/big" }), scope)
      const writing = yield* Effect.forkChild(
        refusalOf(files.write(id, { path: "/slow" }, Stream.concat(bytesOf("half"), Stream.never)))
      )
      yield* until("the write has begun", () => temporaryFiles(folder).length > 0)
      yield* node.daemon.hold(id, true)
      assert.match(yield* refusalOf(Stream.runDrain(stream)), /^409 the access was interrupted/)
      assert.match(yield* Fiber.join(writing), /^409 the access was interrupted/)
      yield* Scope.close(scope, Exit.void)
      assert.match(yield* refusalOf(read("/big")), /^409 the server is migrating/)
      assert.deepStrictEqual(temporaryFiles(folder), [])
      yield* node.daemon.hold(id, false)
      assert.strictEqual((yield* read("/big")).length, 4 * 1024 * 1024)
    }).pipe(Effect.scoped)
  )
})
