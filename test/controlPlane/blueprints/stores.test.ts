import { execFileSync } from "node:child_process"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, FileSystem, Layer, PlatformError, type Scope } from "effect"
import { BlueprintStore, SoftwareStore } from "../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { blueprintFile, folders, paperFile, softwareFile, stores, write } from "./support.ts"

const live = <A, E>(effect: Effect.Effect<A, E, NodeServices.NodeServices | Scope.Scope>) =>
  effect.pipe(Effect.scoped, Effect.provide(NodeServices.layer))

const ids = Effect.gen(function* () {
  return (yield* (yield* BlueprintStore).list).map(({ metadata }) => metadata.id)
})

/** Returns the error of a reload. */
const refusal = Effect.gen(function* () {
  return yield* Effect.flip((yield* BlueprintStore).reload)
})

describe("spec 4.4: start", () => {
  it.live("valid files are served, sorted by id; invalid ones are logged, one line per problem", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const log: Array<string> = []
        yield* write(directories.software, {
          "paper.yaml": paperFile,
          "bad.yml": "software: { id: b, x: 1 }\n"
        })
        yield* write(directories.blueprints, {
          "b.yml": blueprintFile("b"),
          "deep/er/a.yaml": blueprintFile("a"),
          "deep/bad.yml": `${blueprintFile("c")}sever: 1\nsav: 1\n`,
          "includes.yml": `${blueprintFile("d")}includes: [nope]\n`,
          "not.txt": "neither",
          ".hidden.yml": "neither"
        })
        yield* Effect.gen(function* () {
          const blueprints = yield* BlueprintStore
          assert.deepStrictEqual(yield* ids, ["a", "b"])
          assert.strictEqual((yield* blueprints.get("a")).server.image, "example/java:21")
          const missing = yield* Effect.flip(blueprints.get("c"))
          assert.strictEqual(missing.detail, "blueprint not found: c")
          assert.deepStrictEqual(
            (yield* (yield* SoftwareStore).list).map(({ id }) => id),
            ["paper"]
          )
        }).pipe(Effect.provide(stores(directories, log)))
        assert.deepStrictEqual(
          log.map((line) => line.replace(/; the keys here are .*/, "")),
          [
            "Error software: bad.yml:1:11: `software.invocation` is missing",
            "Error software: bad.yml:1:20: unknown key `x`",
            "Error blueprints: deep/bad.yml:3:1: unknown key `sever`; did you mean `server`?",
            "Error blueprints: deep/bad.yml:4:1: unknown key `sav`; did you mean `save`?",
            "Error blueprints: includes.yml:3:12: no mixin `nope`: d -> nope"
          ]
        )
      })
    )
  )

  it.live("a missing folder is an empty one, with a warning", () =>
    live(
      Effect.gen(function* () {
        const { outside } = yield* folders
        const log: Array<string> = []
        yield* Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, [])
          assert.strictEqual(
            (yield* refusal).detail,
            "the blueprints folder cannot be read: it does not exist"
          )
        }).pipe(Effect.provide(stores({ blueprints: `${outside}/none`, software: `${outside}/none` }, log)))
        assert.deepStrictEqual(
          log.map((line) => line.replace(outside, "")),
          [
            "Warn software: nothing is loaded from /none: it does not exist",
            "Warn blueprints: nothing is loaded from /none: it does not exist"
          ]
        )
      })
    )
  )

  it.live(
    "undefined software, an unmapped version and a field without effect are warnings; the blueprint is listed",
    () =>
      live(
        Effect.gen(function* () {
          const directories = yield* folders
          const log: Array<string> = []
          yield* write(directories.software, { "paper.yml": paperFile })
          yield* write(directories.blueprints, {
            "a.yml": 'blueprint: { id: a }\nserver: { software: nope, version: "1" }\n',
            "b.yml": 'blueprint: { id: b }\nserver: { software: paper, version: "1.8" }\n',
            "c.yml": blueprintFile("c").replace("software: paper", "software: paper, image: java_12"),
            "d.yml": `${blueprintFile("d")}state: { env: { A: "{{server.bild}}" } }\nworld: {}\n`,
            "e.yml": blueprintFile("e").replace(
              "software: paper",
              "software: paper, restart: { on_crash: true }"
            ),
            "f.yml": `${blueprintFile("f").replace("software: paper", "software: paper, restart: { on_crash: true }")}save: true\n`
          })
          yield* Effect.gen(function* () {
            const blueprints = yield* BlueprintStore
            const images = (yield* blueprints.list).map(({ server }) => server.image)
            assert.deepStrictEqual(images, [
              "",
              "",
              "java_12",
              "example/java:21",
              "example/java:21",
              "example/java:21"
            ])
            assert.strictEqual(
              (yield* Effect.flip(blueprints.resolve("a", {}))).detail,
              "software is not defined: nope"
            )
            assert.match(
              (yield* Effect.flip(blueprints.resolve("b", {}))).detail,
              /^no image of software paper/
            )
            assert.strictEqual((yield* Effect.flip(blueprints.resolve("z", {})))._tag, "NotFound")
          }).pipe(Effect.provide(stores(directories, log)))
          assert.deepStrictEqual(log, [
            "Warn blueprints: d.yml: ignored keys: world",
            "Warn blueprints: a.yml: software nope is not defined",
            "Warn blueprints: b.yml: no image of software paper maps to version 1.8",
            "Warn blueprints: c.yml: image `java_12` is no key of the software's images (java_21, java_25) and is taken as a reference",
            "Warn blueprints: d.yml: unknown placeholder {{server.bild}}",
            "Warn blueprints: e.yml: `server.restart.on_crash` has no effect without `save: true`, here or in the overrides of a creation"
          ])
        })
      )
  )
})

