import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as fc from "fast-check"
import type { QuotaLimits } from "../../../src/contract/domain/Key.ts"
import type { Limits } from "../../../src/contract/domain/Limits.ts"
import { CurrentPrincipal, type Principal } from "../../../src/controlPlane/http/Principal.ts"
import { definition } from "../../support/samples.ts"
import { makeHarness, request, runHarness } from "./support/harness.ts"

/** The limits of a quota, with the limit of a server that each one counts. */
const counted = [
  ["max_memory", "memory_limit"],
  ["max_cpu", "cpu_limit"],
  ["max_disk", "disk_space"]
] as const

const blueprints: Readonly<Record<string, Limits>> = {
  small: { memory_limit: 100, cpu_limit: 50, disk_space: 10 },
  large: { memory_limit: 250, cpu_limit: 100, disk_space: 40 },
  busy: { memory_limit: 50, cpu_limit: 250, disk_space: 10 },
  wide: { memory_limit: 50, cpu_limit: 50, disk_space: 120 },
  endless: { memory_limit: 50, cpu_limit: 0, disk_space: 10 }
}
const limits: QuotaLimits = { max_servers: 4, max_memory: 500, max_cpu: 400, max_disk: 150 }
const keys = ["key_a", "key_b", "key_c"] as const

const blueprint = fc.constantFrom(...Object.keys(blueprints))
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant("create" as const), blueprint }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("upgrade" as const), blueprint, server: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("remove" as const), server: fc.nat(9) }) }
)
const rounds = fc.array(fc.array(fc.tuple(fc.constantFrom(...keys), step), { minLength: 1, maxLength: 5 }), {
  minLength: 2,
  maxLength: 5
})

describe("spec 6.4: quotas that keys share", () => {
  it.live(
    "no creations, upgrades and deletions of several keys at a time exceed a quota, and what fits is accepted",
    () =>
      Effect.gen(function* () {
        const { definitions, start } = yield* makeHarness({ ports: 500 })
        for (const [blueprint_id, own] of Object.entries(blueprints))
          definitions[blueprint_id] = definition({ blueprint_id, limits: own })
        const { becomes, keyRepo, quotaRepo, records, servers, store } = yield* start()
        const created_at = "2026-01-01T00:00:00.000Z"
        yield* store.write(quotaRepo.put({ name: "team", limits, created_at }))
        for (const id of keys)
          yield* store.write(
            keyRepo.insert({
              id,
              name: id,
              scope: "Operator",
              quota: "team",
              hash: id,
              created_at,
              expires_at: null,
              revoked_at: null
            })
          )
        const as = (key_id: string) =>
          Effect.provideService(CurrentPrincipal, {
            key_id,
            name: key_id,
            scope: "Operator",
            rights: new Set(["read", "change", "create", "delete"] as const),
            // An earlier copy of the limits: the row decides.
            quotas: [{ name: "team", max_servers: 100 }]
          } satisfies Principal)
        // Of a key without the quota: does not count.
        yield* servers
          .create(request({ blueprint_id: "large" }))
          .pipe(
            Effect.provideService(CurrentPrincipal, { key_id: "key_other", name: "x", scope: "Operator" })
          )
        const own = Effect.map(records, (all) =>
          all.filter(({ created_by }) => keys.some((key) => key === created_by))
        )
        const sums = Effect.map(own, (all): QuotaLimits => {
          const sumOf = (limit: "memory_limit" | "cpu_limit" | "disk_space") =>
            all.reduce((sum, { definition }) => sum + (definition.limits[limit] ?? 0), 0)
          return {
            max_servers: all.length,
            max_memory: sumOf("memory_limit"),
            max_cpu: sumOf("cpu_limit"),
            max_disk: sumOf("disk_space")
          }
        })
        const fits = (sum: QuotaLimits, added: Limits) =>
          counted.every(
            ([max, limit]) =>
              (added[limit] ?? 0) > 0 && (sum[max] ?? 0) + (added[limit] ?? 0) <= (limits[max] ?? 0)
          )
        const property = fc.asyncProperty(rounds, (all) =>
          Effect.runPromise(
            Effect.gen(function* () {
              for (const round of all) {
                const before = yield* own
                yield* Effect.forEach(
                  round,
                  ([key, asked]) => {
                    if (asked.do === "create")
                      return Effect.result(
                        as(key)(servers.create(request({ blueprint_id: asked.blueprint })))
                      )
                    const server = before[asked.server % Math.max(1, before.length)]
                    if (server === undefined) return Effect.void
                    return asked.do === "remove"
                      ? Effect.result(servers.remove(server.id, { force: true }))
                      : Effect.result(
                          as(key)(
                            servers.upgrade(server.id, { dry_run: false, blueprint_id: asked.blueprint })
                          )
                        )
                  },
                  { concurrency: "unbounded", discard: true }
                )
                const sum = yield* sums
                for (const max of ["max_servers", "max_memory", "max_cpu", "max_disk"] as const)
                  assert.isAtMost(sum[max] ?? 0, limits[max] ?? 0, max)
                for (const { id } of yield* own) yield* becomes(id, "offline")
              }
              const sum: QuotaLimits = yield* sums
              const next = yield* Effect.result(
                as("key_a")(servers.create(request({ blueprint_id: "small" })))
              )
              const isFree = (sum.max_servers ?? 0) < 4 && fits(sum, blueprints.small ?? {})
              assert.strictEqual(Result.isSuccess(next), isFree)
              for (const { id } of yield* own) yield* servers.remove(id, { force: true })
            })
          )
        )
        yield* Effect.tryPromise(() => fc.assert(property, { numRuns: 12, endOnFailure: true }))
      }).pipe(runHarness)
  )
})
