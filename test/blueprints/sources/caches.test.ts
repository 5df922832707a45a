import { randomBytes } from "node:crypto"
import { existsSync, readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerUnlisted } from "../../../src/blueprints/sources/Sources.ts"
import { blueprintFile } from "../support.ts"
import { errorOf, ids, reload, started, world } from "./support.ts"

const MIB = 1024 * 1024
/** Nothing compresses it to less than half. */
const large = (mib: number) => randomBytes(mib * MIB).toString("hex")

const bytesOf = (folder: string): number =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0)
    : 0

const cacheBytes = 2 * MIB

describe("sources: caches are bounded", () => {
  it.live("a repository that is larger than the bound is refused, and nothing of it stays", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      here.list([{ id: "s", url: repository.folder }])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a"])
          repository.commit({ "a.yml": blueprintFile("a"), "big.bin": large(8) })
          yield* Effect.exit(reload)
          assert.match(
            (yield* errorOf("s")) ?? "",
            /takes more than 2 MiB, the bound of MUSTER_SOURCES_CACHE_MIB/
          )
          assert.deepStrictEqual(yield* ids, ["a"])
          assert.isBelow(bytesOf(join(here.data, "sources")), MIB)
        }),
        { cacheBytes }
      )
    })
  )

  it.live(
    "a server with filters does not send what is too large to be read; a definition among it is refused",
    () =>
      Effect.gen(function* () {
        const here = yield* world
        const repository = here.repository("r")
        repository.git(["config", "uploadpack.allowFilter", "true"])
        repository.commit({ "a.yml": blueprintFile("a"), "big.bin": large(8) })
        here.list([{ id: "s", url: `file://${repository.folder}` }])
        yield* started(
          here,
          Effect.gen(function* () {
            assert.isNull(yield* errorOf("s"))
            assert.deepStrictEqual(yield* ids, ["a"])
            assert.isBelow(bytesOf(join(here.data, "sources")), MIB)
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
            assert.isBelow(bytesOf(join(here.data, "sources")), MIB)
          }),
          { cacheBytes }
        )
      })
  )

  it.live("without a list of sources their caches are removed", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      here.list([{ id: "s", url: repository.folder }])
      yield* started(here, ids)
      const cache = join(here.data, "sources/blueprints/s")
      assert.isTrue(existsSync(cache))
      yield* Effect.void.pipe(
        Effect.provide(Layer.provide(layerUnlisted({ data_dir: here.data }), NodeServices.layer))
      )
      assert.isFalse(existsSync(cache))
    })
  )
})
