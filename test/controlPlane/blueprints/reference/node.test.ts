import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import type { Volume } from "../../../../src/contract/domain/Blueprint.ts"
import { ConfigParser } from "../../../../src/contract/domain/ConfigPatch.ts"
import { unknownPlaceholders } from "../../../../src/controlPlane/blueprints/placeholders.ts"
import { applyConfigs } from "../../../../src/daemon/configPatch/ConfigPatcher.ts"
import { contextOf, expand } from "../../../../src/daemon/configPatch/placeholders.ts"
import { launchPlan } from "../../../../src/daemon/runtime/launchPlan.ts"
import { scene, ways } from "../../../daemon/files/scene.ts"
import { specOf } from "../../../daemon/support.ts"
import { blocksOf, codeOf, tableOf } from "../../../support/markdown.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { definitionsOf, sound, texts } from "./support.ts"

const server = specOf({
  allocations: {
    default: { ip: "10.0.0.7", port: 25565 },
    mappings: { "10.0.0.7": [25565, 25566] }
  },
  definition: { env: { MOTD: "hi" }, ports: 2, port_names: ["game", "query"] }
})

describe("the references of definition files: config patches", () => {
  const mixins = new Map(
    definitionsOf(sound).flatMap((file) => (file.kind === "mixin" ? [[file.id, file] as const] : []))
  )

  for (const parser of ConfigParser.literals) {
    it.effect(`${parser}: gives the result of its example, also when repeated`, () =>
      Effect.gen(function* () {
        const blocks = blocksOf(texts.blueprints)
        const index = blocks.findIndex(({ code }) => code.includes(`id: parser-${parser} }`))
        const [before, after] = blocks.slice(index + 1)
        assert.deepStrictEqual([before?.title, after?.title], ["before", "after"])
        const [file = "", patch] =
          Object.entries(mixins.get(`parser-${parser}`)?.server.configs ?? {})[0] ?? []
        assert.strictEqual(patch?.value.parser, parser)
        const folder = yield* temporaryFolder
        mkdirSync(join(folder, file, ".."), { recursive: true })
        writeFileSync(join(folder, file), before?.code ?? "")
        const context = yield* Effect.fromResult(contextOf(server))
        for (let time = 0; time < 2; time++) {
          if (patch !== undefined) yield* applyConfigs(folder, { [file]: patch.value }, context)
          assert.strictEqual(readFileSync(join(folder, file), "utf8"), after?.code)
        }
      }).pipe(Effect.scoped)
    )
  }

  it("every placeholder has a value", () => {
    const context = Result.getOrThrow(contextOf(server))
    const rows = tableOf(texts.blueprints, "placeholders").map(([cell]) => codeOf(cell) ?? "")
    assert.lengthOf(rows, 9)
    for (const placeholder of rows) {
      assert.deepStrictEqual(unknownPlaceholders([placeholder]), [])
      assert.isTrue(Result.isSuccess(expand(placeholder, context)), placeholder)
    }
    assert.lengthOf(unknownPlaceholders(["{{server.prot}}"]), 1)
  })
})

describe("the references of definition files: errors that only a node finds", () => {
  it.effect("the errors equal the printed ones", () =>
    Effect.gen(function* () {
      const { dataDir, first, server: instance, volumes } = yield* scene()
      writeFileSync(join(dataDir, "admin.key"), "")
      mkdirSync(join(dataDir, "servers"), { recursive: true })
      symlinkSync("/etc", join(volumes, "etc"))
      symlinkSync("/etc", join(first.folder, "out"))
      const volume = (name: string, source: string, mode: Volume["mode"], target = name) => ({
        volumes: [{ name, source, target, mode }]
      })
      const made = (definition: Parameters<typeof instance>[0]) =>
        Effect.map(Effect.flip(instance(definition).make), ({ message }) => message)
      const patched = (folder: string, file: string, parser: ConfigParser) =>
        Effect.gen(function* () {
          const context = yield* Effect.fromResult(contextOf(server))
          const failed = yield* Effect.flip(
            applyConfigs(folder, { [file]: { parser, find: { a: 1 } } }, context)
          )
          return failed.message
        })
      const plain = instance({})
      yield* plain.make
      writeFileSync(join(plain.files, "a.json"), "{")
      const unmounted = (yield* scene(ways["copy, without mounts"])).server(volume("rw", "rw", "rw"))
      yield* unmounted.make
      const launch = launchPlan(specOf({ process: { invocation: "run {{server.prot}}" } }))
      const messages = [
        yield* made({ mounts: [{ source: "/etc", target: "etc", mode: "ro" }] }),
        yield* made(volume("lib", "lib", "ro")),
        yield* made(volume("world", "etc", "cow")),
        yield* made({ copy: [{ source: "files/none", target: "x" }] }),
        yield* made({ copy: [{ source: "admin.key", target: "x" }] }),
        yield* made({ copy: [{ source: "servers", target: "x" }] }),
        yield* made(volume("lib", "new", "rw", "out/lib")),
        yield* patched(plain.files, "a.json", "json"),
        yield* patched(unmounted.files, "rw/a.yml", "yaml"),
        Result.isFailure(launch) ? launch.failure : ""
      ]
      const printed = tableOf(texts.blueprints, "node").map(([cell]) => codeOf(cell) ?? "")
      assert.lengthOf(printed, messages.length)
      for (const [index, message] of printed.entries()) {
        if (message.endsWith("..."))
          assert.isTrue(messages[index]?.startsWith(message.slice(0, -3)), messages[index])
        else assert.strictEqual(messages[index], message)
      }
    }).pipe(Effect.scoped)
  )
})
