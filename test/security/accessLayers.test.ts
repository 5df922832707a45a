/** Layers, names and kinds of files that callers must not reach through the files of a server (spec 10.5). */
import { execFileSync, spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { linkSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { serverId } from "../../src/contract/domain/Id.ts"
import { idBytes } from "../../src/contract/domain/idBytes.ts"
import { asRoot, bytesOf, filesOf, put, refusalOf, statusesOf } from "../daemon/access/scene.ts"
import { eventually } from "../support/eventually.ts"
import { archive, member } from "../support/tar.ts"

const upperOf = (folder: string) => join(dirname(folder), "tree/upper")

const attributesOf = (path: string): ReadonlyArray<string> =>
  JSON.parse(
    execFileSync(
      "python3",
      ["-c", "import json, os, sys; print(json.dumps(os.listxattr(sys.argv[1])))", path],
      {
        encoding: "utf8"
      }
    )
  )

describe.runIf(asRoot)("spec 10.5: the layers of an overlay", () => {
  it.live("whiteouts and attributes of the overlay stay on the node", () =>
    Effect.gen(function* () {
      const { files, folder, id, names, read } = yield* filesOf({ far: false })
      rmSync(join(folder, "server.jar"))
      rmSync(join(folder, "plugins"), { recursive: true })
      mkdirSync(join(folder, "plugins"))
      put(folder, "plugins/own", "own")
      const upper = upperOf(folder)
      assert.isTrue(lstatSync(join(upper, "server.jar")).isCharacterDevice())
      assert.include(attributesOf(join(upper, "plugins")), "trusted.overlay.opaque")

      const shown = ["plugins", "world"]
      assert.deepStrictEqual([yield* names("/"), yield* names("/plugins")], [shown, ["own"]])
      assert.match(yield* refusalOf(read("/server.jar")), /^404 /)
      const found = yield* files.search(id, { path: "/", name: "*", limit: 100, case_sensitive: true })
      assert.deepStrictEqual(found.matches.map(({ path }) => path).toSorted(), [
        "/plugins",
        "/plugins/own",
        "/world",
        "/world/region",
        "/world/region/r0"
      ])
      const listed = yield* Effect.scoped(
        Effect.gen(function* () {
          const session = yield* files.session(id)
          return yield* (yield* session.openFolder("/")).read
        })
      )
      assert.deepStrictEqual(listed.map(({ name }) => name).toSorted(), shown)
      assert.deepStrictEqual(yield* files.diff(id), [
        { path: "/plugins/a.yml", change: "removed", size: 5 },
        { path: "/plugins/own", change: "added", size: 3 },
        { path: "/server.jar", change: "removed", size: 4 }
      ])
      const packed = yield* files
        .archive(id, { paths: ["/"], format: "tar" })
        .pipe(Effect.flatMap(Stream.runCollect), Effect.scoped)
      const tar = Buffer.concat(packed)
      assert.notInclude(tar.toString("latin1"), "overlay")
      const lines = execFileSync("tar", ["-tvf", "-"], { input: tar, encoding: "utf8" }).trim().split("\n")
      assert.strictEqual(
        lines
          .map((line) => line[0])
          .toSorted()
          .join(""),
        "--ddd"
      )
    }).pipe(Effect.scoped)
  )

  it.live("writes go through the mount, and no further without it", () =>
    Effect.gen(function* () {
      const { files, folder, id, node, write, change } = yield* filesOf({ far: false })
      const upper = upperOf(folder)
      yield* node.daemon.power(id, "start", 20)
      yield* write("/plugins/a.yml", "changed")
      yield* write("/made/by/caller", "made")
      assert.strictEqual(readFileSync(join(folder, "plugins/a.yml"), "utf8"), "changed")
      assert.strictEqual(readFileSync(join(folder, "made/by/caller"), "utf8"), "made")
      assert.deepStrictEqual(
        (yield* files.diff(id)).map(({ path }) => path),
        ["/made", "/made/by", "/made/by/caller", "/plugins/a.yml"]
      )
      const before = readdirSync(upper, { recursive: true }).toSorted()
      assert.strictEqual(spawnSync("umount", ["--lazy", folder]).status, 0)
      assert.match(yield* refusalOf(write("/late", "late")), /^409 /)
      assert.match(yield* refusalOf(files.list(id, { path: "/", limit: 10, sizes: false })), /^409 /)
      assert.deepStrictEqual(
        statusesOf(yield* change({ kind: "delete", path: "/made" }, { kind: "folder", path: "/late" })),
        [409, 409]
      )
      assert.deepStrictEqual(readdirSync(folder), [])
      assert.deepStrictEqual(readdirSync(upper, { recursive: true }).toSorted(), before)
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.5: a file with another name in another server, or in a volume", () => {
  const plain = { far: false, instanceFiles: "copy" } as const

  it.live("is not written by any way to write", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(plain)
      const { change, files, folder, id, node, write } = scene
      const other = yield* filesOf(plain, {}, node)
      put(other.folder, "theirs", "theirs")
      const volume = join(node.dataDir, "volumes/shared")
      const before = [join(other.folder, "theirs"), join(volume, "v.txt")].map((path) => ({
        path,
        text: readFileSync(path, "utf8"),
        stats: statSync(path)
      }))
      const session = yield* files.session(id)
      const flags = { read: true, write: true, create: true, exclusive: false, truncate: true }
      const writes: Readonly<Record<string, (path: string) => Effect.Effect<unknown, unknown>>> = {
        put: (path) => write(path, "new", { mode: "0600" }),
        copy: (path) => change({ kind: "copy", from: "/server.jar", path, overwrite: "replace" }),
        upload: (path) => {
          const upload = { upload_id: randomBytes(24).toString("base64url"), owner: "key_1" }
          return Effect.andThen(
            files.uploads.begin(id, { ...upload, path, size: 3, metadata: "" }),
            files.uploads.append(id, { ...upload, offset: 0 }, bytesOf("new"))
          )
        },
        unpack: (path) => {
          const operation_id = serverId(idBytes(16))
          const task = { kind: "unpack", to: "/", overwrite: "replace" } as const
          const tar = archive(member({ name: `.${path}`, content: "new" }))
          return Effect.andThen(
            files.receive(id, { operation_id, task }, Stream.make(tar)),
            eventually(files.progress(id, operation_id), ({ state }) => state === "done")
          )
        },
        mode: (path) => change({ kind: "mode", path, mode: "0600" }),
        open: (path) => session.open(path, flags),
        set: (path) =>
          session.change({ kind: "set", path, attributes: { size: 0, mode: 0o600, modified: 0 } })
      }
      const refused: Array<string> = []
      for (const [name, way] of Object.entries(writes)) {
        for (const { path } of before) {
          rmSync(join(folder, name), { force: true })
          linkSync(path, join(folder, name))
          const outcome = yield* refusalOf(way(`/${name}`))
          if (outcome.startsWith("403 ")) refused.push(name)
        }
      }
      assert.deepStrictEqual(refused, ["open", "open", "set", "set"])
      for (const name of ["put", "upload", "unpack"])
        assert.strictEqual(readFileSync(join(folder, name), "utf8"), "new")
      for (const { path, stats, text } of before) {
        assert.strictEqual(readFileSync(path, "utf8"), text)
        const { mode, mtimeMs, uid } = statSync(path)
        assert.deepStrictEqual([mode, mtimeMs, uid], [stats.mode, stats.mtimeMs, stats.uid])
      }
      assert.deepStrictEqual(statusesOf(yield* change({ kind: "delete", path: "/mode" })), [200])
      assert.isTrue(before.every(({ path }) => statSync(path).isFile()))
    }).pipe(Effect.scoped)
  )
})