describe("GET /api/definitions/warnings", () => {
  const warnings = Effect.gen(function* () {
    return {
      blueprints: yield* (yield* BlueprintStore).warnings,
      software: yield* (yield* SoftwareStore).warnings
    }
  })

  it.live("the answer has every warning that a start or a reload has logged, and no other", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const fs = yield* FileSystem.FileSystem
        const log: Array<string> = []
        yield* write(directories.software, {
          "paper.yml": `${paperFile}  update: {}\n  configs: { lib/p.yml: { parser: yaml, find: { a: "{{x}}" } } }\n`
        })
        yield* write(directories.blueprints, {
          "a.yml": 'blueprint: { id: a }\nserver: { software: nope, version: "1" }\nworld: {}\n',
          "b.yml": 'blueprint: { id: b }\nserver: { software: paper, version: "1.8" }\n',
          "c.yml": `${blueprintFile("c")}state: { volumes: ["lib:lib:lib:ro"], env: { A: "{{y}}" } }\n`
        })
        yield* fs.symlink("nothing.yml", `${directories.blueprints}/link.yml`)
        const warned = () =>
          log.splice(0).flatMap((line) => (line.startsWith("Warn ") ? [line.slice("Warn ".length)] : []))
        yield* Effect.gen(function* () {
          const expected = {
            software: [
              "paper.yml: ignored keys: software.update",
              "software paper: unknown placeholder {{x}}"
            ],
            blueprints: [
              "link.yml: the link leads nowhere; left out",
              "a.yml: ignored keys: world",
              "a.yml: software nope is not defined",
              "b.yml: no image of software paper maps to version 1.8",
              "c.yml: software paper patches a file that cannot be written: the file `lib/p.yml` lies in `lib` of volume `lib` (ro), which is read-only: no patch can change it",
              "c.yml: unknown placeholder {{y}}"
            ]
          }
          const lines = ({ blueprints, software }: Effect.Success<typeof warnings>) => [
            ...software.map((line) => `software: ${line}`),
            ...blueprints.map((line) => `blueprints: ${line}`)
          ]
          assert.deepStrictEqual(yield* warnings, expected)
          assert.deepStrictEqual(warned(), lines(expected))
          yield* (yield* SoftwareStore).reload
          yield* (yield* BlueprintStore).reload
          assert.deepStrictEqual(yield* warnings, expected)
          assert.deepStrictEqual(warned(), lines(expected))
        }).pipe(Effect.provide(stores(directories, log)))
      })
    )
  )

  it.live("the answer has the omitted files, with file, line and column, until a reload succeeds", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const fs = yield* FileSystem.FileSystem
        yield* write(directories.software, { "paper.yml": paperFile, "bad.yml": "software: { id: b }\n" })
        yield* write(directories.blueprints, {
          "a.yml": blueprintFile("a"),
          "deep/bad.yml": `${blueprintFile("c")}sever: 1\n`
        })
        yield* Effect.gen(function* () {
          const reload = (yield* BlueprintStore).reload
          const leftOut = "deep/bad.yml:3:1: unknown key `sever`; did you mean `server`?; left out"
          assert.deepStrictEqual(yield* warnings, {
            software: ["bad.yml:1:11: `software.invocation` is missing; left out"],
            blueprints: [leftOut]
          })
          yield* write(directories.blueprints, { "a.yml": `${blueprintFile("a")}sav: 1\n` })
          yield* Effect.flip(reload)
          assert.deepStrictEqual((yield* warnings).blueprints, [
            "the last reload was refused: a.yml:3:1: unknown key `sav`; did you mean `save`?",
            "the last reload was refused: deep/bad.yml:3:1: unknown key `sever`; did you mean `server`?",
            leftOut
          ])
          yield* fs.remove(`${directories.blueprints}/deep`, { recursive: true })
          yield* Effect.flip(reload)
          assert.lengthOf((yield* warnings).blueprints, 2)
          yield* write(directories.blueprints, { "a.yml": blueprintFile("a") })
          yield* reload
          assert.deepStrictEqual((yield* warnings).blueprints, [])
        }).pipe(Effect.provide(stores(directories)))
      })
    )
  )

  it.live("the answer names a folder that cannot be read", () =>
    live(
      Effect.gen(function* () {
        const { outside } = yield* folders
        yield* Effect.gen(function* () {
          const none = "nothing is loaded: the folder cannot be read: it does not exist"
          assert.deepStrictEqual(yield* warnings, { software: [none], blueprints: [none] })
        }).pipe(Effect.provide(stores({ blueprints: `${outside}/none`, software: `${outside}/none` })))
      })
    )
  )
})

