import { existsSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { scene, text, ways, write } from "./scene.ts"

const shared = (mode: "rw" | "ro") => ({ name: "s", source: "s", target: "/shared", mode })

for (const [way, options] of Object.entries(ways)) {
  describe(`spec 4.7: copy: ${way}`, () => {
    it.effect("an absolute source is a path of the host below the allowed mounts", () =>
      Effect.gen(function* () {
        const { allowed, server } = yield* scene(options)
        write(allowed, { "packs/a": "a" })
        const { files, make } = server({ copy: [{ source: join(allowed, "packs"), target: "packs" }] })
        yield* make
        assert.strictEqual(text(files, "packs/a"), "a")
        // Also if the allowed folder has the data folder in it.
        const wide = yield* scene(options, undefined, ["/"])
        write(wide.dataDir, { "admin.key": "secret" })
        for (const source of [wide.dataDir, join(wide.dataDir, "admin.key"), join(wide.dataDir, "servers")]) {
          const one = wide.server({ copy: [{ source, target: "x" }] })
          assert.strictEqual((yield* Effect.flip(one.make)).code, "REFUSED", source)
        }
      }).pipe(Effect.scoped)
    )

    it.effect("a copy into the instance folder itself adds its entries to the base", () =>
      Effect.gen(function* () {
        const { dataDir, server } = yield* scene(options)
        write(dataDir, { "files/pack/server.jar": "other", "files/pack/plugins/p": "p", "files/one": "one" })
        const { files, make } = server({
          copy: [
            { source: "files/pack", target: "." },
            { source: "files/one", target: "/home/container" }
          ]
        })
        yield* make
        assert.sameMembers(readdirSync(files), ["one", "plugins", "server.jar", "world"])
        assert.strictEqual(text(files, "server.jar"), "other")
      }).pipe(Effect.scoped)
    )

    it.effect("a copy of every start waits for the start, and replaces what the server has changed", () =>
      Effect.gen(function* () {
        const { dataDir, server, service } = yield* scene(options)
        write(dataDir, { "files/config.yml": "new", "files/pack/deep/run.sh": "#!/bin/sh" })
        const { files, folder, make, open, spec } = server({
          copy: [
            { source: "files/config.yml", target: "config/config.yml", when: "start" },
            { source: "files/pack", target: ".", when: "start" },
            { source: "files/config.yml", target: "once.yml", when: "create" }
          ]
        })
        yield* make
        assert.sameMembers(readdirSync(files), ["once.yml", "server.jar", "world"])
        const start = Effect.andThen(open, service.copyAtStart(folder, spec))
        yield* start
        assert.strictEqual(text(files, "config/config.yml"), "new")
        const before = statSync(join(files, "config/config.yml"))
        yield* start
        assert.strictEqual(
          statSync(join(files, "config/config.yml")).ino,
          before.ino,
          "it is not written again"
        )
        writeFileSync(join(files, "config/config.yml"), "changed by the server")
        writeFileSync(join(files, "once.yml"), "changed by the server")
        yield* start
        assert.strictEqual(text(files, "config/config.yml"), "new")
        assert.strictEqual(text(files, "deep/run.sh"), "#!/bin/sh")
        assert.strictEqual(text(files, "once.yml"), "changed by the server")
      }).pipe(Effect.scoped)
    )

    it.effect("a copy of every start never follows a link that the server has made", () =>
      Effect.gen(function* () {
        const { dataDir, server, service } = yield* scene(options)
        const outside = join(dataDir, "outside")
        write(dataDir, { "files/a": "a", "files/pack/deep/b": "b", "outside/kept": "kept" })
        for (const [target, planted] of [
          ["out/a", "out"],
          ["a", "a"]
        ] as const) {
          const { files, folder, make, open, spec } = server({
            copy: [{ source: "files/a", target, when: "start" }]
          })
          yield* make
          yield* open
          symlinkSync(planted === "a" ? join(outside, "kept") : outside, join(files, planted))
          const refused = yield* Effect.flip(service.copyAtStart(folder, spec))
          assert.strictEqual(refused.code, "REFUSED")
          assert.match(refused.message, /^state\.copy: the target .* is refused: /)
        }
        const { files, folder, make, open, spec } = server({
          copy: [{ source: "files/pack", target: "pack", when: "start" }]
        })
        yield* make
        yield* open
        mkdirSync(join(files, "pack"))
        symlinkSync(outside, join(files, "pack/deep"))
        assert.strictEqual((yield* Effect.flip(service.copyAtStart(folder, spec))).code, "REFUSED")
        assert.deepStrictEqual(readdirSync(outside), ["kept"])
        assert.strictEqual(text(outside, "kept"), "kept")
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a copy inside an `rw` volume is written to the volume, and one inside an `ro` volume is not made",
      () =>
        Effect.gen(function* () {
          const { dataDir, server, service, volumes } = yield* scene(options)
          write(volumes, { "s/there": "there" })
          write(dataDir, { "files/a": "a" })
          const copy = [
            { source: "files/a", target: "shared/deep/a" },
            { source: "files/a", target: "shared/late", when: "start" as const }
          ]
          const ro = server({ volumes: [shared("ro")], copy })
          yield* ro.make
          yield* Effect.andThen(ro.open, service.copyAtStart(ro.folder, ro.spec))
          assert.deepStrictEqual(readdirSync(join(volumes, "s")), ["there"])

          const rw = server({ volumes: [shared("rw")], copy })
          yield* rw.make
          assert.strictEqual(text(volumes, "s/deep/a"), "a")
          assert.strictEqual(text(rw.files, "shared/deep/a"), "a")
          assert.isFalse(existsSync(join(volumes, "s/late")))
          yield* Effect.andThen(rw.open, service.copyAtStart(rw.folder, rw.spec))
          assert.strictEqual(text(rw.files, "shared/late"), "a")

          rmSync(join(volumes, "s/deep"), { recursive: true })
          symlinkSync(dataDir, join(volumes, "s/deep"))
          assert.strictEqual(
            (yield* Effect.flip(server({ volumes: [shared("rw")], copy }).make)).code,
            "REFUSED"
          )
          assert.isFalse(existsSync(join(dataDir, "a")))
        }).pipe(Effect.scoped)
    )
  })

  describe(`spec 4.7: a mount at the instance folder itself: ${way}`, () => {
    it.effect("its entries are mounted, beside the base and the server's own files", () =>
      Effect.gen(function* () {
        const { allowed, server, service, volumes } = yield* scene(options)
        write(allowed, { "home/world/host": "host", "home/plugins/p": "p", "home/ops.json": "[]" })
        symlinkSync("/etc", join(allowed, "home/etc"))
        write(volumes, { "own/v": "v" })
        const { files, folder, make, open, spec } = server({
          mounts: [{ source: join(allowed, "home"), target: "/home/container", mode: "rw" }],
          volumes: [{ name: "own", source: "own", target: "plugins/own", mode: "cow" }]
        })
        yield* make
        yield* open
        assert.sameMembers(readdirSync(files), ["ops.json", "plugins", "server.jar", "world"])
        assert.strictEqual(text(files, "world/host"), "host")
        assert.strictEqual(text(files, "plugins/p"), "p")
        assert.strictEqual(text(files, "plugins/own/v"), "v")
        writeFileSync(join(files, "world/new"), "new")
        writeFileSync(join(files, "own.txt"), "own")
        assert.strictEqual(text(allowed, "home/world/new"), "new")
        assert.isFalse(existsSync(join(allowed, "home/own.txt")))
        assert.sameMembers([...(yield* service.paths(spec)).shared], ["ops.json", "plugins/p", "world"])
        write(allowed, { "home/later/l": "l" })
        yield* service.close(folder)
        yield* open
        assert.strictEqual(text(files, "later/l"), "l")
        assert.strictEqual(text(files, "own.txt"), "own")
      }).pipe(Effect.scoped)
    )

    it.effect("`ro`: the host's files do not change", () =>
      Effect.gen(function* () {
        const { allowed, server } = yield* scene(options)
        write(allowed, { "home/world/host": "host" })
        const { files, make, open } = server({
          mounts: [{ source: join(allowed, "home"), target: "/", mode: "ro" }]
        })
        yield* make
        yield* open
        assert.strictEqual(text(files, "world/host"), "host")
        if (way !== "copy, without mounts") {
          assert.throws(() => writeFileSync(join(files, "world/new"), ""), /EROFS/)
        } else writeFileSync(join(files, "world/new"), "")
        assert.deepStrictEqual(readdirSync(join(allowed, "home/world")), ["host"])
        writeFileSync(join(files, "logs.txt"), "")
      }).pipe(Effect.scoped)
    )
  })
}
