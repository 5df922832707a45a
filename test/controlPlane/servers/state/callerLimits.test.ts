import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { CurrentPrincipal, type Principal } from "../../../../src/controlPlane/http/Principal.ts"
import { definition } from "../../../support/samples.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const as = (limits: Pick<Principal, "restriction" | "quotas">) =>
  Effect.provideService(CurrentPrincipal, {
    key_id: "key_a",
    name: "a",
    scope: "Operator",
    rights: new Set(["read", "change", "create"] as const),
    ...limits
  })

const reasonOf = <A, E extends { readonly code: string; readonly detail: string }>(
  call: Effect.Effect<A, E>
) => Effect.match(call, { onFailure: ({ code, detail }) => `${code} ${detail}`, onSuccess: () => "done" })

describe("spec 6.4: the transaction of a change decides", () => {
  it.live("a change of a server that has left the limits meanwhile is 404, one that leaves them 403", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const { becomes, records, servers } = yield* start()
      const { id } = yield* servers.create(request({ labels: { team: "b" } }))
      yield* becomes(id, "offline")
      const team = as({ restriction: { labels: { team: "a" }, blueprints: new Set(["survival"]) } })
      const into = { labels: { team: "a" } }
      for (const change of [into, { ...into, overrides: { save: true } }])
        assert.strictEqual(yield* reasonOf(team(servers.patch(id, change))), `404 server not found: ${id}`)
      assert.match(yield* reasonOf(team(servers.upgrade(id, { dry_run: false }))), /^404 /)
      assert.deepStrictEqual((yield* records)[0]?.labels, { team: "b" })
      yield* servers.patch(id, into)
      const out = { labels: { team: "b" } }
      for (const change of [out, { ...out, overrides: { save: true } }])
        assert.match(
          yield* reasonOf(team(servers.patch(id, change))),
          /^403 the API key lacks: change: .*team=a$/
        )
      assert.match(
        yield* reasonOf(team(servers.upgrade(id, { dry_run: false, blueprint_id: "lobby" }))),
        /^403 the API key lacks: change: .* other blueprints than lobby/
      )
      assert.strictEqual(yield* reasonOf(team(servers.patch(id, { labels: { tier: "1" } }))), "done")
    }).pipe(runHarness)
  )

  it.live("of two upgrades at a time that the memory quota does not allow together, one is refused", () =>
    Effect.gen(function* () {
      const { definitions, start } = yield* makeHarness()
      for (const [blueprint_id, memory_limit] of [
        ["small", 100],
        ["large", 150],
        ["endless", 0]
      ] as const)
        definitions[blueprint_id] = definition({ blueprint_id, limits: { memory_limit } })
      const { becomes, servers } = yield* start()
      const key = as({ quotas: [{ key_id: "key_a", max_memory: 250 }] })
      const create = servers.create(request({ blueprint_id: "small" }))
      const ids = yield* Effect.forEach([1, 2], () => Effect.map(key(create), ({ id }) => id))
      for (const id of ids) yield* becomes(id, "offline")
      const upgrade = (id: string, blueprint_id: string) =>
        Effect.result(key(servers.upgrade(id, { dry_run: false, blueprint_id })))
      const results = yield* Effect.forEach(ids, (id) => upgrade(id, "large"), { concurrency: "unbounded" })
      const [refused, ...others] = results.filter(Result.isFailure)
      assert.strictEqual(others.length, 0)
      assert.strictEqual(
        refused?.failure.detail,
        "quota of the API key: at most 250 MiB of memory (max_memory): 150 MiB in use, 150 MiB requested"
      )
      assert.isTrue(Result.isFailure(yield* upgrade(ids[0] ?? "", "endless")))
    }).pipe(runHarness)
  )
})
