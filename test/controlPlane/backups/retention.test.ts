import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { KeepRule } from "../../../src/contract/domain/BackupTarget.ts"
import { surplus } from "../../../src/controlPlane/backups/retention.ts"

interface Made {
  readonly id: string
  readonly created_at: string
  readonly pinned: boolean
  readonly expires_at: string | null
  readonly state: "done" | "failed"
}

const HOUR = 3600 * 1000

const made = (at: string | number, more: Partial<Made> = {}): Made => {
  const created_at = new Date(at).toISOString()
  return { id: created_at, created_at, pinned: false, expires_at: null, state: "done", ...more }
}

/** Makes the backups one after the other, and applies the rule after each. */
const kept = (all: ReadonlyArray<Made>, keep: KeepRule): ReadonlyArray<Made> => {
  let now: ReadonlyArray<Made> = []
  for (const next of all) {
    const before = [...now, next]
    const gone = new Set(surplus(before, keep))
    now = before.filter((backup) => !gone.has(backup))
  }
  return now
}

const timesOf = (backups: ReadonlyArray<Made>) =>
  backups.map(({ created_at }) => created_at.slice(0, 16)).toSorted()

const rule = { last: 5, hourly: 24, daily: 7, weekly: 4, monthly: 6 }
const year = Array.from({ length: 365 * 24 }, (_, hour) => made(Date.UTC(2026, 0, 1) + hour * HOUR))

/** 2026-12-31 is a Thursday. */
const table = [
  ...["07-31T23:00", "08-31T23:00", "09-30T23:00", "10-31T23:00", "11-30T23:00"],
  // Sundays.
  ...["12-13T23:00", "12-20T23:00"],
  // The 27th is a Sunday, too.
  ...["12-25T23:00", "12-26T23:00", "12-27T23:00", "12-28T23:00", "12-29T23:00", "12-30T23:00"],
  ...Array.from({ length: 24 }, (_, hour) => `12-31T${String(hour).padStart(2, "0")}:00`)
].map((time) => `2026-${time}`)

const keepRules = fc.record(
  Object.fromEntries(Object.keys(rule).map((name) => [name, fc.integer({ min: 0, max: 4 })])),
  { requiredKeys: [] }
)
const histories = fc.uniqueArray(
  fc.record({
    at: fc.integer({ min: 0, max: 500 * 24 }),
    pinned: fc.boolean(),
    expires: fc.boolean(),
    failed: fc.boolean()
  }),
  { selector: ({ at }) => at, maxLength: 60 }
)

describe("spec 12.8: how many backups stay", () => {
  it("a year of hourly backups leaves those of the table", () => {
    assert.deepStrictEqual(timesOf(kept(year, rule)), table)
  })

  it("a clock that jumps forward and back removes no more than one backup more of each span", () => {
    const future = made("2031-06-01T00:00:00Z")
    const jumped = kept([...year, future], rule)
    assert.deepStrictEqual(
      table.filter((time) => !timesOf(jumped).includes(time)),
      ["2026-07-31T23:00", "2026-12-13T23:00", "2026-12-25T23:00", "2026-12-31T00:00"]
    )
    const later = kept([...year, future, made("2027-01-01T00:00:00Z")], rule)
    assert.include(timesOf(later), "2027-01-01T00:00")
    assert.isAbove(later.length, 30)
  })

  it("pinned ones, those with an expiry, failed ones and the newest good one always stay", () => {
    fc.assert(
      fc.property(histories, keepRules, (history, keep) => {
        const all = history.map(({ at, expires, failed, pinned }) =>
          made(Date.UTC(2026, 0, 1) + at * HOUR, {
            pinned,
            expires_at: expires ? "2030-01-01T00:00:00Z" : null,
            state: failed ? "failed" : "done"
          })
        )
        const gone = surplus(all, keep)
        assert.isTrue(
          gone.every(({ expires_at, pinned, state }) => !pinned && expires_at === null && state === "done")
        )
        const newest = all
          .filter(({ expires_at, pinned, state }) => !pinned && expires_at === null && state === "done")
          .toSorted((a, b) => (a.created_at < b.created_at ? 1 : -1))
        if (newest[0] !== undefined) assert.notInclude(gone, newest[0])
        for (const recent of newest.slice(0, keep.last ?? 0)) assert.notInclude(gone, recent)
        // The rule is stable: what stays once stays again.
        assert.deepStrictEqual(
          surplus(
            all.filter((one) => !gone.includes(one)),
            keep
          ),
          []
        )
      })
    )
  })
})
