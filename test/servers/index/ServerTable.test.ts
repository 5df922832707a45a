import { createHash } from "node:crypto"
import { describe, expect, it, vi } from "@effect/vitest"
import * as fc from "fast-check"
import type { SplitBody } from "../../../src/api/SplitBody.ts"
import { restrictionOf } from "../../../src/domain/KeyLimits.ts"
import { type Includable, includable } from "../../../src/domain/Server.ts"
import { everyServer } from "../../../src/servers/index/ServerFilter.ts"
import { ServerTable } from "../../../src/servers/index/ServerTable.ts"
import { SummaryCache } from "../../../src/servers/index/SummaryCache.ts"
import { includeOf, plain, summaryOf } from "../../../src/servers/index/summary.ts"
import { branded, plain as withPlainIds } from "../../support/ids.ts"
import { record } from "../../support/samples.ts"

const tableOf = (nameOf: (id: string) => string, cache?: SummaryCache) =>
  withPlainIds(new ServerTable(nameOf, cache))
const parse = (read: { readonly body: string | SplitBody } | undefined) => {
  const { body = "" } = read ?? {}
  return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body.joined()))
}
/** Runs all steps of a generator. */
const returned = <A>(steps: Iterator<unknown, A>): A => {
  const step = steps.next()
  return step.done === true ? step.value : returned(steps)
}
const all = includeOf(["status", "limits", "software"])
const at = { updated_at: "2026-02-01T00:00:00.000Z" }

describe("spec 3.1: the summary", () => {
  it("the summary has exactly the fields of the contract, and overrides only if there are any", () => {
    expect(Object.keys(summaryOf(record(), "one", plain))).toEqual([
      "id",
      "blueprint_id",
      "node_name",
      "node_id",
      "allocations"
    ])
    expect(summaryOf(record({ overrides: {} }), "one", plain)).not.toHaveProperty("overrides")
    expect(summaryOf(record({ overrides: { save: false } }), "one", plain).overrides).toEqual({ save: false })
  })

  it("the summary has the fields that include names", () => {
    const added = (...include: ReadonlyArray<Includable>) =>
      Object.keys(summaryOf(record(), "one", includeOf(include))).slice(5)
    const more = ["software", "stats", "definition"]
    for (const name of includable.filter((name) => !more.includes(name))) {
      expect(added(name)).toEqual([name, "created_at"])
    }
    expect(added("software")).toEqual(["software", "version", "image", "created_at"])
    expect(added("software", "limits", "status")).toEqual([
      "status",
      "limits",
      "software",
      "version",
      "image",
      "created_at"
    ])
  })
})

/** Some servers share their time of creation. */
const createdAt = (id: string) => `2026-01-0${"hgfedcba".indexOf(id) >> 1}T00:00:00.000Z`
const byCreation = (one: string, other: string) =>
  `${createdAt(one)} ${one}` < `${createdAt(other)} ${other}` ? -1 : one === other ? 0 : 1

