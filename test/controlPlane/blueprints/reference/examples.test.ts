import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { CreateServer } from "../../../../src/contract/api/ServersGroup.ts"
import { BlueprintStore, SoftwareStore } from "../../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { blueprintSet } from "../../../../src/controlPlane/blueprints/definitions.ts"
import { renderProblem, sortProblems } from "../../../../src/controlPlane/blueprints/parse/located.ts"
import { blocksOf } from "../../../support/markdown.ts"
import { folders, stores, write } from "../support.ts"
import { definitionsOf, examples, read, sound, texts } from "./support.ts"

/** Both folders with every valid example, and the references themselves. */
const installed = Effect.gen(function* () {
  const directories = yield* folders
  for (const folder of ["blueprints", "software"] as const) {
    const files = sound.filter((example) => example.folder === folder).map(({ code, file }) => [file, code])
    yield* write(directories[folder], { ...Object.fromEntries(files), "README.md": texts[folder] })
  }
  return directories
})

describe("the references of definition files: examples", () => {
  it("the references have examples", () => {
    assert.isAtLeast(sound.length, 12)
    assert.isAtLeast(examples.length - sound.length, 6)
  })

  it.live("valid examples load together without a warning", () =>
    Effect.gen(function* () {
      const directories = yield* installed
      const log: Array<string> = []
      yield* Effect.gen(function* () {
        const blueprints = yield* BlueprintStore
        const software = yield* SoftwareStore
        const ids = [
          ...(yield* software.list).map(({ id }) => id),
          ...(yield* blueprints.mixins).map(({ id }) => id),
          ...(yield* blueprints.list).map(({ metadata }) => metadata.id)
        ]
        assert.lengthOf(ids, sound.length)
        yield* software.reload
        yield* blueprints.reload
      }).pipe(Effect.provide(stores(directories, log)))
      assert.deepStrictEqual(log, ["Info software: reloaded", "Info blueprints: reloaded"])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it("invalid examples are refused with the printed message", () => {
    const good = definitionsOf(sound)
    for (const example of examples.filter(({ refusal }) => refusal !== undefined)) {
      const { definition, problems } = read(example)
      const found = definition === undefined ? problems : blueprintSet([...good, definition]).problems
      assert.strictEqual(`${sortProblems(found).map(renderProblem).join("\n")}\n`, example.refusal)
    }
  })

  it.live("examples of merging give the documented result", () =>
    Effect.gen(function* () {
      const { limits, configs, volumes, env } = yield* (yield* BlueprintStore).resolve("hard", {})
      assert.deepStrictEqual(limits, { memory_limit: 4096, disk_space: 4096 })
      assert.deepStrictEqual(configs["server.properties"]?.find, {
        "server-port": "{{server.build.default.port}}",
        difficulty: "hard"
      })
      assert.deepStrictEqual(
        volumes.map(({ source }) => source),
        ["worlds/hard"]
      )
      assert.deepStrictEqual(env, { MODE: "calm" })
    }).pipe(
      (use) => Effect.flatMap(installed, (directories) => Effect.provide(use, stores(directories))),
      Effect.scoped,
      Effect.provide(NodeServices.layer)
    )
  )

  it.live("examples of overrides are accepted by a creation", () =>
    Effect.gen(function* () {
      const bodies = blocksOf(texts.blueprints).filter(
        ({ language, title }) => language === "json" && title === ""
      )
      assert.lengthOf(bodies, 1)
      for (const { code } of bodies) {
        const { blueprint_id, overrides = {} } = yield* Schema.decodeUnknownEffect(
          Schema.fromJsonString(CreateServer)
        )(code)
        const definition = yield* (yield* BlueprintStore).resolve(blueprint_id, overrides)
        assert.strictEqual(definition.limits.memory_limit, 6144)
        assert.deepStrictEqual(definition.configs["server.properties"]?.find, {
          "server-port": "{{server.build.default.port}}",
          motd: "For Alice",
          "view-distance": 15
        })
        assert.deepStrictEqual(definition.env, { MOTD: "Have fun", MODE: "hard" })
        assert.isFalse(definition.restart.on_crash)
      }
    }).pipe(
      (use) => Effect.flatMap(installed, (directories) => Effect.provide(use, stores(directories))),
      Effect.scoped,
      Effect.provide(NodeServices.layer)
    )
  )
})
