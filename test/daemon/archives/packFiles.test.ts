import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import * as fc from "fast-check"
import { ArchiveReader } from "../../../src/daemon/archives/ArchiveReader.ts"
import { packFiles } from "../../../src/daemon/archives/packFiles.ts"
import { type UnpackOptions, unpackFiles } from "../../../src/daemon/archives/unpackFiles.ts"
import { IoError } from "../../../src/daemon/disk/fsio.ts"
import { archive, long, member, root, swallowing } from "../../support/tar.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const folders = Effect.gen(function* () {
  const root = yield* temporaryFolder
  const source = join(root, "source")
  const target = join(root, "target")
  fs.mkdirSync(source)
  fs.mkdirSync(target)
  return { root, source, target }
})

/** Returns every property of a tree that a migration keeps, by path. Names need not be UTF-8. */
const tree = (root: string) => {
  const found: Record<string, unknown> = {}
  const walk = (path: string) => {
    const at = Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, "latin1")])
    const stats = fs.lstatSync(at)
    found[path] = {
      mode: stats.mode,
      owner: `${stats.uid}:${stats.gid}`,
      ...(stats.isSymbolicLink() ? { link: fs.readlinkSync(at) } : {}),
      mtime: Math.floor(stats.mtimeMs / 1000),
      ...(stats.isFile() ? { content: fs.readFileSync(at).toString("base64") } : {})
    }
    if (!stats.isDirectory()) return
    for (const name of fs.readdirSync(at, "latin1")) walk(path === "" ? name : `${path}/${name}`)
  }
  walk("")
  return found
}

const chunked = (bytes: Uint8Array, size: number) =>
  Stream.fromIterable(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
      bytes.subarray(index * size, (index + 1) * size)
    )
  )

const packed = (source: string, shared: ReadonlyArray<string> = []) =>
  Effect.scoped(
    Effect.gen(function* () {
      const stream = yield* packFiles(source, { shared, own: [] })
      return Buffer.concat(yield* Stream.runCollect(stream))
    })
  )

const moved = (
  source: string,
  target: string,
  shared: ReadonlyArray<string> = [],
  options: UnpackOptions = {}
) =>
  Effect.scoped(
    Effect.flatMap(packFiles(source, { shared, own: [] }), (stream) => unpackFiles(stream, target, options))
  )

