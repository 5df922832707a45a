import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { planFiles } from "../../../src/contract/domain/filePlan.ts"
import { scene, ways, write } from "./scene.ts"

for (const [way, options] of Object.entries(ways)) {
  describe(`spec 4.7: state: ${way}`, () => {
    it.effect(
      "a definition without conflicts is made: copies over layers, shared folders within a layer",
      () =>
        Effect.gen(function* () {
          const { dataDir, first, server, volumes } = yield* scene(options)
          write(first.folder, { "plugins/of-the-base": "base" })
          write(volumes, {
            "plugins/a": "volume",
            "plugins/b": "volume",
            "event/b": "event",
            "shared/x": "shared",
            "file.txt": "volume"
          })
          write(dataDir, { "files/plugins/b": "copy", "files/plugins/c": "copy", "files/one": "one" })
          const definition = {
            volumes: [
              { name: "plugins", source: "plugins", target: "plugins", mode: "cow" as const },
              { name: "event", source: "event", target: "/plugins", mode: "cow" as const },
              { name: "shared", source: "shared", target: "plugins/shared", mode: "rw" as const },
              { name: "file", source: "file.txt", target: "conf/file.txt", mode: "cow" as const }
            ],
            copy: [
              { source: "files/plugins", target: "plugins" },
              { source: "files/one", target: "plugins/c" },
              { source: "files/one", target: "conf/file.txt" }
            ]
          }
          assert.deepStrictEqual(planFiles({ mounts: [], ...definition }).conflicts, [])
          const { files, make } = server(definition)
          const look = () =>
            Object.fromEntries(
              [
                "plugins/of-the-base",
                "plugins/a",
                "plugins/b",
                "plugins/c",
                "plugins/shared/x",
                "conf/file.txt"
              ].map((name) => [name, readFileSync(join(files, name), "utf8")])
            )
          const expected = {
            "plugins/of-the-base": "base",
            "plugins/a": "volume",
            "plugins/b": "copy",
            "plugins/c": "one",
            "plugins/shared/x": "shared",
            "conf/file.txt": "one"
          }
          yield* make
          assert.deepStrictEqual(look(), expected)
          write(files, { "plugins/b": "mine", "plugins/shared/y": "all" })
          yield* make
          assert.deepStrictEqual(look(), expected)
          assert.deepStrictEqual(readdirSync(join(volumes, "shared")).sort(), ["x", "y"])
          assert.strictEqual(readFileSync(join(volumes, "plugins/b"), "utf8"), "volume")
        }).pipe(Effect.scoped)
    )

    it.effect("a server whose entries share one target still starts; the last entry wins", () =>
      Effect.gen(function* () {
        const { server, volumes } = yield* scene(options)
        write(volumes, { "a/a": "a", "b/b": "b" })
        const definition = {
          volumes: [
            { name: "a", source: "a", target: "s", mode: "rw" as const },
            { name: "b", source: "b", target: "/s", mode: "rw" as const }
          ]
        }
        assert.lengthOf(planFiles({ mounts: [], copy: [], ...definition }).conflicts, 1)
        const { files, make } = server(definition)
        yield* make
        assert.deepStrictEqual(readdirSync(join(files, "s")), ["b"])
        assert.isFalse(existsSync(join(volumes, "b/a")))
      }).pipe(Effect.scoped)
    )
  })
}