describe("spec 4.4: a reload is atomic", () => {
  it.live(
    "valid files replace the old set; one invalid file is 422, changes nothing and names each invalid file",
    () =>
      live(
        Effect.gen(function* () {
          const directories = yield* folders
          const fs = yield* FileSystem.FileSystem
          yield* write(directories.software, { "paper.yml": paperFile })
          yield* write(directories.blueprints, {
            "a.yml": blueprintFile("a"),
            "m.yml": "mixin: { id: m, description: d }\nserver: { ports: 2 }\n"
          })
          yield* Effect.gen(function* () {
            const blueprints = yield* BlueprintStore
            const before = yield* blueprints.list
            yield* write(directories.blueprints, {
              "b.yml": `${blueprintFile("b")}includes: [m]\n`,
              "x/bad.yml": "blueprint: { id: B }\n",
              "x/again.yml": blueprintFile("a"),
              "n.yml": "mixin: { id: m }\n"
            })
            yield* fs.remove(`${directories.blueprints}/a.yml`)
            yield* write(directories.blueprints, { "a.yml": `\n${blueprintFile("a")}` })
            const error = yield* refusal
            assert.strictEqual(error._tag, "InvalidRequest")
            assert.deepStrictEqual(error.detail.split("\n"), [
              "n.yml:1:14: the mixin id `m` is taken by m.yml:1",
              "x/again.yml:1:18: the blueprint id `a` is taken by a.yml:2",
              'x/bad.yml:1:18: expected an id such as survival_1 ([a-z0-9][a-z0-9_-]{0,62}), found the text "B"'
            ])
            assert.notInclude(error.detail, directories.blueprints)
            assert.strictEqual(yield* blueprints.list, before)

            yield* fs.remove(`${directories.blueprints}/x`, { recursive: true })
            yield* fs.remove(`${directories.blueprints}/n.yml`)
            yield* blueprints.reload
            assert.deepStrictEqual(yield* ids, ["a", "b"])
            assert.strictEqual((yield* blueprints.resolve("b", {})).ports, 2)
            assert.deepStrictEqual(yield* blueprints.mixins, [
              {
                id: "m",
                description: "d",
                extends: [],
                server: { ports: 2 },
                state: null,
                annotations: {},
                mixin: { id: "m", description: "d" }
              }
            ])
            assert.deepStrictEqual(yield* blueprints.mixin("m"), (yield* blueprints.mixins)[0])
            assert.strictEqual((yield* Effect.flip(blueprints.mixin("q"))).detail, "mixin not found: q")
          }).pipe(Effect.provide(stores(directories)))
        })
      )
  )

  it.live(
    "software is reloaded in the same way; the images of blueprints follow it, and only then lists change",
    () =>
      live(
        Effect.gen(function* () {
          const directories = yield* folders
          yield* write(directories.software, { "paper.yml": paperFile })
          yield* write(directories.blueprints, { "a.yml": blueprintFile("a") })
          yield* Effect.gen(function* () {
            const blueprints = yield* BlueprintStore
            const software = yield* SoftwareStore
            const first = yield* blueprints.list
            assert.strictEqual(yield* blueprints.list, first)
            assert.strictEqual(yield* software.list, yield* software.list)

            yield* write(directories.software, { "paper.yml": `${paperFile}  runtimes: []\n` })
            assert.match(
              (yield* Effect.flip(software.reload)).detail,
              /^paper\.yml:6:13: `runtimes` is empty$/
            )
            assert.strictEqual(yield* blueprints.list, first)

            yield* write(directories.software, { "paper.yml": paperFile.replace("java:21", "java:21-new") })
            yield* software.reload
            assert.strictEqual((yield* blueprints.list)[0]?.server.image, "example/java:21-new")
            assert.strictEqual((yield* blueprints.resolve("a", {})).image, "example/java:21-new")
            assert.strictEqual(yield* blueprints.list, yield* blueprints.list)

            yield* write(directories.software, { "paper.yml": softwareFile("else") })
            yield* software.reload
            assert.strictEqual((yield* blueprints.get("a")).server.image, "")
            assert.strictEqual(
              (yield* Effect.flip(software.get("paper"))).detail,
              "software not found: paper"
            )
            assert.strictEqual((yield* software.get("else")).process.invocation, "run")
          }).pipe(Effect.provide(stores(directories)))
        })
      )
  )

  it.live("a refusal names at most 50 problems, also among thousands of large files", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const many = Array.from(
          { length: 2_000 },
          (_, i) => [`d${i % 50}/b${i}.yml`, blueprintFile(`b${i}`)] as const
        )
        yield* write(directories.blueprints, Object.fromEntries(many))
        yield* Effect.gen(function* () {
          assert.strictEqual((yield* ids).length, 2_000)
          yield* write(directories.blueprints, {
            "large.yml": new Uint8Array(10 * 1024 * 1024).fill(0x20),
            "bad.yml": `blueprint: { id: bad }\n${Array.from({ length: 80 }, (_, i) => `k${i}: 1`).join("\n")}`
          })
          const { detail } = yield* refusal
          const lines = detail.split("\n")
          assert.strictEqual(lines.length, 51)
          assert.strictEqual(lines[50], "and 1 more")
          assert.include(detail, "large.yml:1:1: the file is larger than 1 MiB")
          assert.isBelow(detail.length, 20_000)
        }).pipe(Effect.provide(stores(directories)))
      })
    )
  )
})