const hostile: ReadonlyArray<readonly [string, Buffer]> = [
  ["an absolute name", archive(member({ name: "/etc/evil", content: "x" }))],
  ["a name with ..", archive(member({ name: "./../evil", content: "x" }))],
  ["a name with .. in the middle", archive(member({ name: "./a/../../evil", content: "x" }))],
  [
    "a long name with ..",
    archive(long(`./${"a/".repeat(100)}../evil`), member({ name: "./fine", content: "x" }))
  ],
  [
    "a long name that hides behind a NUL",
    archive(long("./fine\0/../evil"), member({ name: "./x", content: "x" }))
  ],
  ["an empty part of a name", archive(member({ name: ".//etc/evil", content: "x" }))],
  ["a name without the folder it is in", archive(member({ name: "evil", content: "x" }))],
  [
    "a write through a link",
    archive(
      member({ name: "./out", type: "2", link: "OUTSIDE" }),
      member({ name: "./out/evil", content: "x" })
    )
  ],
  [
    "a write through a link that takes a folder's place",
    archive(
      member({ name: "./out", type: "5" }),
      member({ name: "./other", content: "x" }),
      member({ name: "./out", type: "2", link: "OUTSIDE" }),
      member({ name: "./out/evil", content: "x" })
    )
  ],
  [
    "a link that takes a folder's place",
    archive(member({ name: "./out", type: "5" }), member({ name: "./out", type: "2", link: "OUTSIDE" }))
  ],
  [
    "a file that is written through a link of its own name",
    archive(
      member({ name: "./out", type: "2", link: "OUTSIDE/evil" }),
      member({ name: "./out", content: "x" })
    )
  ],
  [
    "a folder that takes a link's place",
    archive(
      member({ name: "./out", type: "2", link: "OUTSIDE" }),
      member({ name: "./out", type: "5" }),
      member({ name: "./out/evil", content: "x" })
    )
  ],
  [
    "a device behind a file with holes and no size",
    archive(swallowing(), member({ name: "./disk", type: "4" }))
  ],
  [
    "a device behind a file that is one hole",
    archive(swallowing(512), member({ name: "./disk", type: "4" }))
  ],
  [
    "a set-uid file behind a file with holes and no size",
    archive(swallowing(), member({ name: "./evil", mode: 0o4755 }))
  ],
  [
    "holes that go backwards",
    archive(
      member({
        name: "./s",
        type: "S",
        content: "ab",
        sparse: {
          pieces: [
            [9, 1],
            [3, 1]
          ],
          whole: 20
        }
      })
    )
  ],
  [
    "more contents than its map has",
    archive(member({ name: "./s", type: "S", content: "abc", sparse: { pieces: [[0, 1]], whole: 20 } }))
  ],
  [
    "contents behind the end of a file with holes",
    archive(member({ name: "./s", type: "S", content: "abc", sparse: { pieces: [[100, 3]], whole: 20 } }))
  ],
  [
    "a size that is negative",
    archive(member({ name: "./a", rawSize: Array.from({ length: 12 }, () => 0xff) }))
  ],
  [
    "a size beyond all numbers",
    archive(member({ name: "./a", rawSize: [0x80, ...Array.from({ length: 11 }, () => 0xff)] }))
  ],
  [
    "a name that is there twice",
    archive(member({ name: "./a", content: "1" }), member({ name: "./a", content: "2" }))
  ],
  [
    "a folder that is there twice",
    archive(member({ name: "./a", type: "5" }), member({ name: "./a", type: "5" }))
  ],
  ["a link without a target", archive(member({ name: "./a", type: "2" }))],
  ["a second root", archive(member({ name: "./", type: "5" }))],
  ["zeros without an end", Buffer.concat([archive(), Buffer.alloc(2 * 1024 * 1024)])],
  [
    "a size that a header of another format gives",
    archive(
      member({ name: "./pax", type: "x", content: "12 size=1024\n" }),
      member({ name: "./a", content: "x" })
    )
  ],
  ["a hard link", archive(member({ name: "./out", type: "1", link: "OUTSIDE/secret" }))],
  ["a device", archive(member({ name: "./disk", type: "4" }))],
  ["a character device", archive(member({ name: "./null", type: "3" }))],
  ["a pipe", archive(member({ name: "./pipe", type: "6" }))],
  ["a header of another format", archive(member({ name: "./a", content: "x", magic: "ustar\x0000" }))],
  [
    "a header of another format that gives the next another name",
    archive(member({ name: "./pax", type: "x", content: "20 path=/etc/evil12\n" }), member({ name: "./a" }))
  ],
  ["a file of another type", archive(member({ name: "./a", type: "7", content: "x" }))],
  ["a file of the oldest type, which a slash makes a folder", archive(member({ name: "./a/", type: "\0" }))],
  ["a rename record", archive(member({ name: "./a", type: "N", content: "Rename ./a to /etc/evil\n" }))],
  ["a volume label", archive(member({ name: "label", type: "V" }))],
  ["a folder with contents", archive(member({ name: "./a", type: "5", content: "x" }))],
  ["data after its end", Buffer.concat([archive(), member({ name: "./late", content: "x" })])],
  ["a page of HTML", Buffer.from("<html>504 Gateway Timeout</html>".repeat(40))],
  ["a damaged header", archive(Buffer.from(member({ name: "./a" })).fill("b", 2, 3))],
  ["an endless name", archive(member({ name: "././@LongLink", type: "L", size: 2 ** 28 }))],
  ["no bytes", Buffer.alloc(0)],
  ["no end", root],
  ["half an end", Buffer.concat([root, Buffer.alloc(512)])],
  ["an end in the middle of a file", archive(member({ name: "./a", content: "x", size: 1_000_000 }))]
]

/** The paths below a folder in Latin-1. Unlike `readdirSync` with `recursive`, it follows no links. */
const namesBelow = (folder: string, prefix = ""): Array<string> =>
  fs
    .readdirSync(Buffer.from(`${folder}/${prefix}`, "latin1"), { encoding: "latin1", withFileTypes: true })
    .flatMap((entry) => [
      `${prefix}${entry.name}`,
      ...(entry.isDirectory() ? namesBelow(folder, `${prefix}${entry.name}/`) : [])
    ])

