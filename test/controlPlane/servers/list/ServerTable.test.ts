import { describe, expect, it } from "@effect/vitest"
import * as fc from "fast-check"
import { restrictionOf } from "../../../../src/contract/domain/Key.ts"
import { type Includable, includable } from "../../../../src/contract/domain/Server.ts"
import { ServerTable } from "../../../../src/controlPlane/servers/list/ServerTable.ts"
import {
  type Include,
  includeOf,
  plain,
  summaryOf
} from "../../../../src/controlPlane/servers/list/summary.ts"
import { branded, plain as withPlainIds } from "../../../support/ids.ts"
import { record } from "../../../support/samples.ts"

const tableOf = (nameOf: (id: string) => string) => withPlainIds(new ServerTable(nameOf))
const everyServer = { labels: [] }
const idsOf = (table: ReturnType<typeof tableOf>) => [...table.after()].map(({ id }) => id)
const summaryIn = (table: ReturnType<typeof tableOf>, id: string, include: Include) =>
  JSON.parse(table.summary(id, include) ?? "null")
/** Runs all steps of a generator. */
const returned = <A>(steps: Iterator<unknown, A>): A => {
  const step = steps.next()
  return step.done === true ? step.value : returned(steps)
}

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
              table.put(record({ id, created_at: createdAt(id) }))
              expected.add(id)
            } else {
              table.remove(id)
              expected.delete(id)
            }
            const ids = [...expected].sort(byCreation)
            expect(idsOf(table)).toEqual(ids)
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
          table.put(
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
          for (const one of fresh) table.put(record({ id: one }))
        }
        expect(seen).toEqual([...new Set(seen)].sort())
        const changed = new Set([...removed, ...added])
        expect(seen.filter((id) => !changed.has(id))).toEqual(ids.filter((id) => !changed.has(id)))
      }),
      { numRuns: 20 }
    )
  })

  it("the last 10,000 deleted servers are known by their last facts, until they are here again", () => {
    const table = tableOf((id) => id)
    const ids = Array.from({ length: 10_001 }, (_, n) => `srv_${n}`)
    for (const id of ids) {
      table.put(record({ id, name: id }))
      table.remove(id)
    }
    expect(ids.filter((id) => table.nameOf(id) === undefined)).toEqual(["srv_0"])
    expect(table.latest("srv_1")?.id).toBe("srv_1")
    expect(table.factsOf("srv_1")?.labels).toEqual(record().labels)
    table.put(record({ id: "srv_1", name: "again" }))
    expect(table.nameOf("srv_1")).toBe("again")
  })

  it("a change keeps a server's place on its node; one that moves comes last", () => {
    const table = tableOf((id) => id)
    for (const id of ["a", "b", "c"]) table.put(record({ id }))
    table.put(record({ id: "a", status: "running" }))
    const onNode = () => table.onNode("n1").map(({ id }) => id)
    expect(onNode()).toEqual(["a", "b", "c"])
    table.put(record({ id: "b", node_id: "n2" }))
    expect(onNode()).toEqual(["a", "c"])
    table.put(record({ id: "b" }))
    expect(onNode()).toEqual(["a", "c", "b"])
  })

  it("the list shows the new display name of a node", () => {
    let name = "one"
    const table = tableOf((id) => (id === "n1" ? name : id))
    table.put(record({ id: "a" }))
    table.put(record({ id: "b", node_id: "n2" }))
    const names = () => idsOf(table).map((id) => summaryIn(table, id, plain).node_name)
    expect(names()).toEqual(["one", "n2"])
    name = "uno"
    expect(names()).toEqual(["uno", "n2"])
  })
})

describe("spec 3.12: outdated definitions", () => {
  it("after a reload every set of fields compares with the new files", () => {
    const table = tableOf(() => "one")
    table.put(record())
    const sets = [includeOf(["definition"]), includeOf(["definition", "status"])]
    const outdated = () => sets.map((include) => summaryIn(table, record().id, include).definition.outdated)
    table.compareWith({ revision: () => undefined })
    expect(outdated()).toEqual([false, false])
    table.compareWith({ revision: () => "other" })
    expect(outdated()).toEqual([true, true])
  })
})
