import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { pageNumber, pageSize, paginated } from "../../../src/contract/domain/Pagination.ts"

const bounds = { standard: 50, fallback: 20, maximum: 1000 }

describe("spec 4.1: pages", () => {
  it("a page below 1 or not a number is page 1", () => {
    for (const text of [undefined, "", "0", "-3", "x", "1.5", "NaN", "1e3", " 2"])
      assert.strictEqual(pageNumber(text), 1)
    assert.strictEqual(pageNumber("7"), 7)
    assert.strictEqual(pageNumber("9".repeat(40)), Number.MAX_SAFE_INTEGER)
  })

  it("a limit is 50 when absent, 20 when below 1 or not a number, at most 1,000", () => {
    assert.strictEqual(pageSize(undefined, bounds), 50)
    for (const text of ["", "0", "-1", "x", "2.5", "Infinity"]) assert.strictEqual(pageSize(text, bounds), 20)
    for (const text of ["1001", "9".repeat(40)]) assert.strictEqual(pageSize(text, bounds), 1000)
    assert.strictEqual(pageSize("3", bounds), 3)
  })

  it("the pages of a list contain each item once, in order", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { maxLength: 60 }), fc.integer({ min: 1, max: 20 }), (all, per_page) => {
        const at = (page: number) =>
          paginated(
            { items: all.slice((page - 1) * per_page, page * per_page), total: all.length },
            { page, per_page }
          )
        const total_pages = at(1).meta.pagination.total_pages
        const pages = Array.from({ length: total_pages }, (_, index) => at(index + 1).data)
        assert.deepEqual(pages.flat(), all)
        assert.deepEqual(at(total_pages + 1).data, [])
        assert.isTrue(pages.every((page) => page.length > 0))
      })
    )
  })
})