describe("migration: files of a server", () => {
  it.live("permissions, times, links and unusual names are kept; set-id bits are not", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      const at = (path: string) => join(source, path)
      fs.mkdirSync(at("world/region"), { recursive: true })
      fs.mkdirSync(at("empty"), { mode: 0o700 })
      fs.writeFileSync(at("world/region/r.0.0.mca"), Buffer.alloc(300_000, 7))
      fs.writeFileSync(at("none"), "")
      fs.writeFileSync(at("run.sh"), "#!/bin/sh\n", { mode: 0o750 })
      fs.writeFileSync(at("new\nline 'quote' \\ * -rf"), "odd")
      fs.writeFileSync(Buffer.concat([Buffer.from(at("latin-")), Buffer.from([0xe9])]), "bytes")
      fs.mkdirSync(at(`deep/${"d".repeat(200)}/${"e".repeat(200)}`), { recursive: true })
      fs.writeFileSync(at(`deep/${"d".repeat(200)}/${"e".repeat(200)}/file`), "deep")
      fs.symlinkSync("../world", at("empty/up"))
      fs.symlinkSync("/etc/passwd", at("absolute"))
      fs.symlinkSync(`nowhere/${"x".repeat(300)}`, at("dangling"))
      fs.linkSync(at("run.sh"), at("second name"))
      fs.utimesSync(at("run.sh"), 1_000_000_000, 1_000_000_000)
      fs.utimesSync(at("none"), -86_400, -86_400)
      fs.lutimesSync(at("absolute"), 700_000_000, 700_000_000)
      fs.utimesSync(at("world/region"), 900_000_000, 900_000_000)
      fs.chmodSync(source, 0o711)
      // A folder that its owner cannot search must not block the import.
      fs.mkdirSync(at("closed"), { mode: 0o400 })
      fs.utimesSync(source, 800_000_000, 800_000_000)
      const expected = tree(source)
      // Properties that are not kept.
      if (process.geteuid?.() === 0) fs.chownSync(at("world/region/r.0.0.mca"), 4321, 3_000_000)
      fs.chmodSync(at("run.sh"), 0o6750)
      fs.chmodSync(at("world"), 0o3755)
      yield* moved(source, target)
      assert.deepStrictEqual(tree(target), expected)
    })
  )

  it.live.skipIf(process.geteuid?.() !== 0)("files have the owner that the server runs as", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      fs.mkdirSync(join(source, "world"))
      fs.writeFileSync(join(source, "world/level.dat"), "a castle", { mode: 0o600 })
      fs.symlinkSync("/etc/passwd", join(source, "link"))
      fs.chownSync(join(source, "world/level.dat"), 4321, 4321)
      const before = fs.statSync("/etc/passwd")
      yield* moved(source, target, [], { user: { uid: 71_234, gid: 71_235 } })
      const owners = Object.values(tree(target)).map((entry) => Reflect.get(Object(entry), "owner"))
      assert.deepStrictEqual(
        owners,
        Array.from({ length: 4 }, () => "71234:71235")
      )
      assert.strictEqual(fs.statSync("/etc/passwd").uid, before.uid)
    })
  )

  it.live("sizes are counted during the transfer, and refused over the limit", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      fs.writeFileSync(join(source, "a"), Buffer.alloc(600_000))
      fs.writeFileSync(join(source, "b"), Buffer.alloc(600_000))
      const failure = yield* Effect.flip(moved(source, target, [], { limit: 1_000_000 }))
      assert.deepInclude(failure, {
        code: "EDQUOT",
        message: "the files exceed the server's disk_space: they have more than 1.0 MB"
      })
      const arrived = ["a", "b"].map((name) => fs.statSync(join(target, name)).size)
      assert.isBelow(Math.min(...arrived), 400_000)
      const into = join(target, "again")
      fs.mkdirSync(into)
      yield* moved(source, into, [], { limit: 1_300_000 })
      assert.deepStrictEqual(tree(into), tree(source))
    })
  )

  it.live("a transfer stops when the disk reaches its reserve, also without a limit", () =>
    Effect.gen(function* () {
      const { target } = yield* folders
      const { bavail, bsize } = fs.statfsSync(target)
      const endless = Stream.concat(
        Stream.make(Buffer.concat([root, member({ name: "./large", size: 2 ** 32 })])),
        Stream.forever(Stream.make(Buffer.alloc(1024 * 1024)))
      )
      const failure = yield* Effect.flip(
        unpackFiles(endless, target, { free: bavail * bsize - 24 * 1024 * 1024 })
      )
      assert.deepInclude(failure, { _tag: "IoError", code: "ENOSPC" })
      assert.match(
        failure.message,
        /^the files do not fit on the disk of the node: [\d.]+ MB are free, of which /
      )
    })
  )

  it.live.each([
    ["long names", long(`./${"a".repeat(4000)}`)],
    ["long targets of links", member({ name: "././@LongLink", type: "K", content: "a".repeat(4000) })]
  ] as const)("%s: a bounded number is read without an entry", ([, bytes]) =>
    Effect.gen(function* () {
      const { target } = yield* folders
      const some = Buffer.concat(Array.from({ length: 200 }, () => bytes))
      let chunks = 0
      const endless = Stream.map(Stream.forever(Stream.make(some)), (chunk) => {
        chunks += 1
        return chunk
      })
      const failure = yield* Effect.flip(
        unpackFiles(Stream.concat(Stream.make(root), endless), target, { limit: 1_000_000 })
      )
      assert.deepInclude(failure, {
        _tag: "ArchiveRefused",
        message: "the files are refused: most of it is in no file"
      })
      assert.isBelow(chunks * some.length, 8 * 1024 * 1024)
    })
  )

  it.live("a file has at most 100,000 segments between holes", () =>
    Effect.gen(function* () {
      const { target } = yield* folders
      const octal = (value: number) => `${value.toString(8).padStart(11, "0")}\0`
      const pieces = (from: number, count: number) =>
        Array.from({ length: count }, (_, at) => octal((from + at) * 512) + octal(0)).join("")
      const block = (from: number) => {
        const bytes = Buffer.alloc(512)
        bytes.write(pieces(from, 21), "latin1")
        bytes[504] = 1
        return bytes
      }
      const first = member({
        name: "./holes",
        type: "S",
        size: 0,
        sparse: {
          pieces: [
            [0, 0],
            [0, 0],
            [0, 0],
            [0, 0]
          ],
          more: true,
          whole: 2 ** 31
        }
      })
      const map = Array.from({ length: 4800 }, (_, at) => block(at * 21))
      const failure = yield* Effect.flip(unpackFiles(chunked(archive(first, ...map), 65_536), target))
      assert.deepInclude(failure, {
        _tag: "ArchiveRefused",
        message: 'the files are refused: "holes" has more than 100000 pieces between holes'
      })
    })
  )

  it.live("files at any depth are transferred", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      const deep = Array.from({ length: 100 }, () => "d").join("/")
      fs.mkdirSync(join(source, deep), { recursive: true })
      fs.writeFileSync(join(source, deep, "file"), "deep")
      fs.writeFileSync(join(source, "z"), "z")
      yield* moved(source, target)
      assert.deepStrictEqual(tree(target), tree(source))
    })
  )

  it.live("holes are kept", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      const file = fs.openSync(join(source, "sparse"), "w")
      // More segments than a header can hold.
      for (let piece = 0; piece < 60; piece++) fs.writeSync(file, `piece ${piece}`, piece * 1_000_000)
      fs.ftruncateSync(file, 200_000_000)
      fs.closeSync(file)
      fs.writeFileSync(join(source, "z"), "after it")
      yield* moved(source, target)
      const [before, after] = [source, target].map((folder) => fs.lstatSync(join(folder, "sparse")))
      assert.strictEqual(after?.size, 200_000_000)
      assert.isBelow(after?.blocks ?? 0, (before?.blocks ?? 0) * 2 + 100)
      execFileSync("cmp", [join(source, "sparse"), join(target, "sparse")])
      assert.strictEqual(fs.readFileSync(join(target, "z"), "utf8"), "after it")
    })
  )

  it.live("volumes and mounts are excluded, and so are folders that only contain them", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      for (const folder of ["plugins/shared", "plugins/own", "plugins/shared2"]) {
        fs.mkdirSync(join(source, folder), { recursive: true })
        fs.writeFileSync(join(source, folder, "file"), folder)
      }
      execFileSync("mkfifo", [join(source, "pipe")])
      yield* moved(source, target, ["plugins/shared"])
      assert.deepStrictEqual(Object.keys(tree(target)).toSorted(), [
        "",
        "plugins",
        "plugins/own",
        "plugins/own/file",
        "plugins/shared2",
        "plugins/shared2/file"
      ])
    })
  )

  it.live("the archive is read in pieces of any size", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      fs.mkdirSync(join(source, "d".repeat(150)))
      fs.writeFileSync(join(source, "d".repeat(150), "file"), "content ".repeat(200))
      const bytes = yield* packed(source)
      for (const size of [1, 511, 512, 513, 4096]) {
        const into = join(target, String(size))
        fs.mkdirSync(into)
        yield* unpackFiles(chunked(bytes, size), into)
        assert.deepStrictEqual(tree(into), tree(source))
      }
    })
  )

  it.live("a file that cannot be read fails the transfer", () =>
    Effect.gen(function* () {
      const { source } = yield* folders
      fs.writeFileSync(join(source, "a"), "a")
      const failure = yield* Effect.scoped(
        Effect.gen(function* () {
          const stream = yield* packFiles(source, { shared: [], own: [] })
          fs.rmSync(source, { recursive: true })
          return yield* Effect.flip(Stream.runDrain(stream))
        })
      )
      assert.instanceOf(failure, IoError)
    })
  )
})

