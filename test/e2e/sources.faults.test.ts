import { readdirSync, readFileSync, readlinkSync, renameSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { blueprintFile } from "../support/definitions.ts"
import { startService } from "../support/Service.ts"
import { idsOf, sourceSetup } from "../support/sources.ts"

/** The result of a look at the file system; false if a file vanishes during it. */
const seenNow = (look: () => boolean): boolean => {
  try {
    return look()
  } catch {
    return false
  }
}

describe("sources: kill -9 during a reload", () => {
  it.live(
    "the old or the new set is complete, and the next sync works",
    () =>
      Effect.gen(function* () {
        const { dataDir, env, folders, list, repository, root } = yield* sourceSetup
        const count = 300
        const generation = (n: number) =>
          Object.fromEntries(
            Array.from({ length: count }, (_, i) => [
              `d${i % 7}/b${i}.yml`,
              blueprintFile(`g${n}-${i}`, "game")
            ])
          )
        const repositories = join(dataDir, "sources/work")
        const states = () => {
          const hidden = join(folders.blueprints, ".muster-sources")
          const owner = join(hidden, readdirSync(hidden)[0] ?? "")
          return readdirSync(owner).map((name) => join(owner, name))
        }
        const files = () =>
          states().reduce((sum, state) => sum + readdirSync(state, { recursive: true }).length, 0)
        const whole = count + 7
        const place = () => readlinkSync(join(folders.blueprints, "s"))
        /** Moments of a reload, observed in the file system. */
        const moments: ReadonlyArray<(before: string) => boolean> = [
          () => readdirSync(repositories).length > 0,
          () => states().length > 1,
          () => files() > whole + 20,
          () => files() > whole + 200,
          () => files() === 2 * whole,
          (before) => place() !== before,
          (before) => place() !== before && states().length === 1
        ]
        /** The generation in place, which must be complete and the only one. */
        const inPlace = () => {
          const folder = join(folders.blueprints, "s")
          const texts = readdirSync(folder, { recursive: true, encoding: "utf8" })
            .filter((name) => name.endsWith(".yml"))
            .map((name) => /g(\d+)-/.exec(readFileSync(join(folder, name), "utf8"))?.[1])
          assert.lengthOf(texts, count)
          assert.strictEqual(new Set(texts).size, 1)
          return Number(texts[0])
        }
        list({ id: "s", url: repository.folder })
        repository.commit(generation(0))
        for (const [round, moment] of moments.entries()) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              // Whatever the previous round has left, this start syncs the new commit.
              const api = yield* startService({ env, dataDir })
              assert.strictEqual(inPlace(), round)
              const before = place()
              repository.commit(generation(round + 1))
              const seen = Effect.sync(() => seenNow(() => moment(before))).pipe(
                Effect.repeat({ until: (it) => it, schedule: Schedule.spaced("1 millis") })
              )
              yield* Effect.raceFirst(seen, Effect.ignore(api.request("POST", "/api/blueprints/reload")))
              yield* api.kill("SIGKILL")
              assert.include([round, round + 1], inPlace())
            })
          )
        }
        // Without a repository to fetch, the last generation is served.
        renameSync(repository.folder, join(root, "away"))
        const api = yield* startService({ env, dataDir })
        const serving = (yield* idsOf(api)).filter((id) => id !== "own")
        assert.lengthOf(serving, count)
        assert.isTrue(serving.every((id) => id.startsWith(`g${inPlace()}-`)))
        assert.lengthOf(states(), 1)
        assert.deepStrictEqual(readdirSync(repositories), [])
        yield* api.kill("SIGKILL")

        const unlisted = yield* startService({ env: { ...env, MUSTER_BLUEPRINT_SOURCES: "" }, dataDir })
        assert.lengthOf(yield* idsOf(unlisted), count + 1)
        assert.match(
          unlisted.output(),
          /MUSTER_BLUEPRINT_SOURCES is not set; the definitions of these sources stay in use: s \(blueprints\)/
        )
      }),
    300_000
  )
})