describe("spec 3.1: the list", () => {
  it("the list is sorted by creation, then id, for any order of creations and removals, and may be empty", () =>
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.constantFrom(..."abcdefgh"), fc.boolean())),
        fc.nat({ max: 3 }),
        (steps, after) => {
          const table = tableOf((id) => id)
          const expected = new Set<string>()
          for (const [id, keep] of steps) {
            if (keep) {
              table.add(record({ id, created_at: createdAt(id) }))
              expected.add(id)
            } else {
              table.remove(id)
              expected.delete(id)
            }
            const ids = [...expected].sort(byCreation)
            expect(table.ids).toEqual(ids)
            expect(parse(table.list(all)).map((server: { id: string }) => server.id)).toEqual(ids)
            expect(table.onNode("n1").length).toBe(ids.length)
            expect(table.counts.get("offline")).toBe(ids.length)
          }
          const ids = [...expected].sort(byCreation)
          const from = steps[after]?.[0]
          const page = returned(
            table.select({ filter: everyServer, limit: 2, ...(from === undefined ? {} : { after: from }) })
          )
          if (from !== undefined && !steps.some(([id, keep]) => id === from && keep)) {
            expect(page).toBeUndefined()
            return
          }
          const rest = from === undefined ? ids : ids.filter((id) => byCreation(id, from) > 0)
          expect(page?.ids).toEqual(rest.slice(0, 2))
          expect(page?.next).toBe(rest.length > 2 ? rest[1] : undefined)
        }
      )
    ))

  it("spec 6.3: for any limits of a key, its list is the filtered list of all servers, page by page", () => {
    const oneOf = fc.constantFrom("a", "b")
    const labels = fc.dictionary(oneOf, oneOf, { maxKeys: 2 })
    const some = fc.array(oneOf, { minLength: 1, maxLength: 2 })
    const limits = fc.record(
      { servers: fc.subarray([..."abcdefgh"], { minLength: 1 }), blueprints: some, labels },
      { requiredKeys: [] }
    )
    const servers = fc.array(fc.record({ blueprint_id: oneOf, labels }), { minLength: 1, maxLength: 8 })
    fc.assert(
      fc.property(servers, limits, fc.integer({ min: 1, max: 3 }), (made, chosen, limit) => {
        const table = tableOf((id) => id)
        for (const [at, fields] of made.entries())
          table.add(
            record({ ...fields, id: "abcdefgh"[at] ?? "", created_at: createdAt("abcdefgh"[at] ?? "") })
          )
        const may = ({ blueprint_id, id, labels }: ReturnType<typeof record>) =>
          (chosen.servers?.includes(id) ?? true) &&
          (chosen.blueprints?.some((one) => one === blueprint_id) ?? true) &&
          Object.entries(chosen.labels ?? {}).every(([key, value]) => labels[key] === value)
        const wanted = [...table.after()].filter(may).map(({ id }) => id)
        const within = restrictionOf(branded(chosen))
        const filter = within === undefined ? everyServer : { ...everyServer, within }
        const seen: Array<string> = []
        for (let after: string | undefined, first = true; first || after !== undefined; first = false) {
          const page = returned(table.select({ filter, limit, ...(after === undefined ? {} : { after }) }))
          seen.push(...(page?.ids ?? []))
          after = page?.next
        }
        expect(seen).toEqual(wanted)
        expect(table.withPrefix("", 9, within).toSorted()).toEqual(wanted.toSorted())
        for (const { id } of [...table.after()].filter((one) => !may(one))) {
          expect(returned(table.select({ filter, after: id }))).toBeUndefined()
          expect(table.withPrefix(id, 9, within)).toEqual([])
        }
      })
    )
  })

  it("a list that is read in steps has each server once that is there all the time, in order", () => {
    const ids = Array.from({ length: 1000 }, (_, n) => `srv_${n}`).sort()
    const some = fc.uniqueArray(fc.constantFrom(...ids), { minLength: 1, maxLength: 300 })
    fc.assert(
      fc.property(some, some, fc.nat({ max: 700 }), (removed, added, step) => {
        const table = tableOf((id) => id)
        const fresh = added.filter((id) => !removed.includes(id))
        table.load(ids.filter((id) => !fresh.includes(id)).map((id) => record({ id })))
        const seen: Array<string> = []
        for (const { id } of table.after()) {
          if (seen.push(id) !== step) continue
          for (const one of removed) table.remove(one)
          for (const one of fresh) table.add(record({ id: one }))
        }
        expect(seen).toEqual([...new Set(seen)].sort())
        const changed = new Set([...removed, ...added])
        expect(seen.filter((id) => !changed.has(id))).toEqual(ids.filter((id) => !changed.has(id)))
      }),
      { numRuns: 20 }
    )
  })

  it("the list is the same buffer until a change, and unchanged servers are not encoded again", () => {
    const stringify = vi.spyOn(JSON, "stringify")
    const table = tableOf((id) => id)
    for (let n = 0; n < 1000; n++) table.add(record({ id: `srv_${n}` }))
    const first = table.list(all)
    expect(stringify).toHaveBeenCalledTimes(1000)
    expect(table.list(all)).toBe(first)
    table.update("srv_7", { status: "running", ...at })
    const second = table.list(all)
    expect(second).not.toBe(first)
    expect(stringify).toHaveBeenCalledTimes(1001)
    expect(parse(table.summary("srv_7", all)).status).toBe("running")
    stringify.mockRestore()
  })

  it("a change of a field that a variant does not show keeps its bytes", () => {
    const table = tableOf((id) => id)
    table.add(record({ id: "a" }))
    const before = table.list(plain)
    table.update("a", { status: "running", install: { phase: "ready" }, start_pending: true, ...at })
    expect(table.list(plain)).toBe(before)
    expect(table.get("a")?.start_pending).toBe(true)
  })

  it("the list shows the new display name of a node", () => {
    let name = "one"
    const table = tableOf((id) => (id === "n1" ? name : id))
    table.add(record({ id: "a" }))
    table.add(record({ id: "b", node_id: "n2" }))
    const names = () => parse(table.list(plain)).map((server: { node_name: string }) => server.node_name)
    expect(names()).toEqual(["one", "n2"])
    const before = table.list(plain)
    table.rename("n1")
    expect(table.list(plain)).toBe(before)
    name = "uno"
    table.rename("n1")
    expect(names()).toEqual(["uno", "n2"])
  })
})

