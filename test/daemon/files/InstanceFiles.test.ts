import { execFileSync } from "node:child_process"
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { removeTree } from "../../../src/daemon/disk/fsio.ts"
import { until } from "../../support/eventually.ts"
import { mountsBelow, unmountBelow } from "../../support/mounts.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { harness, openDaemon, recorder } from "../support.ts"
import { ext4Disk, scene, smallDisk, text, ways, withExt4, write } from "./scene.ts"

/** Returns the error code of a write that must fail, or `none`. */
const refusal = (attempt: () => void): string => {
  try {
    attempt()
    return "none"
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : "unknown"
  }
}

for (const [way, options] of Object.entries(ways)) {
  const mounts = way !== "copy, without mounts"

  describe(`blueprints, instances: ${way}`, () => {
    it.effect("an instance has the base's files, modes and links; changes do not reach the base", () =>
      Effect.gen(function* () {
        const { first, server } = yield* scene(options)
        chmodSync(join(first.folder, "server.jar"), 0o755)
        chmodSync(first.folder, 0o750)
        symlinkSync("server.jar", join(first.folder, "link"))
        const { files, make } = server({})
        yield* make
        assert.strictEqual(statSync(files).mode & 0o777, 0o750)
        assert.strictEqual(statSync(join(files, "server.jar")).mode & 0o777, 0o755)
        assert.strictEqual(readlinkSync(join(files, "link")), "server.jar")
        writeFileSync(join(files, "world/default"), "changed")
        rmSync(join(files, "server.jar"))
        assert.strictEqual(text(first.folder, "world/default"), "d")
        assert.strictEqual(text(first.folder, "server.jar"), "jar")
      }).pipe(Effect.scoped)
    )

    it.effect(
      "an instance owns its cow volumes and copies; rw volumes are shared, ro volumes and mounts never written",
      () =>
        Effect.gen(function* () {
          const { allowed, dataDir, server, volumes } = yield* scene(options)
          write(volumes, { "worlds/a/level": "A", "lib/x": "X", "one.txt": "1" })
          write(dataDir, { "files/config.yml": "c: 1" })
          const { files, make } = server({
            volumes: [
              { name: "w", source: "worlds/a", target: "/world", mode: "cow" },
              { name: "o", source: "one.txt", target: "conf/one.txt", mode: "cow" },
              { name: "s", source: "shared/new", target: "/shared", mode: "rw" },
              { name: "l", source: "lib", target: "lib", mode: "ro" }
            ],
            mounts: [{ source: join(allowed, "maps"), target: "/home/container/maps", mode: "ro" }],
            copy: [{ source: "files/config.yml", target: "plugins/config.yml" }]
          })
          yield* make
          assert.deepStrictEqual(readdirSync(join(files, "world")).sort(), ["default", "level"])
          for (const name of ["world/level", "world/default", "conf/one.txt", "plugins/config.yml"]) {
            writeFileSync(join(files, name), "mine")
          }
          assert.strictEqual(text(volumes, "worlds/a/level"), "A")
          assert.strictEqual(text(volumes, "one.txt"), "1")
          assert.strictEqual(text(dataDir, "files/config.yml"), "c: 1")
          writeFileSync(join(files, "shared/f"), "all")
          assert.strictEqual(text(volumes, "shared/new/f"), "all")
          assert.strictEqual(text(files, "lib/x"), "X")
          assert.strictEqual(text(files, "maps/m"), "m")
          const refused = ["lib/x", "lib/new", "maps/m"].map((name) =>
            refusal(() => writeFileSync(join(files, name), "mine"))
          )
          assert.deepStrictEqual(refused, mounts ? ["EROFS", "EROFS", "EROFS"] : ["none", "none", "none"])
          assert.strictEqual(text(volumes, "lib/x"), "X")
          assert.deepStrictEqual(readdirSync(join(volumes, "lib")), ["x"])
          assert.strictEqual(text(allowed, "maps/m"), "m")
        }).pipe(Effect.scoped)
    )

    it.effect("layers at one target give the same files as copies in order", () =>
      Effect.gen(function* () {
        const { server, volumes } = yield* scene(options)
        write(volumes, {
          "a/both": "a",
          "a/default": "a",
          "a/sub/deep": "a",
          "b/both": "b",
          "c/sub/deep": "c"
        })
        const { files, make } = server({
          volumes: [
            { name: "a", source: "a", target: "world", mode: "cow" },
            { name: "b", source: "b", target: "world", mode: "cow" },
            { name: "c", source: "a", target: "x/y", mode: "cow" },
            { name: "d", source: "c/sub", target: "x/y/sub", mode: "cow" }
          ]
        })
        yield* make
        const names = ["world/both", "world/default", "world/sub/deep", "x/y/both", "x/y/sub/deep"]
        assert.deepStrictEqual(
          names.map((name) => text(files, name)),
          ["b", "a", "a", "a", "c"]
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a new base replaces its own files; other files of the server and its deletions are kept", () =>
      Effect.gen(function* () {
        const { base, first, server, volumes } = yield* scene(options)
        write(first.folder, { "conf/a": "1", "conf/gone": "1", "lib/old": "1", "cache/x/y": "1" })
        write(volumes, { "w/level": "L", "s/x": "" })
        const one = server({
          volumes: [
            { name: "w", source: "w", target: "saves", mode: "cow" },
            { name: "s", source: "s", target: "shared", mode: "rw" }
          ]
        })
        const { files } = one
        yield* one.make
        write(files, {
          "conf/a": "mine",
          "conf/mine": "mine",
          "lib/old": "mine",
          "world/default": "mine",
          "new/deep/file": "mine",
          "saves/level": "mine",
          "shared/mine": "shared"
        })
        rmSync(join(files, "server.jar"))
        rmSync(join(files, "conf/gone"))
        rmSync(join(files, "cache"), { recursive: true })
        write(files, { "cache/z": "mine" })
        yield* one.renew(
          base("second", {
            "server.jar": "jar2",
            "conf/a": "2",
            "cache/x/y": "2",
            "lib2/new": "2",
            shared: "no"
          })
        )
        const has = (name: string) => (existsSync(join(files, name)) ? text(files, name) : undefined)
        assert.strictEqual(has("server.jar"), "jar2")
        assert.strictEqual(has("conf/a"), "2")
        assert.strictEqual(has("lib2/new"), "2")
        assert.strictEqual(has("cache/x/y"), "2")
        for (const name of [
          "conf/mine",
          "lib/old",
          "world/default",
          "new/deep/file",
          "saves/level",
          "cache/z"
        ]) {
          assert.strictEqual(has(name), "mine", name)
        }
        assert.strictEqual(has("conf/gone"), undefined)
        assert.strictEqual(has("shared/mine"), "shared")
        assert.strictEqual(text(volumes, "s/mine"), "shared")
        assert.strictEqual(text(first.folder, "conf/a"), "1")
        yield* one.close
        yield* one.open
        assert.strictEqual(has("server.jar"), "jar2")
        assert.strictEqual(has("world/default"), "mine")
      }).pipe(Effect.scoped)
    )

    it.effect("an instance that is a plain folder with links opens, renews and resets", () =>
      Effect.gen(function* () {
        const { base, server, volumes } = yield* scene(options)
        write(volumes, { "s/x": "X", "r/y": "Y" })
        const old = server({
          volumes: [
            { name: "s", source: "s", target: "shared", mode: "rw" },
            { name: "r", source: "r", target: "read", mode: "ro" }
          ]
        })
        const { files } = old
        write(files, { "server.jar": "jar", world: "mine" })
        symlinkSync(join(volumes, "s"), join(files, "shared"))
        symlinkSync(join(volumes, "r"), join(files, "read"))
        yield* old.open
        assert.strictEqual(text(files, "world"), "mine")
        writeFileSync(join(files, "shared/x"), "new")
        assert.strictEqual(text(volumes, "s/x"), "new")
        refusal(() => writeFileSync(join(files, "read/y"), "new"))
        assert.strictEqual(text(volumes, "r/y"), "Y")
        yield* old.renew(base("second", { "server.jar": "jar2", "shared/from-the-base": "no" }))
        assert.strictEqual(text(files, "server.jar"), "jar2")
        assert.strictEqual(text(files, "world"), "mine")
        assert.deepStrictEqual(readdirSync(join(volumes, "s")), ["x"])
        yield* old.make
        assert.isFalse(existsSync(join(files, "world", "mine")))
        assert.strictEqual(text(files, "server.jar"), "jar")
        assert.strictEqual(text(volumes, "s/x"), "new")
      }).pipe(Effect.scoped)
    )

    it.effect("close unmounts everything; the next open shows the same files, also after a restart", () =>
      Effect.gen(function* () {
        const { dataDir, open, server, volumes } = yield* scene(options)
        write(volumes, { "w/level": "L", "s/x": "X" })
        const one = server({
          volumes: [
            { name: "w", source: "w", target: "a/world", mode: "cow" },
            { name: "s", source: "s", target: "a/shared", mode: "rw" }
          ]
        })
        const { files, folder, spec } = one
        yield* one.make
        write(files, { "a/world/level": "mine", own: "mine" })
        yield* one.open
        yield* one.open
        assert.strictEqual(mountsBelow(folder).length, { overlay: 3, "copy, with mounts": 1 }[way] ?? 0)
        yield* one.close
        yield* one.close
        assert.deepStrictEqual(mountsBelow(dataDir), [])
        const again = yield* open
        yield* again.open(folder, spec, "process")
        assert.deepStrictEqual(
          [text(files, "a/world/level"), text(files, "own"), text(files, "a/shared/x")],
          ["mine", "mine", "X"]
        )
      }).pipe(Effect.scoped)
    )

    it.effect(
      "the removal of an instance never removes shared files, also after an interrupted removal",
      () =>
        Effect.gen(function* () {
          const { allowed, dataDir, server, volumes } = yield* scene(options)
          write(volumes, { "s/kept": "k" })
          const one = server({
            volumes: [{ name: "s", source: "s", target: "s", mode: "rw" }],
            mounts: [{ source: join(allowed, "maps"), target: "deep/maps", mode: "rw" }]
          })
          yield* one.make
          // As if the removal had stopped between its two renames.
          const aside = join(dataDir, "servers", ".removed-x")
          renameSync(one.folder, aside)
          if (mounts) {
            const error = yield* Effect.flip(removeTree(aside))
            assert.strictEqual(error.code, "EBUSY")
          }
          const { close } = server({}, aside)
          yield* close
          yield* removeTree(aside)
          assert.isFalse(existsSync(aside))
          assert.strictEqual(text(volumes, "s/kept"), "k")
          assert.strictEqual(text(allowed, "maps/m"), "m")
        }).pipe(Effect.scoped)
    )

    it.effect("an interrupted creation of an instance is repeated", () =>
      Effect.gen(function* () {
        const { server, volumes } = yield* scene(options)
        write(volumes, { "w/level": "L" })
        const definition = { volumes: [{ name: "w", source: "w", target: "world", mode: "cow" as const }] }
        const one = server(definition)
        yield* one.make
        for (const name of ["tree.building", "files.building", "tree.old", "files.old"]) {
          write(one.folder, { [`${name}/half`]: "half" })
        }
        yield* one.make
        assert.deepStrictEqual(
          readdirSync(one.folder).sort(),
          way === "overlay" ? ["files", "tree"] : ["files", "files.json"]
        )
        assert.strictEqual(text(one.files, "world/level"), "L")
      }).pipe(Effect.scoped)
    )

    it.effect("the disk usage includes the files that the server has written", () =>
      Effect.gen(function* () {
        const { first, server, volumes } = yield* scene(options)
        write(first.folder, { big: "b".repeat(400_000) })
        write(volumes, { "w/level": "L".repeat(300_000), "s/x": "X".repeat(900_000) })
        const one = server({
          volumes: [
            { name: "w", source: "w", target: "world", mode: "cow" },
            { name: "s", source: "s", target: "shared", mode: "rw" }
          ]
        })
        yield* one.make
        const before = yield* one.usage
        writeFileSync(join(one.files, "own"), "o".repeat(200_000))
        const after = yield* one.usage
        assert.isAtLeast(after.overlay_bytes - before.overlay_bytes, 200_000)
        assert.isBelow(after.overlay_bytes - before.overlay_bytes, 210_000)
        if (way === "overlay") assert.isBelow(before.overlay_bytes, 50_000)
        else assert.isAtLeast(before.overlay_bytes, 700_000)
        assert.isBelow(after.disk_bytes, 1_100_000)
      }).pipe(Effect.scoped)
    )
  })

  describe(`blueprints, last paragraph: isolation of instance files: ${way}`, () => {
    it.effect("a source or target outside its folder is refused, and the refusal leaves no files", () =>
      Effect.gen(function* () {
        const { allowed, dataDir, server, volumes } = yield* scene(options)
        write(dataDir, { "admin.key": "secret", "files/ok": "" })
        symlinkSync("/etc", join(volumes, "etc"))
        symlinkSync("/etc", join(dataDir, "files/etc"))
        symlinkSync("/etc", join(allowed, "etc"))
        mkdirSync(join(dataDir, "servers/srv_other/files"), { recursive: true })
        mkdirSync(join(dataDir, "base/paper"), { recursive: true })
        symlinkSync("../servers/srv_other", join(dataDir, "files/other"))
        const modes = ["cow", "rw", "ro"] as const
        const volume = (source: string, target = "x") =>
          modes.map((mode) => ({ volumes: [{ name: "v", source, target, mode }] }))
        const copy = (source: string, target = "x") => ({ copy: [{ source, target }] })
        const mount = (source: string, target = "x") => ({
          mounts: [{ source, target, mode: "rw" as const }]
        })
        const shared = { volumes: [{ name: "s", source: "s", target: "s", mode: "rw" as const }] }
        const refused = [
          ...volume("../servers"),
          ...volume("a/../../servers"),
          ...volume("/etc"),
          ...volume("etc"),
          ...volume("etc/passwd"),
          ...volume("a\0b"),
          ...volume("w", "../../x"),
          ...volume("w", "x/../../y"),
          ...volume("w", "x\0y"),
          ...volume("w", "/"),
          ...volume("w", "/home/container"),
          ...volume("w", "/home/container/../x"),
          copy("../x"),
          copy("/etc/passwd"),
          copy("files/etc"),
          copy("files/etc/passwd"),
          copy("files/missing"),
          copy("admin.key"),
          copy("servers"),
          copy("servers/srv_other/files"),
          copy("files/other/files"),
          copy("base/paper"),
          copy("files/ok", "/../x"),
          copy("files\0/ok"),
          mount("/etc"),
          mount(`${allowed}/../volumes`),
          mount(join(allowed, "etc")),
          mount(`${allowed}-not`),
          mount("relative"),
          mount(`${allowed}/maps\0`),
          mount(join(allowed, "maps"), "../x"),
          copy(join(allowed, "etc")),
          copy(join(allowed, "etc/passwd")),
          copy(`${allowed}-not`),
          copy(`${allowed}/maps\0`),
          mount("/etc", "/"),
          mount(join(allowed, "etc"), "/home/container"),
          {
            volumes: [...shared.volumes, { name: "c", source: "c", target: "s/below", mode: "cow" as const }]
          }
        ]
        for (const definition of refused) {
          const one = server(definition)
          const error = yield* Effect.flip(one.make)
          assert.include(["REFUSED", "ENOENT"], error.code, JSON.stringify(definition))
          assert.isFalse(
            existsSync(one.folder) && readdirSync(one.folder).length > 0,
            JSON.stringify(definition)
          )
        }
        assert.deepStrictEqual(mountsBelow(dataDir), [])
        assert.deepStrictEqual(readdirSync(join(allowed, "maps")), ["m"])
        assert.isFalse(existsSync(join(dataDir, "x")) || existsSync(join(dataDir, "servers/x")))
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a volume, mount or copy never follows a link of the base or the server out of the instance",
      () =>
        Effect.gen(function* () {
          const { allowed, dataDir, first, server, volumes } = yield* scene(options)
          write(dataDir, { "outside/file": "untouched", "files/ok": "ok" })
          write(volumes, { "w/file": "W" })
          const outside = join(dataDir, "outside")
          symlinkSync(outside, join(first.folder, "out"))
          const modes = ["cow", "rw", "ro"] as const
          for (const mode of modes) {
            const through = server({ volumes: [{ name: "w", source: "w", target: "out/deeper", mode }] })
            assert.strictEqual((yield* Effect.flip(through.make)).code, "REFUSED")
            // A link at the target itself is replaced.
            const instead = server({ volumes: [{ name: "w", source: "w", target: "out", mode }] })
            yield* instead.make
            assert.strictEqual(text(instead.files, "out/file"), "W")
          }
          const copy = server({ copy: [{ source: "files/ok", target: "out/ok" }] })
          assert.strictEqual((yield* Effect.flip(copy.make)).code, "REFUSED")
          const mount = server({ mounts: [{ source: join(allowed, "maps"), target: "out/m", mode: "rw" }] })
          assert.strictEqual((yield* Effect.flip(mount.make)).code, "REFUSED")
          // The server puts a link above a target while it is offline.
          const one = server({ volumes: [{ name: "w", source: "w", target: "in/world", mode: "rw" }] })
          yield* one.make
          yield* one.close
          const own = way === "overlay" ? join(one.folder, "tree/upper") : one.files
          rmSync(join(own, "in"), { recursive: true })
          symlinkSync(outside, join(own, "in"))
          assert.strictEqual((yield* Effect.flip(one.open)).code, "REFUSED")
          assert.deepStrictEqual(readdirSync(outside), ["file"])
          assert.strictEqual(text(outside, "file"), "untouched")
          assert.deepStrictEqual(
            mountsBelow(dataDir).filter(({ path }) => path.startsWith(outside)),
            []
          )
        }).pipe(Effect.scoped)
    )

    it.effect("links in a volume stay links; their targets are neither copied nor removed", () =>
      Effect.gen(function* () {
        const { dataDir, server, volumes } = yield* scene(options)
        write(dataDir, { "outside/secret": "secret" })
        write(volumes, { "w/file": "W" })
        symlinkSync(join(dataDir, "outside"), join(volumes, "w/link"))
        symlinkSync("../../outside/secret", join(volumes, "w/file-link"))
        const one = server({ volumes: [{ name: "w", source: "w", target: "world", mode: "cow" }] })
        yield* one.make
        assert.isTrue(lstatSync(join(one.files, "world/link")).isSymbolicLink())
        assert.isTrue(lstatSync(join(one.files, "world/file-link")).isSymbolicLink())
        yield* one.close
        yield* removeTree(one.folder)
        assert.strictEqual(text(dataDir, "outside/secret"), "secret")
      }).pipe(Effect.scoped)
    )

    it.effect("a file with a hard link outside is not changed outside", () =>
      Effect.gen(function* () {
        const { base, dataDir, server, volumes } = yield* scene(options)
        write(dataDir, { outside: "untouched" })
        mkdirSync(join(volumes, "w"), { recursive: true })
        mkdirSync(join(volumes, "r"), { recursive: true })
        linkSync(join(dataDir, "outside"), join(volumes, "w/file"))
        linkSync(join(dataDir, "outside"), join(volumes, "r/file"))
        const one = server({
          volumes: [
            { name: "w", source: "w", target: "world", mode: "cow" },
            { name: "r", source: "r", target: "read", mode: "ro" }
          ]
        })
        yield* one.make
        writeFileSync(join(one.files, "world/file"), "mine")
        refusal(() => writeFileSync(join(one.files, "read/file"), "mine"))
        assert.strictEqual(text(dataDir, "outside"), "untouched")
        const next = base("second", {})
        linkSync(join(dataDir, "outside"), join(next.folder, "file"))
        yield* one.renew(next)
        writeFileSync(join(one.files, "file"), "mine")
        assert.strictEqual(text(dataDir, "outside"), "untouched")
      }).pipe(Effect.scoped)
    )

    it.effect("pipes, sockets and devices in a source are refused or left as they are", () =>
      Effect.gen(function* () {
        const { server, volumes } = yield* scene(options)
        mkdirSync(join(volumes, "w"), { recursive: true })
        execFileSync("mkfifo", [join(volumes, "w/pipe")])
        for (const mode of ["cow", "rw", "ro"] as const) {
          const one = server({ volumes: [{ name: "w", source: "w", target: "world", mode }] })
          const made = yield* Effect.result(one.make)
          if (made._tag === "Failure") assert.match(made.failure.message, /not a file, folder or link/)
          else assert.isTrue(statSync(join(one.files, "world/pipe")).isFIFO())
          const itself = server({ volumes: [{ name: "w", source: "w/pipe", target: "world", mode }] })
          const error = yield* Effect.flip(itself.make)
          assert.match(error.message, /neither a file nor a folder/)
        }
      }).pipe(Effect.scoped)
    )

    it.live("a folder that becomes a link during a copy is not followed", () =>
      Effect.gen(function* () {
        const { dataDir, server, volumes } = yield* scene(options)
        write(dataDir, { "outside/secret": "secret" })
        write(volumes, { "w/sub/file": "W" })
        const real = join(volumes, "w/sub")
        const away = join(volumes, "w/.sub")
        let swapping = true
        // If the daemon makes a folder between the two steps, the next turn undoes it.
        const swap = Effect.try(() => {
          if (existsSync(away)) {
            rmSync(real, { force: true, recursive: true })
            renameSync(away, real)
          } else {
            renameSync(real, away)
            symlinkSync(join(dataDir, "outside"), real)
          }
        }).pipe(Effect.ignore, Effect.delay(1), Effect.repeat({ while: () => swapping }))
        const attempts = Effect.forEach(Array.from({ length: 10 }), () =>
          Effect.gen(function* () {
            const one = server({
              volumes: [{ name: "w", source: "w/sub", target: "world", mode: "cow" }],
              copy: [{ source: "volumes/w", target: "copied" }]
            })
            const made = yield* Effect.result(one.make)
            if (made._tag === "Failure") return
            for (const name of ["world/secret", "copied/sub/secret", "copied/.sub/secret"]) {
              const parent = join(one.files, name, "..")
              const linked = existsSync(parent) && lstatSync(parent).isSymbolicLink()
              assert.isTrue(linked || !existsSync(join(one.files, name)), name)
            }
          })
        ).pipe(
          Effect.ensuring(
            Effect.sync(() => {
              swapping = false
            })
          )
        )
        yield* Effect.all([swap, attempts], { concurrency: 2 })
        assert.strictEqual(text(dataDir, "outside/secret"), "secret")
      }).pipe(Effect.scoped)
    )
  })
}

describe("blueprints, instances: overlay", () => {
  it.effect.skipIf(!withExt4)("on ext4, the folders of servers are spread over the block groups", () =>
    Effect.gen(function* () {
      const { serversDir } = yield* scene({}, yield* ext4Disk)
      yield* until("lsattr shows the attribute", () =>
        /^\S*T/.test(execFileSync("lsattr", ["-d", serversDir], { encoding: "utf8" }))
      )
    }).pipe(Effect.scoped)
  )

  it.effect("a missing base or volume is an error", () =>
    Effect.gen(function* () {
      const { first, server, volumes } = yield* scene({}, yield* smallDisk(16))
      write(volumes, { "w/level": "L" })
      const one = server({ volumes: [{ name: "w", source: "w", target: "world", mode: "cow" }] })
      yield* one.make
      yield* one.close
      renameSync(join(volumes, "w"), join(volumes, "away"))
      assert.match((yield* Effect.flip(one.open)).message, /^volumes\/w is missing/)
      renameSync(join(volumes, "away"), join(volumes, "w"))
      yield* one.open
      yield* one.close
      rmSync(first.folder, { recursive: true })
      assert.match((yield* Effect.flip(one.open)).message, /^the base folder of the server is missing$/)
      assert.deepStrictEqual(mountsBelow(one.folder), [])
    }).pipe(Effect.scoped)
  )

  it.effect("a volume that another server may write is copied first", () =>
    Effect.gen(function* () {
      const { server, service, volumes } = yield* scene()
      write(volumes, { "w/sub/level": "L" })
      const writer = server({ volumes: [{ name: "w", source: "w", target: "world", mode: "rw" }] })
      service.register(writer.folder, writer.spec)
      yield* writer.make
      const reader = server({ volumes: [{ name: "w", source: "w/sub", target: "world", mode: "cow" }] })
      yield* reader.make
      writeFileSync(join(writer.files, "world/sub/level"), "changed")
      assert.strictEqual(text(reader.files, "world/level"), "L")
      yield* reader.close
      yield* reader.open
      assert.strictEqual(text(reader.files, "world/level"), "L")
    }).pipe(Effect.scoped)
  )

  it.effect("an interrupted change of the base is rolled back, and can be repeated", () =>
    Effect.gen(function* () {
      const { base, server } = yield* scene()
      const second = base("second", { "server.jar": "jar2", "conf/a": "2" })
      const one = server({})
      const { files, folder } = one
      yield* one.make
      write(files, { "conf/a": "mine", "conf/mine": "mine", "own/x": "mine" })
      yield* one.close
      // Interrupted while the new layer was made: it is removed.
      const upper = join(folder, "tree/upper")
      write(folder, { "tree/upper.building/conf/other": "half" })
      yield* one.open
      const names = ["conf/a", "conf/mine", "own/x", "server.jar"]
      assert.deepStrictEqual(
        names.map((name) => text(files, name)),
        ["mine", "mine", "mine", "jar"]
      )
      assert.isFalse(existsSync(join(folder, "tree/upper.building")))
      // Interrupted between the two renames at the end: the layer is put back.
      yield* one.close
      renameSync(upper, join(folder, "tree/upper.old"))
      write(folder, { "tree/upper.building/own/x": "mine" })
      yield* one.renew(second)
      assert.deepStrictEqual(
        names.map((name) => text(files, name)),
        ["2", "mine", "mine", "jar2"]
      )
      assert.deepStrictEqual(readdirSync(join(folder, "tree")).sort(), ["tree.json", "upper", "work"])
      assert.deepStrictEqual(readdirSync(folder).sort(), ["files", "tree"])
    }).pipe(Effect.scoped)
  )

  it.effect("a mount that was moved or removed is made again", () =>
    Effect.gen(function* () {
      const { dataDir, server, volumes } = yield* scene()
      write(volumes, { "s/x": "X" })
      const one = server({ volumes: [{ name: "s", source: "s", target: "a/s", mode: "ro" }] })
      yield* one.make
      renameSync(join(one.files, "a"), join(one.files, "b"))
      mkdirSync(join(one.files, "a"))
      yield* one.open
      assert.strictEqual(text(one.files, "a/s/x"), "X")
      assert.deepStrictEqual(readdirSync(join(one.files, "b/s")), [])
      unmountBelow(join(one.files, "a"))
      yield* one.open
      assert.strictEqual(
        refusal(() => writeFileSync(join(one.files, "a/s/x"), "")),
        "EROFS"
      )
      assert.strictEqual(mountsBelow(dataDir).length, 2)
    }).pipe(Effect.scoped)
  )

  it.effect("paths with any characters are mounted", () =>
    Effect.gen(function* () {
      const parent = yield* temporaryFolder
      const odd = join(parent, "a,b:c d\\e=ü\nf")
      mkdirSync(odd)
      const { server, volumes } = yield* scene({}, odd)
      write(volumes, { "w,x:y/level": "L" })
      const one = server({
        volumes: [
          { name: "w", source: "w,x:y", target: "o,w:p", mode: "cow" },
          { name: "s", source: "w,x:y", target: "r d", mode: "ro" }
        ]
      })
      yield* one.make
      yield* one.open
      assert.deepStrictEqual([text(one.files, "o,w:p/level"), text(one.files, "r d/level")], ["L", "L"])
      assert.strictEqual(mountsBelow(parent).length, 3)
    }).pipe(Effect.scoped)
  )
})

describe("blueprints, instances: daemon", () => {
  it.live("a reset stops the server and makes its files again; a removal keeps shared volumes", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, running, statuses } = yield* harness()
      const id = yield* running({
        install: { script: "echo base > file" },
        definition: { volumes: [{ name: "s", source: "s", target: "s", mode: "rw" }] }
      })
      const files = join(dataDir, "servers", id, "files")
      write(files, { file: "changed", extra: "x", "s/kept": "k" })
      yield* daemon.reset(id)
      yield* until("reset", () => existsSync(join(files, "file")) && !existsSync(join(files, "extra")))
      assert.strictEqual(text(files, "file"), "base\n")
      yield* until("offline", () => statuses(id).at(-1) === "offline")
      assert.deepStrictEqual(statuses(id).slice(-4), ["stopping", "offline", "installing", "offline"])
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => statuses(id).at(-1) === "running")
      yield* daemon.remove(id)
      yield* daemon.remove(id)
      assert.isFalse(existsSync(join(dataDir, "servers", id)))
      assert.strictEqual(text(dataDir, "volumes/s/kept"), "k")
      assert.deepStrictEqual(mountsBelow(dataDir), [])
    }).pipe(Effect.scoped)
  )

  it.live(
    "a mount outside the allowed folders fails the installation with a hint, whether or not it exists",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const allowed = join(dataDir, "not/yet/there")
        const { create, lastInstall } = yield* harness({ allowedMounts: [allowed] }, dataDir)
        const reason = Effect.fnUntraced(function* (source: string) {
          const id = yield* create({ definition: { mounts: [{ source, target: "etc", mode: "ro" }] } })
          yield* until("failed", () => lastInstall(id)?.phase === "failed")
          return lastInstall(id)?.failure_reason
        })
        for (const source of ["/etc", "/etc/no/such", `${allowed}/../../x`]) {
          assert.strictEqual(
            yield* reason(source),
            `state.mounts: ${source.replace(`${dataDir}/`, "")} is not below the allowed mounts of the node (node test-node): allow it there with MUSTER_ALLOWED_MOUNTS, then reinstall`
          )
        }
        assert.match(
          (yield* reason(`${allowed}/maps`)) ?? "",
          /^state\.mounts: there is no .*: put it there, then /
        )
      }).pipe(Effect.scoped)
  )

  it.live("the daemon unmounts all instances when it ends, and mounts them at its next start", () =>
    Effect.gen(function* () {
      const { close, daemon, dataDir, installed } = yield* harness()
      const id = yield* installed({ install: { script: "echo base > file" } })
      const files = join(dataDir, "servers", id, "files")
      writeFileSync(join(files, "own"), "mine")
      yield* close
      assert.deepStrictEqual(mountsBelow(dataDir), [])
      assert.deepStrictEqual(readdirSync(files), [])
      yield* openDaemon(dataDir, recorder())
      yield* until("the files are shown", () => existsSync(join(files, "file")))
      assert.strictEqual(text(files, "own"), "mine")
      assert.strictEqual((yield* daemon.system).system.instance_files, "overlay")
    }).pipe(Effect.scoped)
  )
})