describe("migration: untrusted archives", () => {
  it.live.each(hostile)("refused: %s", ([, bytes]) =>
    Effect.gen(function* () {
      const { root: folder, target } = yield* folders
      const outside = join(folder, "outside")
      fs.mkdirSync(outside)
      fs.writeFileSync(join(outside, "secret"), "secret")
      const text = Buffer.from(bytes)
      // The target of links in the archive.
      const at = text.indexOf("OUTSIDE")
      if (at !== -1) {
        const link = text.toString("latin1", at, text.indexOf(0, at)).replace("OUTSIDE", outside)
        text.write(`${link}\0`, at, "latin1")
        const header = text.subarray(Math.floor(at / 512) * 512, Math.floor(at / 512) * 512 + 512)
        header.write("        ", 148)
        header.write(
          `${header
            .reduce((sum, byte) => sum + byte, 0)
            .toString(8)
            .padStart(6, "0")}\0 `,
          148
        )
      }
      const failure = yield* Effect.flip(unpackFiles(chunked(text, 700), target))
      assert.include(["ArchiveRefused", "IoError"], failure._tag)
      for (const name of fs.readdirSync(target)) {
        const stats = fs.lstatSync(join(target, name))
        assert.isTrue(stats.isFile() || stats.isDirectory() || stats.isSymbolicLink(), name)
        assert.strictEqual(stats.mode & 0o7000, 0, name)
      }
      assert.deepStrictEqual(fs.readdirSync(outside), ["secret"])
      assert.strictEqual(fs.lstatSync(join(outside, "secret")).nlink, 1)
      assert.isFalse(fs.existsSync("/etc/evil"))
      assert.isFalse(fs.existsSync(join(folder, "evil")))
    })
  )

  it.live("an archive that ends early is refused, at any byte", () =>
    Effect.gen(function* () {
      const { source, target } = yield* folders
      fs.mkdirSync(join(source, "world"))
      fs.writeFileSync(join(source, "world", "level.dat"), "x".repeat(3000))
      fs.writeFileSync(join(source, "banned.json"), "[]")
      const bytes = yield* packed(source)
      const whole = bytes.findLastIndex((byte) => byte !== 0)
      const marked = (Math.ceil(whole / 512) + 2) * 512
      for (let length = 0; length < marked; length += 331) {
        const into = join(target, String(length))
        fs.mkdirSync(into)
        const failure = yield* Effect.flip(unpackFiles(chunked(bytes.subarray(0, length), 4096), into))
        assert.strictEqual(failure._tag, "ArchiveRefused", `${length} of ${bytes.length}`)
      }
    })
  )

  it.live("names on the disk equal the checked names, for any bytes", () =>
    Effect.gen(function* () {
      const { root: folder } = yield* folders
      const outside = join(folder, "outside")
      fs.mkdirSync(outside)
      const name = fc
        .array(fc.constantFrom("a", "b", "c", "..", ".", "", "out"), { minLength: 1, maxLength: 4 })
        .map((parts) => `./${parts.join("/")}`)
      const number = fc.oneof(fc.nat(2000), fc.constantFrom(0, 1, 511, 512, 513, 2 ** 33 - 1))
      const one = fc
        .record(
          {
            name: fc.oneof(
              { weight: 5, arbitrary: fc.constantFrom("./a", "./b", "./c", "./a/b", "./a/c") },
              name
            ),
            type: fc.constantFrom(
              "0",
              "0",
              "5",
              "5",
              "S",
              "S",
              "2",
              "1",
              "L",
              "K",
              "x",
              "g",
              "3",
              "4",
              "6",
              "\0"
            ),
            link: fc.constantFrom(outside, "..", "a", "../../outside", "/"),
            mode: fc.constantFrom(0o644, 0o755, 0o4755, 0o2777, 0o1777),
            rawTime: fc.array(fc.constantFrom(0x37, 0x80, 0xff, 0), { minLength: 12, maxLength: 12 }),
            content: fc.constantFrom("", "x", "./../evil\0", "./a\0", "16 path=../evil\n", "12 size=1024\n"),
            sparse: fc.record({
              pieces: fc.oneof(
                fc.constant([[0, 1]] as const),
                fc.array(fc.tuple(number, number), { maxLength: 4 })
              ),
              more: fc.boolean(),
              whole: number
            })
          },
          { requiredKeys: ["name", "type", "link", "mode", "content"] }
        )
        .chain((it) =>
          // Most sizes are right; folders and links have no contents.
          fc
            .record(
              {
                size: number,
                rawSize: fc.array(fc.constantFrom(0, 0x80, 0xff, 1), { minLength: 12, maxLength: 12 })
              },
              { requiredKeys: [] }
            )
            .map((sizes) =>
              member({
                ...it,
                ...(it.type === "5" || it.type === "2" ? { content: "" } : {}),
                ...(Math.abs(it.name.length % 3) === 0 ? sizes : {})
              })
            )
        )
      const flaw = fc.record({ at: fc.nat(8191), bit: fc.nat(7) })
      let run = 0
      let whole = 0
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(
            fc.array(one, { maxLength: 8 }),
            fc.array(flaw, { maxLength: 1 }),
            fc.integer({ min: 1, max: 3000 }),
            (members, flaws, pieces) => {
              const target = join(folder, "deep", "er", String(run++))
              fs.mkdirSync(target, { recursive: true })
              const bytes = archive(...members)
              for (const { at, bit } of flaws)
                if (at < bytes.length) bytes[at] = (bytes[at] ?? 0) ^ (1 << bit)
              const checked: Array<string> = []
              for (const step of new ArchiveReader().read(bytes)) {
                if (step._tag === "refused") break
                if ("name" in step) checked.push(step.path)
              }
              return Effect.runPromise(Effect.exit(unpackFiles(chunked(bytes, pieces), target))).then(
                (exit) => {
                  const found = namesBelow(target)
                  if (exit._tag === "Success") {
                    whole += 1
                    assert.deepStrictEqual(["", ...found].toSorted(), checked.toSorted())
                  } else assert.includeMembers(["", ...checked], found)
                  for (const path of found) {
                    const stats = fs.lstatSync(Buffer.from(`${target}/${path}`, "latin1"))
                    assert.isTrue(stats.isFile() || stats.isDirectory() || stats.isSymbolicLink(), path)
                    assert.strictEqual(stats.mode & 0o7000, 0, path)
                  }
                  assert.deepStrictEqual(fs.readdirSync(outside), [])
                  assert.deepStrictEqual(fs.readdirSync(folder).toSorted(), [
                    "deep",
                    "outside",
                    "source",
                    "target"
                  ])
                }
              )
            }
          ),
          { numRuns: 400 }
        )
      )
      assert.isAbove(whole, 20)
    })
  )
})
