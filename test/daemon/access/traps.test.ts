import { execFileSync } from "node:child_process"
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { createServer } from "node:net"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Result, Stream } from "effect"
import { MOST_ARCHIVES, MOST_SEARCHES } from "../../../src/contract/nodeApi/NodeFiles.ts"
import { Accesses } from "../../../src/daemon/instances/Accesses.ts"
import { eventually } from "../../support/eventually.ts"
import { asRoot, bytesOf, filesOf, places, put, refusalOf, statusesOf } from "./scene.ts"

const temporaryFiles = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))

const socketAt = (path: string) =>
  Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer()
      server.listen(path, () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => server.close())
  )

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.2, 10.5: what is not a file: ${name}`, () => {
    it.live("pipes, sockets and devices are listed, never opened, moved and deleted", () =>
      Effect.gen(function* () {
        const { change, folder, list, read, write } = yield* filesOf(place)
        execFileSync("mkfifo", [join(folder, "pipe")])
        yield* socketAt(join(folder, "socket"))
        if (asRoot) execFileSync("mknod", [join(folder, "device"), "c", "1", "5"])
        const others = ["pipe", "socket", ...(asRoot ? ["device"] : [])]
        const { entries } = yield* list("/")
        assert.deepStrictEqual(
          entries.filter(({ type }) => type === "other").map(({ name }) => name),
          others.toSorted()
        )
        for (const one of others) {
          assert.match(yield* refusalOf(read(`/${one}`)), /^409 /)
          assert.match(yield* refusalOf(write(`/${one}`, "x")), /^409 /)
          const outcomes = yield* change(
            { kind: "copy", from: `/${one}`, path: "/copy" },
            { kind: "move", from: `/${one}`, path: `/moved-${one}` },
            { kind: "delete", path: `/moved-${one}` }
          )
          assert.deepStrictEqual(statusesOf(outcomes), [409, 200, 200])
        }
        assert.isFalse(existsSync(join(folder, "copy")))
      }).pipe(Effect.scoped)
    )

    it.live(
      "a hard link to a file elsewhere keeps the other contents, times and permissions after a write",
      () =>
        Effect.gen(function* () {
          const { folder, node, write } = yield* filesOf(place)
          put(folder, "first", "first")
          linkSync(join(folder, "first"), join(folder, "second"))
          yield* write("/second", "second", { mode: "0600" })
          assert.strictEqual(readFileSync(join(folder, "first"), "utf8"), "first")
          assert.strictEqual(statSync(join(folder, "first")).mode & 0o777, 0o644)
          assert.isTrue(existsSync(node.dataDir))
        }).pipe(Effect.scoped)
    )

    it.live("what a killed daemon has left of a write is removed before the next access", () =>
      Effect.gen(function* () {
        const { folder, names, read } = yield* filesOf(place)
        const left = (number: number) => `.muster-00000000-0000-4000-8000-00000000000${number}.tmp`
        const writes = join(dirname(folder), "writes")
        const leave = (path: string, aside: number, old: number) => {
          const text = JSON.stringify({ path, aside: left(aside), old: left(old) })
          writeFileSync(join(writes, `${aside}.json`), text)
        }
        mkdirSync(writes)
        mkdirSync(join(folder, "sub"))
        put(folder, `sub/${left(1)}`, "half a file")
        leave("/sub/written", 1, 2)
        mkdirSync(join(folder, left(3)))
        put(folder, `${left(3)}/half`, "half a copy")
        mkdirSync(join(folder, left(4)))
        put(folder, `${left(4)}/kept`, "replaced by the copy")
        leave("/copy", 3, 4)
        writeFileSync(join(writes, "broken.json"), "{")
        assert.notInclude(yield* names("/"), left(3))
        assert.strictEqual(yield* read("/copy/kept"), "replaced by the copy")
        assert.deepStrictEqual(temporaryFiles(folder), [])
        assert.deepStrictEqual(readdirSync(writes), [])
      }).pipe(Effect.scoped)
    )

    it.live("permissions of a file with several names are not changed", () =>
      Effect.gen(function* () {
        const { change, folder } = yield* filesOf(place)
        put(folder, "first", "first")
        linkSync(join(folder, "first"), join(folder, "second"))
        assert.deepStrictEqual(
          statusesOf(yield* change({ kind: "mode", path: "/second", mode: "0600" })),
          [403]
        )
        assert.strictEqual(statSync(join(folder, "first")).mode & 0o777, 0o644)
      }).pipe(Effect.scoped)
    )

    it.live(
      "a copy of folders that are too deep is refused, also without a disk limit, and leaves nothing",
      () =>
        Effect.gen(function* () {
          const { change, folder } = yield* filesOf(place)
          mkdirSync(join(folder, `deep${"/d".repeat(70)}`), { recursive: true })
          const outcomes = yield* change({ kind: "copy", from: "/deep", path: "/copy" })
          assert.deepStrictEqual(statusesOf(outcomes), [422])
          assert.isFalse(existsSync(join(folder, "copy")))
          assert.deepStrictEqual(temporaryFiles(folder), [])
        }).pipe(Effect.scoped)
    )

    it.live("files without blocks count by the blocks that they have", () =>
      Effect.gen(function* () {
        const { change, files, folder, id, write } = yield* filesOf(place, { limits: { disk_space: 3 } })
        put(folder, "sparse", "")
        truncateSync(join(folder, "sparse"), 1_000_000_000)
        yield* write("/fits", "fits")
        const outcomes = yield* change({ kind: "copy", from: "/sparse", path: "/copy" })
        assert.deepStrictEqual(statusesOf(outcomes), [507])
        assert.deepStrictEqual(temporaryFiles(folder), [])
        yield* files.write(id, { path: "/two" }, Stream.make(new Uint8Array(2_000_000)))
      }).pipe(Effect.scoped)
    )

    it.live(
      "what a killed daemon has left beside a config file is hidden, and removed with the first access a day later",
      () =>
        Effect.gen(function* () {
          const find = { motd: "mine" }
          const configs = { "plugins/a.properties": { parser: "properties", find } } as const
          const { folder, names, read } = yield* filesOf(place, { configs })
          const old = ".muster-00000000-0000-0000-0000-000000000000.tmp"
          const young = ".muster-00000000-0000-0000-0000-000000000001.tmp"
          for (const remnant of [old, young]) put(folder, `plugins/${remnant}`, "half")
          utimesSync(join(folder, "plugins", old), 1_700_000_000, 1_700_000_000)
          assert.deepStrictEqual(yield* names("/plugins"), ["a.yml"])
          assert.isFalse(existsSync(join(folder, "plugins", old)))
          assert.isTrue(existsSync(join(folder, "plugins", young)))
          assert.match(yield* refusalOf(read(`/plugins/${young}`)), /^404 /)
        }).pipe(Effect.scoped)
    )
  })

  describe(`spec 10.3: no room: ${name}`, () => {
    it.live("a write that does not fit is 507 with the figures, at any byte, and leaves nothing", () =>
      Effect.gen(function* () {
        const { change, files, folder, id, read, write } = yield* filesOf(place, {
          limits: { disk_space: 3 }
        })
        const megabyte = new Uint8Array(1_000_000)
        const large = Stream.make(megabyte, megabyte, megabyte, megabyte)
        const refused = /^507 disk: [\d.]+ [KM]B of 3\.0 MB are free(?:, at least [\d.]+ [KM]B are needed)?$/
        assert.match(yield* refusalOf(files.write(id, { path: "/new/large" }, large)), refused)
        assert.match(
          yield* refusalOf(files.write(id, { path: "/announced", size: 4_000_000 }, large)),
          refused
        )
        assert.isFalse(existsSync(join(folder, "new")))
        assert.isFalse(existsSync(join(folder, "announced")))
        yield* files.write(id, { path: "/half" }, Stream.make(megabyte, megabyte))
        const outcomes = yield* change({ kind: "copy", from: "/half", path: "/copy" })
        assert.deepStrictEqual(statusesOf(outcomes), [507])
        const together = yield* Effect.forEach(
          ["/a", "/b", "/c", "/d"],
          (path) => refusalOf(files.write(id, { path }, Stream.make(megabyte.slice(0, 500_000)))),
          { concurrency: 4 }
        )
        assert.isAtMost(together.filter((outcome) => outcome === "no refusal").length, 2)
        assert.deepStrictEqual(temporaryFiles(folder), [])
        yield* change({ kind: "delete", path: "/half" })
        yield* write("/fits", "fits")
        assert.strictEqual(yield* read("/fits"), "fits")
      }).pipe(Effect.scoped)
    )
  })
}

describe("spec 10.3: accesses that run", () => {
  it.live("a slow reader does not hold up work on the files, and its files are closed", () =>
    Effect.gen(function* () {
      const accesses = new Accesses()
      let closed = 0
      const opened = Effect.acquireRelease(Effect.succeed(Stream.forever(bytesOf("x"))), () =>
        Effect.sync(() => {
          closed += 1
        })
      )
      const stream = yield* accesses.stream(() => undefined, opened)
      assert.strictEqual(accesses.count, 1)
      yield* accesses.interrupt
      assert.deepStrictEqual([accesses.count, closed], [0, 1])
      assert.match(yield* refusalOf(Stream.runDrain(stream)), /^409 /)
    }).pipe(Effect.scoped)
  )

  it.live("a stream that nothing reads for a while ends", () =>
    Effect.gen(function* () {
      const accesses = new Accesses({ stallMillis: 20 })
      const stream = yield* accesses.stream(() => undefined, Effect.succeed(Stream.forever(bytesOf("x"))))
      const slow = Stream.runForEach(stream, () => Effect.sleep("1 second"))
      assert.match(yield* refusalOf(slow), /^409 the transfer was ended/)
      assert.strictEqual(accesses.count, 0)
    }).pipe(Effect.scoped)
  )

  const download = (accesses: Accesses) =>
    accesses.stream(() => undefined, Effect.succeed(Stream.forever(bytesOf("x"))), true)

  /** Begins a download that is always read: its bytes do not arrive. */
  const reading = Effect.fnUntraced(function* (accesses: Accesses) {
    const isRead = yield* Deferred.make<void>()
    const bytes = Stream.concat(
      Stream.drain(Stream.fromEffect(Deferred.succeed(isRead, undefined))),
      Stream.never
    )
    const stream = yield* accesses.stream(() => undefined, Effect.succeed(bytes), true)
    yield* Effect.forkScoped(Stream.runDrain(stream))
    yield* Deferred.await(isRead)
  })

  it.live(
    "a download that nothing reads makes room for another one, and a download that is read does not",
    () =>
      Effect.gen(function* () {
        const accesses = new Accesses({ idleMillis: 20 })
        for (let begun = 1; begun < MOST_ARCHIVES; begun++) yield* reading(accesses)
        const unread = yield* download(accesses)
        yield* eventually(Effect.result(reading(accesses)), Result.isSuccess)
        assert.match(yield* refusalOf(Stream.runDrain(unread)), /^409 .*another archive needed its place/)
        assert.match(yield* refusalOf(Effect.scoped(download(accesses))), /^429 /)
      }).pipe(Effect.scoped)
  )

  it.live("one search too many of a server is refused, and the end of another one makes room", () =>
    Effect.gen(function* () {
      const accesses = new Accesses()
      const search = accesses.searching(Effect.never)
      const running = yield* Effect.forEach(Array.from({ length: MOST_SEARCHES }), () =>
        Effect.forkScoped(search, { startImmediately: true })
      )
      assert.match(yield* refusalOf(search), /^429 .*4 searches/)
      yield* Effect.forEach(running.slice(0, 1), Fiber.interrupt)
      assert.strictEqual(yield* accesses.searching(Effect.succeed("found")), "found")
    }).pipe(Effect.scoped)
  )

  it.live("archives that are packed count, wait for a place, and leave places for downloads", () =>
    Effect.gen(function* () {
      const accesses = new Accesses()
      let packing = 0
      const pack = accesses.packing(
        Effect.suspend(() => {
          packing += 1
          return Effect.never
        })
      )
      const packs = yield* Effect.forEach([1, 2, 3], () => Effect.forkScoped(pack))
      yield* eventually(
        Effect.sync(() => packing),
        (count) => count === 2
      )
      for (const _ of [3, 4]) yield* download(accesses)
      assert.match(yield* refusalOf(Effect.scoped(download(accesses))), /^429 .*downloaded or packed/)
      yield* Effect.forEach(packs.slice(0, 1), Fiber.interrupt)
      yield* eventually(
        Effect.sync(() => packing),
        (count) => count === 3
      )
    }).pipe(Effect.scoped)
  )
})