describe("spec 3.12: outdated definitions", () => {
  it("after a reload every set of fields compares with the new files", () => {
    const table = tableOf(() => "one")
    table.add(record())
    const sets = [includeOf(["definition"]), includeOf(["definition", "status"])]
    const outdated = () => sets.map((include) => parse(table.list(include))[0].definition.outdated)
    table.compareWith({ revision: () => undefined })
    expect(outdated()).toEqual([false, false])
    table.compareWith({ revision: () => "other" })
    expect(outdated()).toEqual([true, true])
  })
})

describe("design, Reads: what is kept encoded is bounded in bytes", () => {
  const idOf = (n: number) => createHash("sha1").update(String(n)).digest("hex")
  const servers = Array.from({ length: 1000 }, (_, n) => record({ id: idOf(n) }))
  const sets = [["status"], ["limits"], ["labels"]] as const
  const [first = plain, second = plain, third = plain] = sets.map((names) => includeOf(names))
  const filled = (budget: number) => {
    const cache = new SummaryCache(budget)
    const table = tableOf((id) => id, cache)
    for (const one of servers) table.add(one)
    return { cache, table }
  }
  const sizeOfList = filled(Number.POSITIVE_INFINITY).table.list(first).body.length

  it("lists share the bound; the set that was not used for the longest time is dropped", () => {
    const budget = 3 * sizeOfList
    const { cache, table } = filled(budget)
    const [one, two] = [table.list(first), table.list(second)]
    expect(table.list(first)).toBe(one)
    table.list(third)
    expect(cache.bytes).toBeLessThanOrEqual(budget)
    expect(table.missing(first).size).toBe(0)
    expect(table.missing(second).size).toBeGreaterThan(0)
    expect(table.list(second)).not.toBe(two)
    expect(table.list(second).etag).toBe(two.etag)
  })

  it("a set beyond the bound keeps what fits of its list, which is complete and not compressed", () => {
    const budget = sizeOfList / 2
    const { cache, table } = filled(budget)
    const expected = filled(Number.POSITIVE_INFINITY).table
    const change = (of: typeof table) => of.update(idOf(7), { status: "running", ...at })
    for (const step of [() => {}, change]) {
      step(table)
      step(expected)
      const list = table.list(first)
      expect(list.etag).toBe(expected.list(first).etag)
      expect(list.body.joined()).toEqual(expected.list(first).body.joined())
      expect(list.gzip).toBeUndefined()
      expect(cache.bytes).toBeLessThanOrEqual(budget)
      expect(cache.bytes).toBeGreaterThan(0)
    }
  })

  it("single summaries are dropped before lists", () => {
    const budget = sizeOfList + 10_000
    const { cache, table } = filled(budget)
    table.list(first)
    for (const { id } of servers) table.summary(id, first)
    expect(cache.bytes).toBeLessThanOrEqual(budget)
    expect(cache.bytes).toBeGreaterThan(sizeOfList - 10)
    table.update(idOf(7), { status: "running", ...at })
    expect([...table.missing(first).values()]).toEqual([[idOf(7)]])
  })

  it("a list in the making stays while others are used, and shows what changes meanwhile", () => {
    const { table } = filled(1.5 * sizeOfList)
    table.list(second)
    for (const _ of table.prepare(table.missing(first), first)) table.list(second)
    expect(table.missing(first).size).toBe(0)
    table.update(idOf(7), { status: "running", ...at })
    expect([...table.missing(first).values()]).toEqual([[idOf(7)]])
    const shown: ReadonlyArray<{ id: string; status: string }> = parse(table.list(first))
    expect(shown.find(({ id }) => id === idOf(7))?.status).toBe("running")
  })
})
