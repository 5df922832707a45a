import { describe, expect, it } from "@effect/vitest"
import fc from "fast-check"
import { ServerId } from "../../../src/domain/Id.ts"
import { type Place, ServerOrder } from "../../../src/servers/index/ServerOrder.ts"

/** Some servers share their time of creation. */
const place = (id: string): Place => ({
  id: ServerId.make(id),
  created_at: `2026-01-0${"hgfedcba".indexOf(id) >> 1}`
})
const byCreation = (one: Place, other: Place) =>
  `${one.created_at} ${one.id}` < `${other.created_at} ${other.id}` ? -1 : 1
const idsOf = (places: ReadonlyArray<Place>) => places.map(({ id }) => id)
const orderOf = () =>
  new ServerOrder(
    (id) => place(id).created_at,
    (id) => "adg".includes(id)
  )
const letters = fc.constantFrom(..."abcdefgh")

describe("spec 3.1: one order on every replica", () => {
  it("any history of the same servers leads to the same chunks, each of which ends with its server", () =>
    fc.assert(
      fc.property(fc.array(letters), letters, (steps, after) => {
        const [order, present] = [orderOf(), new Set<string>()]
        for (const id of steps) {
          if (present.delete(id)) order.remove(place(id))
          else {
            order.add(place(id))
            present.add(id)
          }
        }
        const sorted = [...present].map(place).toSorted(byCreation)
        const [fresh, seen] = [orderOf(), place(after)]
        for (const one of sorted) fresh.add(one)
        expect(order.chunks).toEqual(fresh.chunks)
        expect(order.ids).toEqual(idsOf(sorted))
        for (const chunk of order.chunks.slice(0, -1)) expect("adg").toContain(chunk.at(-1))
        for (const one of sorted) expect(order.chunkOf(one)).toContain(one.id)
        const rest: Array<string> = []
        for (let next = order.after(seen); next.length > 0; next = order.after(place(rest.at(-1) ?? "")))
          rest.push(...next)
        expect(rest).toEqual(idsOf(sorted.filter((one) => byCreation(seen, one) < 0 && one.id !== seen.id)))
      })
    ))

  it("a change replaces its chunk only", () => {
    const order = orderOf()
    for (const id of "abcdefgh") order.add(place(id))
    const before = [...order.chunks]
    order.remove(place("c"))
    order.add(place("c"))
    expect(order.chunks.filter((chunk) => !before.includes(chunk))).toHaveLength(1)
  })
})
