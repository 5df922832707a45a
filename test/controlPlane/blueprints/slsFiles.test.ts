/** The files in `sls` are as installations of SLS have them. */
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { BlueprintStore, SoftwareStore } from "../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { blueprintFile, folders, parse, problemsOf, softwareFile, stores, write } from "./support.ts"

const root = join(import.meta.dirname, "sls")
const directories = { blueprints: join(root, "blueprints"), software: join(root, "software") }

const load = <A, E>(use: Effect.Effect<A, E, BlueprintStore | SoftwareStore>, at = directories) =>
  use.pipe(Effect.provide(stores(at)), Effect.scoped, Effect.provide(NodeServices.layer))

/** The definition of a server of `game.yml`, with the files of `software`. */
const resolved = (blueprint: string, software: ReadonlyArray<string>, mixins: ReadonlyArray<string> = []) =>
  Effect.gen(function* () {
    const at = yield* folders
    yield* write(at.software, Object.fromEntries(software.map((text, n) => [`${n}.yml`, text])))
    yield* write(at.blueprints, {
      "game.yml": blueprint,
      ...Object.fromEntries(mixins.map((text, n) => [`${n}.yml`, text]))
    })
    return yield* load(
      Effect.flatMap(BlueprintStore, (store) => store.resolve("game", {})),
      at
    )
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

describe("spec 4.11: files written for SLS load unchanged", () => {
  it.effect(
    "a folder of them loads, with one warning for each file that has content Muster does not act on",
    () =>
      load(
        Effect.gen(function* () {
          const blueprints = yield* BlueprintStore
          const software = yield* SoftwareStore
          yield* software.reload
          yield* blueprints.reload
          const files = readdirSync(root, { recursive: true, encoding: "utf8" })
          const count = files.filter((file) => file.endsWith(".yml")).length
          const loaded = [
            ...(yield* software.list),
            ...(yield* blueprints.mixins),
            ...(yield* blueprints.list)
          ]
          assert.lengthOf(loaded, count)
          assert.deepStrictEqual(
            [...(yield* software.warnings), ...(yield* blueprints.warnings)].toSorted(),
            [
              "lobby.yml: ignored keys: software.update",
              "lobby.yml: ignored keys: world, traits, server.path, server.allowed_clients, state.hooks",
              "mixins/defaults.yml: ignored keys: traits",
              "paper.yml: ignored keys: software.update"
            ]
          )
        })
      )
  )

  it.effect("their values have the meaning that they have in SLS", () =>
    load(
      Effect.gen(function* () {
        const blueprints = yield* BlueprintStore
        const survival = yield* blueprints.resolve("survival", {})
        assert.deepInclude(survival, { software: "paper", image: "ghcr.io/example/images:java_21" })
        assert.deepInclude(survival.install_script, { warmup_failure_policy: "fail", warmup_retries: 1 })
        assert.notProperty(survival.limits, "io_weight")
        assert.deepStrictEqual(survival.copy, [
          { source: "sls/files/config.yml", target: "world/config.yml" },
          { source: "/host/files/icon.png", target: "server-icon.png" },
          { source: "sls/files/shared.yml", target: "data/shared.yml" }
        ])
        assert.deepStrictEqual(survival.mounts, [
          { source: "/host/path", target: "/", mode: "ro" },
          { source: "/host/maps", target: "/maps", mode: "rw" }
        ])
        const old = yield* blueprints.resolve("survival", { version: "1.20.4" })
        assert.strictEqual(old.image, "~local/java:17")
        const next = yield* blueprints.resolve("survival", { version: "26.1" })
        assert.strictEqual(next.image, "ghcr.io/example/images:java_25")

        const lobby = yield* blueprints.resolve("lobby", {})
        assert.deepInclude(lobby, { software: "lobby", version: "1.0" })
        assert.deepStrictEqual(lobby.env, { MODE: "calm", motd: "hello", FLAVOUR: "vanilla" })
        assert.strictEqual(lobby.configs["settings.yml"]?.parser, "yaml")
        assert.deepInclude(lobby.install_script, { warmup_failure_policy: "ignore" })
        assert.deepStrictEqual(
          lobby.copy.map(({ target }) => target),
          ["extra.txt", "config/motd.txt", "shared/late.txt"]
        )
      })
    )
  )

  it.effect("`io_weight: 0` replaces the weight of the software by none", () =>
    Effect.gen(function* () {
      const software = softwareFile("paper", "  limits: { io_weight: 500, swap: 1 }\n")
      const weight = (value: string) =>
        Effect.map(
          resolved(`blueprint: { id: game }\nserver: { software: paper, version: "1"${value} }\n`, [
            software
          ]),
          ({ limits }) => limits
        )
      assert.deepStrictEqual(yield* weight(""), { swap: 1, io_weight: 500 })
      assert.deepStrictEqual(yield* weight(", limits: { io_weight: 0 }"), { swap: 1 })
      assert.deepStrictEqual(yield* weight(", limits: { io_weight: 10 }"), { swap: 1, io_weight: 10 })
    })
  )

  it.effect("`env: { X: null }` removes a variable of a mixin, and a later value sets it again", () =>
    Effect.gen(function* () {
      const mixins = [
        "mixin: { id: first }\nstate: { env: { A: one, B: one } }\n",
        "mixin: { id: second }\nstate: { env: { A: ~, C: } }\n"
      ]
      const envOf = (includes: string, env: string) =>
        Effect.map(
          resolved(
            `blueprint: { id: game }\nincludes: ${includes}\nserver: { software: paper, version: "1" }\nstate: { env: ${env} }\n`,
            [softwareFile("paper")],
            mixins
          ),
          (definition) => definition.env
        )
      assert.deepStrictEqual(yield* envOf("[first, second]", "{}"), { B: "one" })
      assert.deepStrictEqual(yield* envOf("[second, first]", "{ B: null }"), { A: "one" })
      assert.deepStrictEqual(yield* envOf("[first, second]", "{ A: two }"), { A: "two", B: "one" })
    })
  )

  it("YAML merge keys: the mapping's own keys win, then the first of the merged mappings", () => {
    const annotations = (text: string) => {
      const { definition } = parse(
        `x-a: &a { one: 1, two: 1 }\nx-b: &b { two: 2, three: 2 }\n${blueprintFile("a", `annotations: ${text}\n`)}`
      )
      return definition?.kind === "blueprint" ? definition.annotations : undefined
    }
    assert.deepStrictEqual(annotations("{ <<: *a, two: own }"), { two: "own", one: 1 })
    assert.deepStrictEqual(annotations("{ two: own, <<: [*a, *b] }"), { two: "own", one: 1, three: 2 })
    assert.deepStrictEqual(annotations("{ <<: { one: inline } }"), { one: "inline" })
    assert.deepStrictEqual(annotations('{ "<<": 1 }'), { "<<": 1 })
    assert.deepStrictEqual(problemsOf("blueprint: { id: a }\nannotations: { <<: text }\n"), [
      "2:20: `<<` merges mappings, usually aliases of them"
    ])
  })

  it("merge keys count as the values that they stand for", () => {
    const wide = Array.from({ length: 900 }, (_, n) => `k${n}: ${n}`).join(", ")
    const merges = Array.from({ length: 12 }, (_, n) => `  m${n}: { <<: *wide }`).join("\n")
    const [problem] = problemsOf(`x-w: &wide { ${wide} }\nblueprint: { id: a }\nannotations:\n${merges}\n`)
    assert.match(problem ?? "", /aliases stand for more than 10000 values in all$/)
  })

  it.effect("an image that is neither a key nor a reference is refused at the creation", () =>
    Effect.gen(function* () {
      const software = softwareFile("paper", '  images: { "Java 21": "example/java:21" }\n')
      const failed = yield* Effect.flip(
        resolved('blueprint: { id: game }\nserver: { software: paper, version: "1", image: Java 22 }\n', [
          software
        ])
      )
      assert.include(
        String(failed),
        "image `Java 22` is neither a key of the images of software paper (Java 21) nor an image reference"
      )
    })
  )

  it("`mappings.default` is a key or an image reference, and a mistyped key is a problem", () => {
    const mapped = (image: string) =>
      problemsOf(
        softwareFile("paper", `  images: { java_21: "a/b" }\n  mappings: [{ default: "${image}" }]\n`),
        "software"
      )
    for (const image of ["java_21", "example.com/java:21", "~java"]) assert.deepStrictEqual(mapped(image), [])
    assert.deepStrictEqual(mapped("java_12"), ["5:25: `java_12` is not a key of `images` (java_21)"])
  })
})

describe("spec 4.2: a known key in the wrong place", () => {
  const cases: ReadonlyArray<readonly [string, string]> = [
    ["limits: { memory_limit: 1 }\n", "3:1: unknown key `limits`; its place is `server.limits`"],
    ["volumes: []\n", "3:1: unknown key `volumes`; its place is `state.volumes`"],
    ["memory-limit: 1\n", "3:1: unknown key `memory-limit`; its place is `server.limits.memory_limit`"],
    ["state: { save: true }\n", "3:10: unknown key `save`; its place is `save` at the top level"],
    ["state: { on_crash: true }\n", "3:10: unknown key `on_crash`; its place is `server.restart.on_crash`"],
    [
      "invocation: run\n",
      "3:1: unknown key `invocation`; its place is `software.invocation` of a software file"
    ],
    ["extends: [a]\n", "3:1: unknown key `extends`; its place is `extends` of a mixin file"]
  ]
  for (const [text, problem] of cases) {
    it(`${text.trim()}: the message names its place`, () =>
      assert.deepStrictEqual(problemsOf(blueprintFile("a", text)), [problem]))
  }

  it("a mixin and a software file have their own places first", () => {
    assert.deepStrictEqual(problemsOf("mixin: { id: a }\nlimits: {}\n"), [
      "2:1: unknown key `limits`; its place is `server.limits`"
    ])
    assert.deepStrictEqual(problemsOf(softwareFile("a", "  warmup: true\n  threads: a\n"), "software"), [
      "4:3: unknown key `warmup`; its place is `software.install-script.warmup`",
      "5:3: unknown key `threads`; its place is `software.limits.threads`"
    ])
  })
})
