import { createHash, randomBytes } from "node:crypto"
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { basename, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Stream } from "effect"
import * as fc from "fast-check"
import type { NodeUploads, UploadPart, UploadRequest } from "../../../src/contract/nodeApi/NodeUploadsApi.ts"
import { MOST_OF_KEY, MOST_UPLOADS } from "../../../src/daemon/access/uploads.ts"
import { withLongSleeps } from "../../support/longSleeps.ts"
import { until } from "../support.ts"
import { bytesOf, filesOf, places, put, refusalOf } from "./scene.ts"

const newId = () => randomBytes(24).toString("base64url")
const owner = "key_1"
const DAY = 24 * 3600

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const temporaryFiles = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))

/** The calls of one key about uploads. */
const uploadsOf = ({ files, id }: Pick<Scene, "files" | "id">, of = owner) => {
  const uploads: NodeUploads = files.uploads
  return {
    begin: (path: string, size: number, more: Partial<UploadRequest> = {}) => {
      const upload_id = newId()
      return Effect.as(
        uploads.begin(id, { upload_id, owner: of, path, size, metadata: "", ...more }),
        upload_id
      )
    },
    find: (upload_id: string) => uploads.find(id, { upload_id, owner: of }),
    append: (upload_id: string, offset: number, text: string, more: Partial<UploadPart> = {}) =>
      uploads.append(id, { upload_id, owner: of, offset, ...more }, bytesOf(text)),
    end: (upload_id: string) => uploads.end(id, { upload_id, owner: of })
  }
}

const digest = (text: string) => createHash("sha1").update(text).digest("base64")