describe("spec 4.2: contents of a folder", () => {
  it.live("a link is read once as its target within the folder; pipes and other types are ignored", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const fs = yield* FileSystem.FileSystem
        const { blueprints, outside } = directories
        yield* write(outside, { "secret.yml": blueprintFile("secret"), "folder/b.yml": blueprintFile("b") })
        yield* write(blueprints, {
          "..data/a.yml": blueprintFile("a"),
          "real/c.yml": blueprintFile("c"),
          "folder.yml/d.yml": blueprintFile("d")
        })
        yield* fs.symlink("..data/a.yml", `${blueprints}/a.yml`)
        yield* fs.symlink("..", `${blueprints}/real/loop`)
        yield* fs.symlink("real", `${blueprints}/same`)
        yield* fs.symlink(`${outside}/secret.yml`, `${blueprints}/secret.yml`)
        yield* fs.symlink(`${outside}/folder`, `${blueprints}/linked`)
        yield* fs.symlink("nothing.yml", `${blueprints}/dangling.yml`)
        yield* Effect.sync(() => execFileSync("mkfifo", [`${blueprints}/pipe.yml`]))
        const log: Array<string> = []
        yield* Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "c", "d"])
          yield* (yield* BlueprintStore).reload
          assert.deepStrictEqual(yield* ids, ["a", "c", "d"])
        }).pipe(Effect.provide(stores(directories, log)))
        const warnings = log.filter((line) => line.startsWith("Warn") && !line.includes("software paper"))
        assert.deepStrictEqual(warnings.slice(0, 4), [
          "Warn blueprints: dangling.yml: the link leads nowhere; left out",
          "Warn blueprints: linked: the link leads out of the folder; left out",
          "Warn blueprints: pipe.yml: it is no regular file; left out",
          "Warn blueprints: secret.yml: the link leads out of the folder; left out"
        ])
        assert.strictEqual(log.filter((line) => line.startsWith("Error")).length, 0)
      })
    )
  )

  it.live("a file that disappears during the read is ignored; an unreadable one is a problem", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const real = yield* FileSystem.FileSystem
        yield* write(directories.blueprints, {
          "a.yml": blueprintFile("a"),
          "gone.yml": blueprintFile("b"),
          "locked.yml": blueprintFile("c")
        })
        const fail = (_tag: PlatformError.SystemErrorTag) =>
          Effect.fail(PlatformError.systemError({ _tag, module: "FileSystem", method: "readFile" }))
        const failing = Layer.succeed(FileSystem.FileSystem, {
          ...real,
          readFile: (path) =>
            path.endsWith("gone.yml")
              ? fail("NotFound")
              : path.endsWith("locked.yml")
                ? fail("PermissionDenied")
                : real.readFile(path)
        })
        yield* Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a"])
          assert.strictEqual((yield* refusal).detail, "locked.yml:1:1: cannot be read: permission denied")
        }).pipe(Effect.provide(stores(directories, [], Layer.merge(NodeServices.layer, failing))))
      })
    )
  )
})

