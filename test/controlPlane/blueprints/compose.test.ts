import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import type { BackupRule } from "../../../src/contract/domain/BackupTarget.ts"
import type { Blueprint, BlueprintState, Volume } from "../../../src/contract/domain/Blueprint.ts"
import type { ConfigPatches } from "../../../src/contract/domain/ConfigPatch.ts"
import type { FileRules } from "../../../src/contract/domain/Files.ts"
import type { BlueprintSchedule } from "../../../src/contract/domain/Schedule.ts"
import { compose, flattenMixins } from "../../../src/controlPlane/blueprints/compose.ts"
import type { Written } from "../../../src/controlPlane/blueprints/parse/decode.ts"
import type { BlueprintFile, MixinFile, Reference } from "../../../src/controlPlane/blueprints/parse/files.ts"
import { renderProblem } from "../../../src/controlPlane/blueprints/parse/located.ts"
import type { ServerPart } from "../../../src/controlPlane/blueprints/parse/parseServer.ts"

const refs = (ids: ReadonlyArray<string>): ReadonlyArray<Reference> =>
  ids.map((id, index) => ({ id, line: 2, column: 10 + index }))

interface Parts {
  readonly server?: Omit<ServerPart, "configs"> & { readonly configs?: ConfigPatches }
  readonly state?: Partial<BlueprintState> & { readonly env_allow?: ReadonlyArray<string> }
  readonly files?: FileRules
  readonly backup?: BackupRule
  readonly schedules?: ReadonlyArray<BlueprintSchedule>
  readonly annotations?: Record<string, string>
}

/** Gives every entry its own line. */
const partsOf = (
  file: string,
  { annotations = {}, backup = {}, files = {}, schedules = [], server = {}, state }: Parts
) => {
  let line = 10
  const written = <A>(value: A): Written<A> => ({ value, at: { file, line: line++, column: 5 } })
  const { configs, ...others } = server
  const entries = Object.entries(configs ?? {}).map(([name, patch]) => [name, written(patch)] as const)
  return {
    server: configs === undefined ? others : { ...others, configs: Object.fromEntries(entries) },
    state:
      state === undefined
        ? null
        : {
            volumes: (state.volumes ?? []).map(written),
            mounts: (state.mounts ?? []).map(written),
            copy: (state.copy ?? []).map(written),
            env: state.env ?? {},
            env_allow: state.env_allow ?? []
          },
    files,
    backup,
    schedules,
    annotations
  }
}

const mixin = (id: string, parents: ReadonlyArray<string>, parts: Parts = {}): MixinFile => ({
  kind: "mixin",
  file: `${id}.yml`,
  at: { line: 1, column: 14 },
  id,
  description: "",
  extends: refs(parents),
  ...partsOf(`${id}.yml`, parts)
})

const blueprint = (includes: ReadonlyArray<string>, parts: Parts = {}): BlueprintFile => ({
  kind: "blueprint",
  file: "game.yml",
  at: { line: 1, column: 18 },
  id: "game",
  name: "Game",
  type: "t",
  includes: refs(includes),
  save: false,
  ...partsOf("game.yml", parts)
})

const runs = { software: "paper", version: "1" }

const composed = (file: BlueprintFile, mixins: ReadonlyArray<MixinFile>) =>
  compose(file, flattenMixins(new Map(mixins.map((one) => [one.id, one]))))

const success = (file: BlueprintFile, mixins: ReadonlyArray<MixinFile> = []): Blueprint => {
  const result = composed(file, mixins)
  return Result.getOrThrowWith(result, (problems) => new Error(problems.map(renderProblem).join("\n")))
}

const failures = (file: BlueprintFile, mixins: ReadonlyArray<MixinFile> = []): ReadonlyArray<string> => {
  const result = composed(file, mixins)
  return Result.isFailure(result) ? result.failure.map(renderProblem) : []
}

const failure = (file: BlueprintFile, mixins: ReadonlyArray<MixinFile> = []): string =>
  failures(file, mixins).join("\n") || "composed"

const volume = (name: string, target: string, source: string): Volume => ({
  name,
  source,
  target,
  mode: "cow"
})

