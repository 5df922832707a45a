import { execFileSync } from "node:child_process"
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { gzipSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { type Cause, Effect, Fiber, Queue, Stream } from "effect"
import type { Overwrite, UnpackTask } from "../../../src/contract/domain/FileTask.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { eventually } from "../../support/eventually.ts"
import { archive, long, member } from "../../support/tar.ts"
import { zip } from "../../support/zip.ts"
import { filesOf, places, put, refusalOf } from "./scene.ts"

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const newOperation = () => serverId(idBytes(16))

const ended = ({ files, id }: Scene, operation_id: string) =>
  eventually(files.progress(id, operation_id), ({ state }) => state !== "running")

/** Unpacks an archive that lies on the server, and returns the end. */
const unpack = Effect.fnUntraced(function* (
  scene: Scene,
  bytes: Buffer,
  { overwrite = "fail", to = "/to" }: { readonly overwrite?: Overwrite; readonly to?: string } = {}
) {
  writeFileSync(join(scene.folder, "archive.bin"), bytes)
  const operation_id = newOperation()
  const task: UnpackTask = { kind: "unpack", path: "/archive.bin", to, overwrite }
  yield* scene.files.begin(scene.id, { operation_id, task })
  return yield* ended(scene, operation_id)
})

/** Unpacks an archive that arrives in pieces, and returns the end. */
const send = Effect.fnUntraced(function* (
  scene: Scene,
  bytes: Buffer,
  { overwrite = "fail", to = "/to" }: { readonly overwrite?: Overwrite; readonly to?: string } = {}
) {
  const operation_id = newOperation()
  const pieces: Array<Uint8Array> = []
  for (let at = 0; at < bytes.length; at += 1000) pieces.push(bytes.subarray(at, at + 1000))
  const task = { kind: "unpack" as const, to, overwrite, size: bytes.length }
  const refusal = yield* refusalOf(
    scene.files.receive(scene.id, { operation_id, task }, Stream.fromIterable(pieces))
  )
  return { refusal, ...(yield* ended(scene, operation_id)) }
})

/** Sends a part of an archive; returns once the node has it. */
const beginSending = Effect.fnUntraced(function* ({ files, id }: Scene, to: string) {
  const queue = yield* Queue.unbounded<Uint8Array, "broken" | Cause.Done>()
  const operation_id = newOperation()
  const task = { kind: "unpack" as const, to, overwrite: "fail" as const }
  const sent = yield* Effect.forkChild(
    refusalOf(files.receive(id, { operation_id, task }, Stream.fromQueue(queue)))
  )
  const bytes = archive(member({ name: "./a", content: "a".repeat(4000) }))
  yield* Queue.offer(queue, bytes.subarray(0, 3000))
  const done = files.progress(id, operation_id).pipe(
    Effect.map(({ progress }) => progress.done),
    Effect.orElseSucceed(() => 0)
  )
  yield* eventually(done, (bytes) => bytes === 3000)
  return { operation_id, queue, sent, task }
})

const below = (folder: string) =>
  existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: "utf8" }).toSorted() : []

const remnants = ({ folder }: Scene) => below(folder).filter((name) => name.includes(".muster-"))

