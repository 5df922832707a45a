import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { replicaSet } from "../support/replicaSet.ts"
import type { Service } from "../support/Service.ts"
import { expectStatus } from "../support/servers.ts"

const schedule = (name: string) => ({ name, cron: "0 0 1 1 *", steps: [{ wait: 1 }] })
const fileOf = (...names: ReadonlyArray<string>) =>
  blueprintFile("timed", "game", { rest: { schedules: names.map(schedule) } })

interface Listed {
  readonly id: string
  readonly name: string
}

const listed = (api: Pick<Service, "request">, ...names: ReadonlyArray<string>) =>
  eventually(
    Effect.map(expectStatus(api, 200, "GET", "/api/schedules"), ({ json }): ReadonlyArray<Listed> => json),
    (all) =>
      all
        .map(({ name }) => name)
        .toSorted()
        .join() === names.join(),
    "60 seconds"
  )

describe("spec 13.7: schedules of blueprints on two replicas", () => {
  it.live(
    "a reload on any replica, also on both at once, and a killed leader leave each schedule once",
    () =>
      Effect.gen(function* () {
        const { blueprints, env } = yield* definitions({
          software: { "game.yml": softwareFile("game") },
          blueprints: { "timed.yml": fileOf("a") }
        })
        const set = yield* replicaSet(env)
        const [leader, other] = [yield* set.start(), yield* set.start()]
        const [first] = yield* listed(other, "a")
        const write = (...names: ReadonlyArray<string>) =>
          Effect.sync(() => writeFileSync(join(blueprints, "timed.yml"), fileOf(...names)))
        yield* write("a", "b")
        // The leader hears of it from the other replica.
        yield* expectStatus(other, 200, "POST", "/api/blueprints/reload")
        yield* listed(leader, "a", "b")
        yield* write("a", "b", "c")
        yield* Effect.all(
          [leader, other].map((one) => expectStatus(one, 200, "POST", "/api/blueprints/reload")),
          { concurrency: "unbounded" }
        )
        const before = yield* listed(other, "a", "b", "c")
        yield* leader.kill("SIGKILL")
        yield* write("a", "b", "c", "d")
        yield* expectStatus(other, 200, "POST", "/api/blueprints/reload")
        const after = yield* listed(other, "a", "b", "c", "d")
        const idOf = (all: ReadonlyArray<Listed>, wanted: string) =>
          all.find(({ name }) => name === wanted)?.id
        assert.strictEqual(idOf(after, "a"), first?.id)
        for (const { id, name } of before) assert.strictEqual(idOf(after, name), id)
      }).pipe(Effect.scoped),
    300_000
  )
})