describe("spec 4.3: composition", () => {
  it("absent fields get their defaults", () => {
    assert.deepStrictEqual(success(blueprint([], { server: runs })), {
      id: "game",
      name: "Game",
      type: "t",
      software: "paper",
      version: "1",
      limits: {},
      ports: 1,
      configs: {},
      placement: { locations: [], anti_affinity: false },
      restart: { on_crash: false, max_per_hour: 5, delay: 5, max_delay: 300, reset_after: 600 },
      state: null,
      env_allow: [],
      save: false,
      annotations: {}
    })
  })

  it("parents are merged first, includes from left to right, the blueprint last", () => {
    const mixins = [
      mixin("base", [], {
        server: { ...runs, ports: 1, image: "base" },
        annotations: { a: "base", b: "base", c: "base" }
      }),
      mixin("left", ["base"], { server: { ports: 2 }, annotations: { b: "left" } }),
      mixin("right", [], { server: { image: "right" }, annotations: { c: "right", d: "right" } })
    ]
    const result = success(blueprint(["left", "right"], { annotations: { d: "own" } }), mixins)
    assert.strictEqual(result.ports, 2)
    assert.strictEqual(result.image, "right")
    assert.deepStrictEqual(result.annotations, { a: "base", b: "left", c: "right", d: "own" })
    const swapped = success(blueprint(["right", "left"]), mixins)
    assert.strictEqual(swapped.image, "base")
  })

  it("named ports are counted; names and a number replace each other", () => {
    const mixins = [
      mixin("names", [], { server: { ports: ["game", "query"] } }),
      mixin("number", [], { server: { ports: 3 } })
    ]
    const portsOf = (includes: ReadonlyArray<string>, ports?: number | ReadonlyArray<string>) => {
      const server = ports === undefined ? runs : { ...runs, ports }
      const { port_names, ports: count } = success(blueprint(includes, { server }), mixins)
      return [count, port_names]
    }
    assert.deepStrictEqual(portsOf(["number", "names"]), [2, ["game", "query"]])
    assert.deepStrictEqual(portsOf(["names", "number"]), [3, undefined])
    assert.deepStrictEqual(portsOf(["names"], ["rcon"]), [1, ["rcon"]])
    assert.deepStrictEqual(portsOf(["names"], 4), [4, undefined])
  })

  it("a placeholder of a port that has no such name is a problem of the blueprint", () => {
    const query = "{{server.build.ports.query}}"
    const configs = { "a.yml": { parser: "yaml", find: { x: [{ y: `:${query}` }] } } } as const
    const inMixin = [mixin("m", [], { server: { configs } })]
    assert.strictEqual(
      success(blueprint(["m"], { server: { ...runs, ports: ["game", "query"] } }), inMixin).ports,
      2
    )
    const where = "`server.configs`, a.yml: "
    assert.deepStrictEqual(failures(blueprint(["m"], { server: { ...runs, ports: ["game"] } }), inMixin), [
      `game.yml:1:18: ${where}${query} names no port of the server: its ports are game`
    ])
    assert.deepStrictEqual(
      failures(blueprint([], { server: { ...runs, ports: 2 }, state: { env: { A: query } } })),
      [`game.yml:1:18: \`state.env\`: ${query} names no port of the server: its ports have no names`]
    )
  })

  it("limits, placement and restart are merged by field, configs by file", () => {
    const parser = "yaml"
    const mixins = [
      mixin("m", [], {
        server: {
          limits: { memory_limit: 1, swap: 2 },
          placement: { locations: ["eu"], anti_affinity: true },
          restart: { max_per_hour: 9 },
          configs: { a: { parser, find: { x: 1, y: 1 } }, b: { parser, find: { x: 1 } } }
        }
      })
    ]
    const result = success(
      blueprint(["m"], {
        server: {
          ...runs,
          limits: { memory_limit: 3 },
          placement: { anti_affinity: false },
          restart: { on_crash: true, delay: 1 },
          configs: { a: { parser, find: { x: 2 } } }
        }
      }),
      mixins
    )
    assert.deepStrictEqual(result.limits, { memory_limit: 3, swap: 2 })
    assert.deepStrictEqual(result.placement, { locations: ["eu"], anti_affinity: false })
    assert.deepStrictEqual(result.restart, {
      on_crash: true,
      max_per_hour: 9,
      delay: 1,
      max_delay: 300,
      reset_after: 600
    })
    assert.deepStrictEqual(result.configs, { a: { parser, find: { x: 2 } }, b: { parser, find: { x: 1 } } })
  })

  it("a volume with the same name and target is replaced; others, mounts and copies are appended; env is merged by key", () => {
    const mixins = [
      mixin("m", [], {
        state: {
          volumes: [volume("w", "/world", "old"), volume("w", "/other", "old"), volume("x", "world", "old")],
          mounts: [{ source: "/a", target: "/m", mode: "ro" }],
          copy: [{ source: "a", target: "b" }],
          env: { A: "1", B: "1" },
          env_allow: ["LD_*", "PATH"]
        }
      })
    ]
    const { env_allow, state } = success(
      blueprint(["m"], {
        server: runs,
        state: {
          volumes: [volume("w", "world", "new"), volume("y", "/world", "new")],
          mounts: [{ source: "/a", target: "/m", mode: "ro" }],
          copy: [{ source: "c", target: "d" }],
          env: { B: "2" },
          env_allow: ["NODE_OPTIONS", "PATH"]
        }
      }),
      mixins
    )
    assert.deepStrictEqual(
      state?.volumes.map(({ name, source, target }) => `${name}:${source}:${target}`),
      ["w:new:world", "w:old:/other", "x:old:world", "y:new:/world"]
    )
    assert.strictEqual(state?.mounts.length, 2)
    assert.deepStrictEqual(state?.copy, [
      { source: "a", target: "b" },
      { source: "c", target: "d" }
    ])
    assert.deepStrictEqual(state?.env, { A: "1", B: "2" })
    assert.deepStrictEqual(env_allow, ["LD_*", "PATH", "NODE_OPTIONS"])
  })

  it("the variables of a blueprint and its mixins have one limit", () => {
    const some = (prefix: string, count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}${index}`, "1"]))
    const mixins = [mixin("m", [], { state: { env: some("M", 200) } })]
    const game = (count: number) => blueprint(["m"], { server: runs, state: { env: some("B", count) } })
    assert.strictEqual(Object.keys(success(game(56), mixins).state?.env ?? {}).length, 256)
    assert.deepStrictEqual(failures(game(57), mixins), [
      "game.yml:1:18: `state.env` with its mixins: expected at most 256 variables, found 257: game"
    ])
  })

  it("spec 10.4: patterns of files are added, each once; volumes and mounts are replaced", () => {
    const mixins = [
      mixin("base", [], { files: { deny: ["*.key"], volumes: "write" } }),
      mixin("left", ["base"], { files: { deny: ["ops.json"], read_only: ["*.jar"], mounts: "read" } }),
      mixin("right", ["base"], { files: { deny: [], volumes: "read" } })
    ]
    const filesOf = (includes: ReadonlyArray<string>, files: FileRules = {}) =>
      success(blueprint(includes, { server: runs, files }), mixins).files
    assert.deepStrictEqual(filesOf(["left", "right"], { deny: ["/world"], mounts: "hidden" }), {
      deny: ["*.key", "ops.json", "/world"],
      read_only: ["*.jar"],
      volumes: "read",
      mounts: "hidden"
    })
    assert.deepStrictEqual(filesOf(["base"]), { deny: ["*.key"], volumes: "write" })
    assert.isUndefined(filesOf([], { deny: [], read_only: [] }))
    const many = Array.from({ length: 100 }, (_, index) => `f${index}`)
    assert.strictEqual(filesOf(["base"], { deny: many.slice(1) })?.deny?.length, 100)
    assert.deepStrictEqual(failures(blueprint(["base"], { server: runs, files: { deny: many } }), mixins), [
      "game.yml:1:18: `files.deny` with its mixins: expected at most 100 patterns, found 101: game"
    ])
  })

  it("a mixin that is included twice is merged once", () => {
    const mixins = [
      mixin("base", [], { state: { mounts: [{ source: "/a", target: "/m", mode: "ro" }] } }),
      mixin("left", ["base"]),
      mixin("right", ["base"])
    ]
    assert.strictEqual(
      success(blueprint(["left", "right"], { server: runs }), mixins).state?.mounts.length,
      1
    )
  })

  it("the result is the fold of all mixins, for any tree of scalars", () => {
    const value = fc.option(fc.constantFrom("a", "b", "c"), { nil: undefined })
    fc.assert(
      fc.property(fc.array(fc.tuple(value, value), { maxLength: 6 }), (layers) => {
        const mixins = layers.map(([image, key], index) =>
          mixin(`m${index}`, [], {
            server: image === undefined ? {} : { image },
            annotations: key === undefined ? {} : { key }
          })
        )
        const ids = mixins.map(({ id }) => id)
        const last = <A>(values: ReadonlyArray<A | undefined>) => values.findLast((one) => one !== undefined)
        const flat = success(blueprint(ids, { server: runs }), mixins)
        assert.strictEqual(flat.image, last(layers.map(([image]) => image)))
        assert.strictEqual(flat.annotations.key, last(layers.map(([, key]) => key)))
        // One mixin that extends all others, and a chain of mixins, give the same result.
        const all = mixin("all", ids)
        assert.deepStrictEqual(success(blueprint(["all"], { server: runs }), [...mixins, all]), flat)
        const chain = mixins.map((one, index) => ({
          ...one,
          extends: refs(index === 0 ? [] : [`m${index - 1}`])
        }))
        assert.deepStrictEqual(success(blueprint(ids.slice(-1), { server: runs }), chain), flat)
      })
    )
  })
})

describe("spec 4.3: errors of composition name the chain", () => {
  it("an unknown mixin is an error", () => {
    assert.strictEqual(failure(blueprint(["nope"])), "game.yml:2:10: no mixin `nope`: game -> nope")
    assert.strictEqual(
      failure(blueprint(["ok", "a"]), [mixin("ok", []), mixin("a", ["b"]), mixin("b", ["nope"])]),
      "game.yml:2:11: no mixin `nope`: game -> a -> b -> nope"
    )
  })

  it("a cycle is an error, also of one mixin", () => {
    const circle = [mixin("a", ["b"]), mixin("b", ["c"]), mixin("c", ["a"])]
    assert.strictEqual(
      failure(blueprint(["a"]), circle),
      "game.yml:2:10: the mixins extend each other in a circle: game -> a -> b -> c -> a"
    )
    const flat = flattenMixins(new Map([["a", mixin("a", ["a"])]]))
    assert.isTrue([...flat.values()].every(Result.isFailure))
  })

  it("a missing software or version is an error", () => {
    assert.strictEqual(failure(blueprint([])), "game.yml:1:18: `server.software` is missing: game")
    assert.strictEqual(
      failure(blueprint(["a", "b"]), [mixin("a", [], { server: { software: "x" } }), mixin("b", [])]),
      "game.yml:1:18: `server.version` is missing: game -> a, b"
    )
  })

  it("chains of thousands of mixins compose in any order, and their cycles are errors", () => {
    const chain = Array.from({ length: 5_000 }, (_, i) => mixin(`m${i}`, i === 0 ? [] : [`m${i - 1}`]))
    for (const mixins of [chain, chain.toReversed()]) {
      assert.strictEqual(failure(blueprint(["m4999"], { server: runs }), mixins), "composed")
      const circle = mixins.map((one) => (one.id === "m0" ? mixin("m0", ["m4999"]) : one))
      const flat = [...flattenMixins(new Map(circle.map((one) => [one.id, one]))).values()]
      assert.isTrue(flat.every(Result.isFailure))
    }
  })

  it("ladders of mixins compose in linear time", () => {
    const rung = (level: number, side: string) =>
      mixin(`${side}${level}`, level === 0 ? [] : [`l${level - 1}`, `r${level - 1}`])
    const ladder = Array.from({ length: 60 }, (_, level) => [rung(level, "l"), rung(level, "r")]).flat()
    assert.strictEqual(failure(blueprint(["l59"], { server: runs }), ladder), "composed")
  })
})
