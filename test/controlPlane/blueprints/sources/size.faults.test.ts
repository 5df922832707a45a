import { randomBytes } from "node:crypto"
import { existsSync, readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { layerUnlisted } from "../../../../src/controlPlane/blueprints/sources/Sources.ts"
import { blueprintFile } from "../support.ts"
import { errorOf, ids, oneSource, reload, sourcesSetup, withStores } from "./support.ts"

const MIB = 1024 * 1024
/** Returns random text, which compresses to half its size at best. */
const large = (mib: number) => randomBytes(mib * MIB).toString("hex")

const bytesOf = (folder: string): number =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0)
    : 0

const maxBytes = 2 * MIB

describe("sources: size of repositories", () => {
  it.live("a repository over the limit is refused, and nothing of it stays", () =>
    Effect.gen(function* () {
      const { repository, setup } = yield* oneSource
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a"])
          repository.commit({ "a.yml": blueprintFile("a"), "big.bin": large(8) })
          yield* Effect.exit(reload)
          assert.match(
            (yield* errorOf("s")) ?? "",
            /takes more than 2 MiB, the bound of MUSTER_SOURCES_MAX_MIB/
          )
          assert.deepStrictEqual(yield* ids, ["a"])
          assert.isBelow(bytesOf(join(setup.data, "sources")), MIB)
        }),
        { maxBytes }
      )
    })
  )

  it.live(
    "a server with filters omits files that are too large; a definition file among them is refused",
    () =>
      Effect.gen(function* () {
        const setup = yield* sourcesSetup
        const repository = setup.repository("r")
        repository.git(["config", "uploadpack.allowFilter", "true"])
        repository.commit({ "a.yml": blueprintFile("a"), "big.bin": large(8) })
        setup.list([{ id: "s", url: `file://${repository.folder}` }])
        yield* withStores(
          setup,
          Effect.gen(function* () {
            assert.isNull(yield* errorOf("s"))
            assert.deepStrictEqual(yield* ids, ["a"])
            assert.isBelow(bytesOf(join(setup.data, "sources")), MIB)
            repository.commit({
              "a.yml": blueprintFile("a"),
              "b.yml": blueprintFile("b"),
              "big.bin": large(8)
            })
            yield* reload
            assert.deepStrictEqual(yield* ids, ["a", "b"])
            repository.commit({ "a.yml": blueprintFile("a"), "b.yml": large(4) })
            yield* Effect.exit(reload)
            assert.match((yield* errorOf("s")) ?? "", /`b.yml`: the file is larger than 1 MiB/)
            assert.isBelow(bytesOf(join(setup.data, "sources")), MIB)
          }),
          { maxBytes }
        )
      })
  )

  it.live("without a list of sources their definitions stay in use, with a warning", () =>
    Effect.gen(function* () {
      const { setup } = yield* oneSource
      yield* withStores(setup, ids)
      const log: Array<unknown> = []
      const { blueprints, data, software } = setup
      const unlisted = layerUnlisted({ dataDir: data, folders: { blueprints, software } })
      yield* Effect.void.pipe(
        Effect.provide(unlisted),
        Effect.provide(Logger.layer([Logger.make(({ message }) => log.push(message))])),
        Effect.provide(NodeServices.layer)
      )
      assert.match(String(log), /BLUEPRINT_SOURCES is not set; .* stay in use: s \(blueprints\)$/)
      assert.isTrue(existsSync(join(blueprints, "s/a.yml")))
    })
  )
})