describe("spec 4.2: a folder that is replaced during a read", () => {
  it.live("the folder is read again, so that no partial set is served", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const real = yield* FileSystem.FileSystem
        const { blueprints, outside } = directories
        yield* write(blueprints, { "a.yml": blueprintFile("a"), "b.yml": blueprintFile("b") })
        yield* write(outside, { "new/c.yml": blueprintFile("c") })
        let armed = false
        const swapping = Layer.succeed(FileSystem.FileSystem, {
          ...real,
          readFile: (path) =>
            Effect.gen(function* () {
              if (armed) {
                armed = false
                yield* real.rename(blueprints, `${outside}/old`)
                yield* real.rename(`${outside}/new`, blueprints)
              }
              return yield* real.readFile(path)
            })
        })
        yield* Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "b"])
          armed = true
          yield* (yield* BlueprintStore).reload
          assert.deepStrictEqual(yield* ids, ["c"])
        }).pipe(Effect.provide(stores(directories, [], Layer.merge(NodeServices.layer, swapping))))
      })
    )
  )
})

describe("spec 4.4: reloads run one at a time", () => {
  it.live("the second reload begins when the first has ended", () =>
    live(
      Effect.gen(function* () {
        const directories = yield* folders
        const real = yield* FileSystem.FileSystem
        yield* write(directories.blueprints, { "a.yml": blueprintFile("a") })
        const gate = yield* Deferred.make<void>()
        const waiting = yield* Deferred.make<void>()
        let reads = 0
        const gated = Layer.succeed(FileSystem.FileSystem, {
          ...real,
          readFile: (path) =>
            Effect.gen(function* () {
              reads++
              if (reads === 1) return yield* real.readFile(path)
              yield* Deferred.succeed(waiting, undefined)
              yield* Deferred.await(gate)
              return yield* real.readFile(path)
            })
        })
        yield* Effect.gen(function* () {
          const blueprints = yield* BlueprintStore
          const reloads = yield* Effect.forkChild(
            Effect.all([blueprints.reload, blueprints.reload, blueprints.reload], {
              concurrency: "unbounded"
            })
          )
          yield* Deferred.await(waiting)
          for (let turn = 0; turn < 50; turn++) yield* Effect.yieldNow
          assert.strictEqual(reads, 2)
          assert.deepStrictEqual(yield* ids, ["a"])
          yield* Deferred.succeed(gate, undefined)
          yield* Fiber.join(reloads)
          assert.strictEqual(reads, 4)
        }).pipe(Effect.provide(stores(directories, [], Layer.merge(NodeServices.layer, gated))))
      })
    )
  )
})
