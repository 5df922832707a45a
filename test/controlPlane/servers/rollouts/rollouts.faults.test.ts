import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import { runHarness } from "../support/harness.ts"
import { is, makeFleet, over, tableOf, versionOn } from "../support/rollouts.ts"

describe("spec 3.13: control plane killed at any moment", () => {
  it.live(
    "the rollout continues after the restart, forward and back",
    () =>
      Effect.gen(function* () {
        let steps = 0
        for (let killAt = 1; ; killAt++) {
          const fleet = yield* makeFleet({ up: 3, servers: 4 })
          const { daemon, ids, start, stop } = fleet
          // The third server cannot be started.
          const refused = new DaemonRefused({ status: 422, detail: "no java", hint: "Install it." })
          let restarts = 0
          const power = daemon.daemon.power
          Object.assign(daemon.daemon, {
            power: (...call: Parameters<typeof power>) =>
              Effect.suspend(() => {
                const spec = [...daemon.instances.values()].find((instance) => instance.spec.id === call[0])
                const version = (spec?.next ?? spec?.spec)?.definition.version
                if (call[0] !== ids[2] || version !== "2") return power(...call)
                restarts += 1
                return Effect.fail(refused)
              })
          })
          const reached = yield* Deferred.make<void>()
          let left = killAt
          daemon.step = Effect.suspend(() => {
            left -= 1
            return left === 0
              ? Effect.andThen(Deferred.succeed(reached, undefined), Effect.never)
              : Effect.void
          })
          const { id } = yield* fleet.rollouts.create(over(ids, { on_failure: "rollback", max_parallel: 1 }))
          const isOver = yield* Effect.raceFirst(
            Effect.as(is(fleet, id, "rolled_back"), true),
            Effect.as(Deferred.await(reached), false)
          )
          yield* stop
          daemon.step = Effect.void
          const second = yield* start()
          yield* is(second, id, "rolled_back")
          yield* second.settled
          assert.deepStrictEqual(
            yield* tableOf(second, ids),
            ["1 running", "1 running", "1 running", "1 offline"],
            `step ${killAt}`
          )
          for (const server of ids) assert.strictEqual(versionOn(fleet, server), "1", `step ${killAt}`)
          assert.isAtLeast(restarts, 1)
          yield* second.stop
          if (isOver) break
          steps = killAt
        }
        assert.isAtLeast(steps, 10)
      }).pipe(runHarness),
    120_000
  )
})