/** The programs of Debian make archives of a folder. */
const packed = (folder: string): Readonly<Record<string, Buffer>> => {
  const tar = (...args: ReadonlyArray<string>) =>
    execFileSync("tar", ["-c", "-C", folder, ...args, "."], { maxBuffer: 64 * 1024 * 1024 })
  execFileSync("zip", ["-q", "-r", "-y", join(dirname(folder), "made.zip"), "."], { cwd: folder })
  return {
    "GNU tar": tar("--format=gnu"),
    "POSIX tar": tar("--format=posix"),
    "tar.gz": tar("-z"),
    "tar.zst": tar("--zstd"),
    zip: readFileSync(join(dirname(folder), "made.zip"))
  }
}

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.7: archives are unpacked: ${name}`, () => {
    it.live("files, folders and links of each format, from the server and while they arrive", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { folder } = scene
        const source = join(scene.node.dataDir, "source", "tree")
        const deep = `${"d".repeat(120)}/${"f".repeat(200)}`
        mkdirSync(join(source, "d".repeat(120)), { recursive: true })
        mkdirSync(join(source, "empty"))
        put(source, deep, "long")
        put(source, "é", "utf8")
        writeFileSync(join(source, "run.sh"), "#!", { mode: 0o755 })
        const big = Buffer.alloc(700_000, "0123456789abcdef\n")
        writeFileSync(join(source, "big.bin"), big)
        symlinkSync("empty", join(source, "link"))
        symlinkSync("../../world", join(source, "empty", "up"))
        for (const [format, bytes] of Object.entries(packed(source))) {
          const to = `/${format.replaceAll(" ", "")}/x`
          assert.strictEqual((yield* unpack(scene, bytes, { to })).state, "done", format)
          const sent = yield* send(scene, bytes, { to: `${to}/sent` })
          assert.deepInclude(sent, { refusal: "no refusal", state: "done" }, format)
          for (const at of [join(folder, to), join(folder, to, "sent")]) {
            const found = below(at).filter((one) => !/^sent/.test(one))
            assert.deepStrictEqual(found, below(source), format)
            assert.strictEqual(readFileSync(join(at, deep), "utf8"), "long")
            assert.isTrue(readFileSync(join(at, "big.bin")).equals(big))
            assert.strictEqual(statSync(join(at, "run.sh")).mode & 0o7777, 0o755)
            assert.strictEqual(readlinkSync(join(at, "link")), "empty")
            const owner = statSync(folder)
            assert.deepInclude(lstatSync(join(at, "link")), { uid: owner.uid, gid: owner.gid })
            assert.deepInclude(statSync(join(at, "empty")), { uid: owner.uid, gid: owner.gid })
          }
        }
        assert.deepStrictEqual(remnants(scene), [])
      }).pipe(Effect.scoped)
    )

    it.live("what exists makes the archive fail as a whole, or is left, or is replaced", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { folder } = scene
        const bytes = zip([
          { name: "plugins/a.yml", content: "new" },
          { name: "plugins/b.yml", content: "b" }
        ])
        const failed = yield* unpack(scene, bytes, { to: "/" })
        assert.deepInclude(failed, { state: "failed", reason: `/plugins/a.yml: ${exists}` })
        assert.deepStrictEqual(readdirSync(join(folder, "plugins")), ["a.yml"])
        assert.match(
          (yield* send(scene, archive(member({ name: "plugins/a.yml", content: "new" })), { to: "/" }))
            .refusal,
          /^409 \/plugins\/a.yml: it exists; overwrite=replace/
        )
        assert.strictEqual((yield* unpack(scene, bytes, { to: "/", overwrite: "skip" })).state, "done")
        assert.strictEqual(readFileSync(join(folder, "plugins/a.yml"), "utf8"), "base\n")
        assert.strictEqual(readFileSync(join(folder, "plugins/b.yml"), "utf8"), "b")
        assert.strictEqual((yield* unpack(scene, bytes, { to: "/", overwrite: "replace" })).state, "done")
        assert.strictEqual(readFileSync(join(folder, "plugins/a.yml"), "utf8"), "new")
        const inTheWay = yield* unpack(scene, zip([{ name: "world", content: "x" }]), {
          to: "/",
          overwrite: "replace"
        })
        assert.deepInclude(inTheWay, {
          state: "failed",
          reason: "/world: it is a folder, and no folder in the archive"
        })
        assert.deepStrictEqual(remnants(scene), [])
      }).pipe(Effect.scoped)
    )

    it.live("a transfer that breaks leaves nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { operation_id, queue, sent } = yield* beginSending(scene, "/new/to")
        yield* Queue.fail(queue, "broken" as const)
        assert.strictEqual(yield* Fiber.join(sent), "broken")
        assert.strictEqual((yield* ended(scene, operation_id)).state, "failed")
        assert.isFalse(existsSync(join(scene.folder, "new")))
        assert.deepStrictEqual(remnants(scene), [])
      }).pipe(Effect.scoped)
    )

    it.live("a cancelled task ends the transfer and leaves nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { files, folder, id } = scene
        const { operation_id, queue, sent, task } = yield* beginSending(scene, "/to")
        yield* files.cancel(id, { operation_id, task })
        assert.match(yield* Fiber.join(sent), /^409 the archive was not unpacked/)
        yield* Queue.end(queue)
        assert.strictEqual((yield* files.progress(id, operation_id)).state, "cancelled")
        assert.isFalse(existsSync(join(folder, "to")))
        assert.deepStrictEqual(remnants(scene), [])
      }).pipe(Effect.scoped)
    )
  })
}

const plain = { far: false, instanceFiles: "copy" } as const

/** What a killed daemon has left. */
const exists = "it exists; overwrite=replace replaces it, overwrite=skip leaves it"
const staging = {
  aside: ".muster-00000000-0000-4000-8000-000000000001.tmp",
  old: ".muster-00000000-0000-4000-8000-000000000002.tmp"
}

const leave = (scene: Scene, operation_id: string, next: number) => {
  const path = join(dirname(scene.folder), "tasks", `${operation_id}.json`)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(
    path,
    JSON.stringify({ state: "running", next, total: next, unit: "bytes", refused: 0, staging })
  )
}

describe("spec 11.4: an archive that is unpacked when its daemon is killed", () => {
  const bytes = archive(member({ name: "./a", content: "a" }), member({ name: "./b", content: "b" }))

  it.live("one that lies on the server is unpacked from its beginning", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { files, folder, id } = scene
      writeFileSync(join(folder, "a.tar"), bytes)
      const operation_id = newOperation()
      leave(scene, operation_id, 0)
      mkdirSync(join(folder, staging.aside, "tree"), { recursive: true })
      put(join(folder, staging.aside, "tree"), "half", "half")
      const task = { kind: "unpack", path: "/a.tar", to: "/to", overwrite: "fail" } as const
      yield* files.begin(id, { operation_id, task })
      assert.strictEqual((yield* ended(scene, operation_id)).state, "done")
      assert.deepStrictEqual(below(join(folder, "to")), ["a", "b"])
      assert.deepStrictEqual(remnants(scene), [])
    }).pipe(Effect.scoped)
  )

  it.live("one that arrived fails and leaves nothing", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { files, folder, id } = scene
      const operation_id = newOperation()
      leave(scene, operation_id, 0)
      mkdirSync(join(folder, staging.aside, "tree"), { recursive: true })
      const task = { kind: "unpack", to: "/to", overwrite: "fail" } as const
      yield* files.begin(id, { operation_id, task })
      assert.deepInclude(yield* ended(scene, operation_id), {
        state: "failed",
        reason: "/to: the node was restarted while the archive arrived; nothing was unpacked"
      })
      assert.deepStrictEqual(remnants(scene), [])
    }).pipe(Effect.scoped)
  )

  for (const next of [0, 1]) {
    it.live(`a complete one is moved into place, ${next === 0 ? "none" : "some"} of it moved before`, () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(plain)
        const { files, folder, id } = scene
        const operation_id = newOperation()
        leave(scene, operation_id, next)
        mkdirSync(join(folder, staging.old, "plugins"), { recursive: true })
        put(join(folder, staging.old), "plugins/b", "b")
        put(folder, "plugins/a", "a")
        const task = { kind: "unpack", to: "/plugins", overwrite: "fail" } as const
        yield* files.begin(id, { operation_id, task })
        assert.strictEqual((yield* ended(scene, operation_id)).state, "done")
        assert.deepStrictEqual(below(join(folder, "plugins")), ["a", "a.yml", "b"])
        assert.deepStrictEqual(remnants(scene), [])
      }).pipe(Effect.scoped)
    )
  }

  it.live("one that is cancelled while it is moved into place is done, not cancelled", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { files, folder, id } = scene
      const operation_id = newOperation()
      leave(scene, operation_id, 1)
      mkdirSync(join(folder, staging.old, "plugins"), { recursive: true })
      put(join(folder, staging.old), "plugins/b", "b")
      const task = { kind: "unpack", path: "/a.tar", to: "/plugins", overwrite: "fail" } as const
      yield* files.cancel(id, { operation_id, task })
      assert.strictEqual((yield* files.progress(id, operation_id)).state, "done")
      assert.deepStrictEqual(below(join(folder, "plugins")), ["a.yml", "b"])
      assert.deepStrictEqual(remnants(scene), [])
    }).pipe(Effect.scoped)
  )

  it.live("one that is in place is done", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { files, id } = scene
      const operation_id = newOperation()
      leave(scene, operation_id, 1)
      const task = { kind: "unpack", path: "/a.tar", to: "/plugins", overwrite: "fail" } as const
      yield* files.begin(id, { operation_id, task })
      assert.strictEqual((yield* ended(scene, operation_id)).state, "done")
    }).pipe(Effect.scoped)
  )
})

const hostile: Readonly<Record<string, readonly [Buffer, RegExp]>> = {
  "an absolute path": [archive(member({ name: "/etc/x" })), /entry \/etc\/x: its path is absolute$/],
  "`..` in tar": [archive(member({ name: "./a/../../x" })), /entry .*: its path contains `\.\.`$/],
  "`..` in zip": [zip([{ name: "../x" }]), /entry \.\.\/x: its path contains `\.\.`$/],
  "`..` behind the `\\` of Windows": [zip([{ name: "a\\..\\..\\x" }]), /its path contains `\.\.`$/],
  "an absolute link": [
    archive(member({ name: "./l", type: "2", link: "/etc" })),
    /entry \.\/l: .*absolute target$/
  ],
  "a link outside": [
    archive(member({ name: "./a/l", type: "2", link: "../../../x" })),
    /entry \.\/a\/l: it is a link that leads outside of the server$/
  ],
  "a link outside by another link": [
    archive(
      member({ name: "./a/b/up", type: "2", link: "../.." }),
      member({ name: "./out", type: "2", link: "a/b/up/../../.." })
    ),
    /entry \.\/out: it is a link with `\.\.` after a name$/
  ],
  "a link of zip outside": [
    zip([{ name: "l", mode: 0o120777, content: "../../x" }]),
    /entry l: it is a link that leads outside/
  ],
  "a file below a link": [
    archive(member({ name: "./l", type: "2", link: "plugins" }), member({ name: "./l/x", content: "x" })),
    /entry \.\/l\/x: it lies below another entry: .*symbolic link, not a folder$/
  ],
  "a hard link": [
    archive(member({ name: "./h", type: "1", link: "./a" })),
    /entry \.\/h: it is a hard link$/
  ],
  "a device": [archive(member({ name: "./d", type: "3" })), /entry \.\/d: it is a device$/],
  "a pipe": [archive(member({ name: "./p", type: "6" })), /entry \.\/p: it is a pipe$/],
  "a device of zip": [zip([{ name: "d", mode: 0o020644 }]), /entry d: it is a pipe, a socket or a device$/],
  "two entries of one path": [
    archive(member({ name: "./a", content: "1" }), member({ name: "./a", content: "2" })),
    /entry \.\/a: it is in the archive twice$/
  ],
  "two zip entries of one path": [
    zip([{ name: "a" }, { name: "a" }]),
    /entry a: it is in the archive twice$/
  ],
  "a folder that is a file, too": [
    zip([{ name: "a/b" }, { name: "a" }]),
    /entry a: it is in the archive twice$/
  ],
  encryption: [zip([{ name: "a", flags: 0x801 }]), /entry a: it is encrypted$/],
  "an unknown compression": [zip([{ name: "a", method: 12 }]), /entry a: it has compression method 12$/],
  "overlapping zip entries": [
    zip([
      { name: "a", content: "a" },
      { name: "a", content: "a", offset: 0 }
    ]),
    /entry a: it overlaps another entry$/
  ],
  "zip entries that reach into the next one": [
    zip([
      { name: "a", method: 0, content: zip([{ name: "b", content: "b" }]) },
      { name: "b", content: "b", offset: 31 }
    ]),
    /entry a: it overlaps another entry$/
  ],
  "another name in the header of a zip entry": [
    zip([{ name: "a", localName: "b" }]),
    /entry a: its header and the directory of the archive differ$/
  ],
  "another size than the directory says": [
    zip([{ name: "a", content: "aaaa", size: 2 }]),
    /entry a: its contents are not those that the directory describes$/
  ],
  "another checksum": [zip([{ name: "a", content: "aaaa", crc: 1 }]), /entry a: its contents are not those/],
  "more records than the directory has": [zip([{ name: "a" }], { entries: 2 }), /record 2 of its directory/],
  "fewer records than the directory has": [
    zip([{ name: "a" }, { name: "b" }], { entries: 1 }),
    /more records/
  ],
  "a depth of 65": [
    archive(long(`./${"d/".repeat(64)}f`), member({ name: "./f" })),
    /its path is more than 64 names deep$/
  ],
  "a long name": [
    archive(long(`./${"n".repeat(256)}`), member({ name: "./n" })),
    /a name of more than 255 bytes$/
  ],
  "a name that is not UTF-8": [archive(member({ name: "./\xff" })), /its name or target is not UTF-8$/],
  "a name of unfinished files": [
    archive(member({ name: `./${staging.aside}/x` })),
    /those of unfinished files$/
  ],
  "a path that the blueprint denies": [
    zip([{ name: "x.key", content: "k" }]),
    /entry x\.key: \/to\/x\.key: callers may not reach it$/
  ],
  "a path below a read-only one": [
    zip([{ name: "fixed/x", content: "k" }]),
    /entry fixed\/x: \/to\/fixed\/x: callers may not write it$/
  ],
  "bytes that are no archive": [Buffer.from("hello".repeat(200)), /^the file is no archive$/],
  nothing: [Buffer.alloc(0), /^the archive is empty$/],
  "a format that is not unpacked": [Buffer.from("7z\xbc\xaf\x27\x1c", "latin1"), /^the archive is 7z/],
  "gzip without tar": [gzipSync("hello"), /^the archive is damaged: it has no tar in it$/],
  "a gzip that is cut": [
    gzipSync(archive(member({ name: "./a", content: "a" }))).subarray(0, 60),
    /damaged: unexpected end/
  ],
  "a tar that is cut": [
    archive(member({ name: "./a", content: "a".repeat(2000) })).subarray(0, 2000),
    /^the archive is damaged/
  ],
  "a zip that is cut": [zip([{ name: "a", content: "a" }]).subarray(0, 40), /its directory is missing$/],
  "endless headers without files": [
    gzipSync(Buffer.concat(Array.from({ length: 12_000 }, () => long("./x")))),
    /bytes of it belong to no file$/
  ]
}

describe("spec 10.7: hostile archives are refused, and leave nothing", () => {
  it.live("each names its entry and the reason", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain, { files: { deny: ["*.key"], read_only: ["/to/fixed"] } })
      const before = [...below(scene.folder), "archive.bin"].toSorted()
      for (const [what, [bytes, reason]] of Object.entries(hostile)) {
        const end = yield* unpack(scene, bytes)
        assert.strictEqual(end.state, "failed", what)
        assert.match(end.reason ?? "", reason, what)
        const sent = yield* send(scene, bytes)
        assert.strictEqual(sent.reason, end.reason, what)
        assert.deepStrictEqual(below(scene.folder), before, what)
        assert.isFalse(existsSync(join(scene.folder, "../x")), what)
      }
    }).pipe(Effect.scoped)
  )

  it.live("set-id bits and owners are not made", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const end = yield* unpack(scene, archive(member({ name: "./s", content: "s", mode: 0o6755 })))
      assert.strictEqual(end.state, "done")
      const owner = statSync(scene.folder)
      const { gid, mode, uid } = statSync(join(scene.folder, "to/s"))
      assert.deepStrictEqual([mode & 0o7777, uid, gid], [0o755, owner.uid, owner.gid])
    }).pipe(Effect.scoped)
  )
})