const recordsOf = ({ id, node }: Scene) => {
  const folder = join(node.dataDir, "servers", id, "uploads")
  return existsSync(folder) ? readdirSync(folder) : []
}

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.8: uploads on the node: ${name}`, () => {
    it.live(
      "bytes arrive in parts; the old file stays until the last one, and no list shows the others",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { append, begin, find } = uploadsOf(scene)
          put(scene.folder, "own.txt", "old")
          const upload = yield* begin("/own.txt", 10, { metadata: "path L293bi50eHQ=" })
          const first = yield* append(upload, 0, "01234")
          assert.deepInclude(first, { offset: 5, size: 10, path: "/own.txt", metadata: "path L293bi50eHQ=" })
          assert.strictEqual(yield* scene.read("/own.txt"), "old")
          assert.notInclude((yield* scene.names("/")).join(), ".muster-")
          assert.strictEqual((yield* find(upload)).offset, 5)
          const last = yield* append(upload, 5, "56789")
          assert.strictEqual(yield* scene.read("/own.txt"), "0123456789")
          assert.strictEqual(last.etag, (yield* scene.stat("/own.txt")).etag)
          assert.deepStrictEqual(yield* find(upload), last)
          assert.deepStrictEqual(temporaryFiles(scene.folder), [])
        }).pipe(Effect.scoped)
    )

    it.live("folders that are missing are made at the end, and an upload that is ended leaves nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { append, begin, end, find } = uploadsOf(scene)
        const ended = yield* begin("/a/b/ended.txt", 4)
        yield* append(ended, 0, "ab")
        assert.isFalse(existsSync(join(scene.folder, "a")))
        yield* end(ended)
        assert.deepStrictEqual([temporaryFiles(scene.folder), recordsOf(scene)], [[], []])
        assert.match(yield* refusalOf(find(ended)), /^404 no such upload/)
        const upload = yield* begin("/a/b/c.txt", 4)
        yield* append(upload, 0, "abcd")
        assert.strictEqual(yield* scene.read("/a/b/c.txt"), "abcd")
        const empty = yield* begin("/e/empty.txt", 0)
        assert.strictEqual(yield* scene.read("/e/empty.txt"), "")
        assert.strictEqual((yield* find(empty)).offset, 0)
      }).pipe(Effect.scoped)
    )

    it.live("another offset is 409, more bytes than announced are 413, and both change nothing", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { append, begin, find } = uploadsOf(scene)
        const upload = yield* begin("/x.txt", 5)
        yield* append(upload, 0, "abc")
        assert.match(yield* refusalOf(append(upload, 2, "x")), /^409 .*the upload is at byte 3, not 2/)
        assert.match(yield* refusalOf(append(upload, 4, "x")), /^409/)
        assert.match(yield* refusalOf(append(upload, 3, "xyz", { length: 3 })), /^413/)
        assert.match(yield* refusalOf(append(upload, 3, "xyz")), /^413/)
        assert.strictEqual((yield* find(upload)).offset, 3)
        yield* append(upload, 3, "de")
        assert.match(yield* refusalOf(append(upload, 3, "de")), /^409/)
        assert.strictEqual((yield* append(upload, 5, "")).offset, 5)
        assert.strictEqual(yield* scene.read("/x.txt"), "abcde")
      }).pipe(Effect.scoped)
    )

    it.live("bytes with another checksum are 460 and discarded; so are those whose request broke", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { append, begin, find } = uploadsOf(scene)
        const upload = yield* begin("/sum.txt", 6)
        const sum = (text: string) => ({ algorithm: "sha1" as const, checksum: digest(text) })
        assert.strictEqual((yield* append(upload, 0, "abc", sum("abc"))).offset, 3)
        assert.match(yield* refusalOf(append(upload, 3, "xyz", sum("def"))), /^460/)
        assert.strictEqual((yield* find(upload)).offset, 3)
        const broken = Stream.concat(bytesOf("x"), Stream.fail("broken"))
        const part = { upload_id: upload, owner, offset: 3, ...sum("def") }
        assert.strictEqual(yield* Effect.flip(scene.files.uploads.append(scene.id, part, broken)), "broken")
        assert.strictEqual((yield* find(upload)).offset, 3)
        yield* append(upload, 3, "def", sum("def"))
        assert.strictEqual(yield* scene.read("/sum.txt"), "abcdef")
      }).pipe(Effect.scoped)
    )

    it.live("bytes that arrived before a break stay", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { append, begin, find } = uploadsOf(scene)
        const upload = yield* begin("/b.txt", 6)
        const arrived = until(
          "three bytes",
          Effect.map(find(upload), ({ offset }) => offset === 3)
        )
        const broken = Stream.concat(
          bytesOf("abc"),
          Stream.fromEffect(Effect.andThen(arrived, Effect.fail("broken")))
        )
        const part = { upload_id: upload, owner, offset: 0 }
        assert.strictEqual(yield* Effect.flip(scene.files.uploads.append(scene.id, part, broken)), "broken")
        yield* append(upload, 3, "def")
        assert.strictEqual(yield* scene.read("/b.txt"), "abcdef")
      }).pipe(Effect.scoped)
    )

    it.live("an upload belongs to the key that began it", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const upload = yield* uploadsOf(scene).begin("/own.txt", 3)
        const other = uploadsOf(scene, "key_2")
        assert.match(yield* refusalOf(other.find(upload)), /^404/)
        assert.match(yield* refusalOf(other.append(upload, 0, "abc")), /^404/)
        assert.match(yield* refusalOf(other.end(upload)), /^404/)
        assert.strictEqual((yield* uploadsOf(scene).find(upload)).offset, 0)
      }).pipe(Effect.scoped)
    )

    it.live(
      "a second request is 423 while bytes of the first arrive, and takes its place once they stop",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { append, begin, end, find } = uploadsOf(scene)
          const upload = yield* begin("/two.txt", 9)
          const open = yield* Deferred.make<void>()
          const slow = Stream.concat(bytesOf("abc"), Stream.drain(Stream.fromEffect(Deferred.await(open))))
          const first = yield* scene.files.uploads
            .append(scene.id, { upload_id: upload, owner, offset: 0 }, slow)
            .pipe(refusalOf, Effect.forkChild)
          yield* until(
            "three bytes",
            Effect.map(find(upload), ({ offset }) => offset === 3)
          )
          assert.match(yield* refusalOf(append(upload, 3, "def")), /^423/)
          yield* until(
            "the first request has waited too long",
            Effect.map(refusalOf(append(upload, 3, "de")), (outcome) => outcome === "no refusal")
          )
          assert.match(yield* Fiber.join(first), /^409 another request continues/)
          assert.strictEqual((yield* find(upload)).offset, 5)
          const second = yield* scene.files.uploads
            .append(
              scene.id,
              { upload_id: upload, owner, offset: 5 },
              Stream.concat(bytesOf("f"), Stream.never)
            )
            .pipe(refusalOf, Effect.forkChild)
          yield* until(
            "the second request has begun",
            Effect.map(find(upload), ({ offset }) => offset === 6)
          )
          assert.match(yield* refusalOf(append(upload, 6, "")), /^423/)
          yield* end(upload)
          assert.match(yield* Fiber.join(second), /^409 another request continues/)
          assert.deepStrictEqual(temporaryFiles(scene.folder), [])
        }).pipe(Effect.scoped)
    )

    it.live(
      "conditions hold at the beginning and at the end; one that fails at the end ends the upload",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { append, begin, find } = uploadsOf(scene)
          yield* scene.write("/c.txt", "one")
          const { etag } = yield* scene.stat("/c.txt")
          assert.match(yield* refusalOf(begin("/c.txt", 1, { if_none_match: "*" })), /^412/)
          assert.match(yield* refusalOf(begin("/c.txt", 1, { if_match: '"other"' })), /^412/)
          assert.match(yield* refusalOf(begin("/none/c.txt", 1, { if_match: "*" })), /^412/)
          const late = yield* begin("/c.txt", 3, { if_match: etag })
          yield* scene.write("/c.txt", "two")
          assert.match(yield* refusalOf(append(late, 0, "new")), /^412/)
          assert.match(yield* refusalOf(find(late)), /^404/)
          assert.strictEqual(yield* scene.read("/c.txt"), "two")
          const good = yield* begin("/c.txt", 3, {
            if_match: (yield* scene.stat("/c.txt")).etag,
            mode: "0755"
          })
          yield* append(good, 0, "new")
          assert.deepInclude((yield* scene.stat("/c.txt")).entry, { mode: "0755", size: 3 })
          assert.deepStrictEqual(temporaryFiles(scene.folder), [])
        }).pipe(Effect.scoped)
    )

    it.live("rules of the blueprint hold for each request", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, { files: { deny: ["*.key"], read_only: ["server.jar"] } })
        const { begin } = uploadsOf(scene)
        assert.match(yield* refusalOf(begin("/a.key", 1)), /^403/)
        assert.match(yield* refusalOf(begin("/server.jar", 1)), /^403/)
        assert.match(yield* refusalOf(begin("/", 1)), /^409/)
        assert.match(yield* refusalOf(begin("/../x", 1)), /^422/)
        symlinkSync("/tmp", join(scene.folder, "link"))
        assert.match(yield* refusalOf(begin("/link/x", 1)), /^409/)
      }).pipe(Effect.scoped)
    )

    it.live("an upload expires a day after its last byte, and is removed", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { append, begin, find } = uploadsOf(scene)
        const upload = yield* begin("/old.txt", 6)
        const { expires_at } = yield* append(upload, 0, "abc")
        assert.isAtMost(Math.abs(Date.parse(expires_at) - Date.now() - DAY * 1000), 60_000)
        const [file = ""] = temporaryFiles(scene.folder)
        const past = Date.now() / 1000 - DAY - 1
        utimesSync(join(scene.folder, file), past, past)
        // The beginning of another upload removes it.
        yield* begin("/other.txt", 1)
        assert.strictEqual(temporaryFiles(scene.folder).length, 1)
        assert.match(yield* refusalOf(find(upload)), /^404/)
        assert.strictEqual(recordsOf(scene).length, 1)
      }).pipe(Effect.scoped)
    )
  })
}

const plain = { far: false, instanceFiles: "copy" } as const

describe("spec 10.8: a connection that breaks", () => {
  it.live("leaves all bytes that have arrived, also those that wait for the disk", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { append, begin, find } = uploadsOf(scene)
      const pieces = Array.from({ length: 50 }, (_, index) => String.fromCharCode(65 + index).repeat(30_000))
      const sent = pieces.join("")
      const upload = yield* begin("/fast.txt", sent.length + 3)
      const arriving = Stream.fromIterable(pieces, { chunkSize: 7 }).pipe(Stream.encodeText)
      const broken = Stream.concat(arriving, Stream.fail("broken"))
      const part = { upload_id: upload, owner, offset: 0 }
      assert.strictEqual(yield* Effect.flip(scene.files.uploads.append(scene.id, part, broken)), "broken")
      assert.strictEqual((yield* find(upload)).offset, sent.length)
      yield* append(upload, sent.length, "end")
      assert.strictEqual(yield* scene.read("/fast.txt"), `${sent}end`)
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.8: uploads and a server that changes its folder", () => {
  it.live(
    "a temporary file that is replaced, linked or removed ends its upload, and nothing else is written",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(plain)
        const { append, begin, find } = uploadsOf(scene)
        const outside = join(scene.node.dataDir, "outside")
        writeFileSync(outside, "outside")
        const changes: ReadonlyArray<(file: string) => void> = [
          unlinkSync,
          (file) => {
            unlinkSync(file)
            symlinkSync(outside, file)
          },
          (file) => {
            unlinkSync(file)
            linkSync(outside, file)
          },
          (file) => linkSync(file, `${file}.other`),
          (file) => {
            unlinkSync(file)
            writeFileSync(file, "ab")
          },
          (file) => {
            unlinkSync(file)
            mkdirSync(file)
          }
        ]
        for (const change of changes) {
          const upload = yield* begin("/t.txt", 6)
          yield* append(upload, 0, "ab")
          const [file = ""] = temporaryFiles(scene.folder).filter((name) => name.endsWith(".tmp"))
          change(join(scene.folder, file))
          assert.match(yield* refusalOf(append(upload, 2, "cdef")), /^404/)
          assert.match(yield* refusalOf(find(upload)), /^404/)
          for (const left of temporaryFiles(scene.folder))
            renameSync(join(scene.folder, left), join(scene.node.dataDir, newId()))
        }
        assert.strictEqual(readFileSync(outside, "utf8"), "outside")
        assert.isFalse(existsSync(join(scene.folder, "t.txt")))
      }).pipe(Effect.scoped)
  )

  /** A server with a volume, and a function that exchanges the folder of an unfinished upload. */
  const swapping = Effect.gen(function* () {
    const volumes = [{ name: "v", source: "shared", target: "vol", mode: "rw" as const }]
    const scene = yield* filesOf(plain, { volumes, files: { volumes: "write" } })
    const { append, begin, find } = uploadsOf(scene)
    const volume = join(scene.node.dataDir, "volumes/shared")
    mkdirSync(join(volume, "plugins"))
    const swapped = Effect.fnUntraced(function* (folder: string, path: string) {
      const upload = yield* begin(path, 6)
      yield* append(upload, 0, "ab")
      mkdirSync(join(folder, "deep/er"), { recursive: true })
      renameSync(join(folder, "plugins"), join(folder, `deep/er/${upload}`))
      mkdirSync(join(folder, "plugins"))
      assert.match(yield* refusalOf(append(upload, 2, "cdef")), /^404/)
      assert.match(yield* refusalOf(find(upload)), /^404/)
    })
    return { scene, swapped, volume }
  })

  it.live("a temporary file whose folder is exchanged is removed within the hour", () =>
    withLongSleeps((pass) =>
      Effect.gen(function* () {
        const { scene, swapped, volume } = yield* swapping
        // The volume may be mounted in the folder.
        const left = () =>
          new Set([...temporaryFiles(scene.folder), ...temporaryFiles(volume)].map((path) => basename(path)))
            .size
        yield* swapped(scene.folder, "/plugins/a.jar")
        yield* swapped(volume, "/vol/plugins/a.jar")
        const other = ".muster-00000000-0000-4000-8000-000000000000.tmp"
        put(scene.folder, other, "of another write")
        assert.strictEqual(left(), 3)
        const isSwept = Effect.sync(() => left() + recordsOf(scene).length === 1)
        yield* until("the moved files are removed", Effect.andThen(pass(1), isSwept))
        assert.deepStrictEqual(temporaryFiles(scene.folder), [other])
      }).pipe(Effect.scoped)
    )
  )

  it.live("a temporary file whose folder is exchanged is removed with the server, also from a volume", () =>
    Effect.gen(function* () {
      const { scene, swapped, volume } = yield* swapping
      yield* swapped(volume, "/vol/plugins/a.jar")
      assert.strictEqual(temporaryFiles(volume).length, 1)
      yield* scene.node.daemon.remove(scene.id)
      assert.deepStrictEqual(temporaryFiles(volume), [])
    }).pipe(Effect.scoped)
  )

  it.live("uploads are bounded, of one key and of the server: one more is 409 until another one ends", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const keys = ["key_1", "key_2"].map((key) => uploadsOf(scene, key))
      const all: Array<string> = []
      for (const { begin } of keys) {
        for (let index = 0; index < MOST_OF_KEY; index++) all.push(yield* begin(`/${index}`, 1))
        assert.match(yield* refusalOf(begin("/more", 1)), /^409 .*key has 32 unfinished uploads/)
      }
      assert.strictEqual(all.length, MOST_UPLOADS)
      const other = uploadsOf(scene, "key_3")
      assert.match(yield* refusalOf(other.begin("/more", 1)), /^409 .*64 unfinished uploads/)
      yield* uploadsOf(scene, "key_1").end(all[0] ?? "")
      yield* other.begin("/more", 1)
    }).pipe(Effect.scoped)
  )

  it.live("a reset, a reinstallation and the removal of the server remove its uploads, also in volumes", () =>
    Effect.gen(function* () {
      const volumes = [{ name: "v", source: "shared", target: "vol", mode: "rw" as const }]
      const definition = { volumes, save: true, files: { volumes: "write" as const } }
      const scene = yield* filesOf(plain, definition)
      const { append, begin, find } = uploadsOf(scene)
      const volume = join(scene.node.dataDir, "volumes/shared")
      const { daemon } = scene.node
      for (const work of [daemon.reset(scene.id), daemon.reinstall(scene.id)]) {
        const upload = yield* begin("/vol/x.txt", 6)
        yield* append(upload, 0, "abc")
        const own = yield* begin("/own.txt", 6)
        assert.deepStrictEqual([temporaryFiles(volume).length, recordsOf(scene).length], [1, 2])
        yield* work
        yield* until(
          "the work is done",
          Effect.map(refusalOf(find(own)), (outcome) => outcome.startsWith("404"))
        )
        assert.match(yield* refusalOf(find(upload)), /^404/)
        assert.deepStrictEqual([temporaryFiles(volume), recordsOf(scene)], [[], []])
        assert.deepStrictEqual(temporaryFiles(scene.folder), [])
      }
      yield* begin("/vol/x.txt", 6)
      yield* scene.node.daemon.remove(scene.id)
      assert.deepStrictEqual(temporaryFiles(volume), [])
    }).pipe(Effect.scoped)
  )

  it.live("each hour, what has expired is removed without a request", () =>
    withLongSleeps((pass) =>
      Effect.gen(function* () {
        const scene = yield* filesOf(plain)
        const { append, begin, find } = uploadsOf(scene)
        const upload = yield* begin("/old.txt", 6)
        yield* append(upload, 0, "abc")
        yield* pass(23)
        assert.strictEqual((yield* find(upload)).offset, 3)
        const isGone = Effect.sync(() => [...temporaryFiles(scene.folder), ...recordsOf(scene)].length === 0)
        yield* until("the upload is removed", Effect.andThen(pass(2), isGone))
        assert.match(yield* refusalOf(find(upload)), /^404/)
      }).pipe(Effect.scoped)
    )
  )

  it.live("a write that does not fit is 507; the upload continues once there is room", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain, { limits: { disk_space: 3 } })
      const { append, begin, find } = uploadsOf(scene)
      const half = "x".repeat(1_500_000)
      put(scene.folder, "big", half)
      assert.match(yield* refusalOf(begin("/no", 3_000_000)), /^507 disk/)
      const upload = yield* begin("/big2", 1_000_000)
      yield* scene.write("/big3", "y".repeat(1_000_000))
      const rest = "z".repeat(1_000_000)
      assert.match(yield* refusalOf(append(upload, 0, rest)), /^507 disk/)
      const { offset } = yield* find(upload)
      unlinkSync(join(scene.folder, "big3"))
      yield* until(
        "there is room",
        Effect.map(
          refusalOf(append(upload, offset, rest.slice(offset))),
          (outcome) => outcome === "no refusal"
        )
      )
      assert.strictEqual(statSync(join(scene.folder, "big2")).size, rest.length)
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.8: property: any parts in any order of breaks make the file", () => {
  it.live("the file has the bytes that were sent", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { append, begin, find } = uploadsOf(scene)
      const step = fc.record({
        length: fc.nat(40),
        breaks: fc.boolean(),
        isChecked: fc.boolean(),
        isWrong: fc.boolean()
      })
      const upload = Effect.fnUntraced(function* (
        text: string,
        steps: ReadonlyArray<{ length: number; breaks: boolean; isChecked: boolean; isWrong: boolean }>
      ) {
        const id = yield* begin("/property.txt", text.length)
        let at = 0
        for (const { breaks, isChecked, isWrong, length } of steps) {
          if (at === text.length) break
          const piece = text.slice(at, at + length)
          const sum = isChecked
            ? { algorithm: "sha1" as const, checksum: digest(isWrong ? `${piece}!` : piece) }
            : {}
          const bytes = breaks ? Stream.concat(bytesOf(piece), Stream.fail("broken")) : bytesOf(piece)
          yield* Effect.exit(
            scene.files.uploads.append(scene.id, { upload_id: id, owner, offset: at, ...sum }, bytes)
          )
          const { offset } = yield* find(id)
          assert.strictEqual(offset, isChecked && (isWrong || breaks) ? at : at + piece.length)
          at = offset
        }
        yield* append(id, at, text.slice(at))
        assert.strictEqual(yield* scene.read("/property.txt"), text)
      })
      const samples = fc.sample(
        fc.tuple(fc.string({ unit: "grapheme-ascii", minLength: 1, maxLength: 100 }), fc.array(step)),
        25
      )
      for (const [text, steps] of samples) yield* upload(text, steps)
    }).pipe(Effect.scoped)
  )
})
