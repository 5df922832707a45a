import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import { nextTimes, type Times, timesOf } from "../../../src/shared/work/cronTimes.ts"

const MINUTE = 60_000
const begin = Date.UTC(2026, 0, 1)
const end = Date.UTC(2027, 0, 1)

const read = (cron: string, zone: string): Times =>
  Result.getOrElse(timesOf(cron, zone), (why) => assert.fail(`${cron}: ${why}`))

const between = ({ next }: Times, from: number, until: number, most = 1_000_000) => {
  const found: Array<number> = []
  let at = next(from)
  while (at !== undefined && at < until && found.length < most) {
    found.push(at)
    at = next(at)
  }
  return found
}

/** The times of a day and its night in UTC, `day hour:minute`. */
const shown = (times: ReadonlyArray<number>) => times.map((at) => new Date(at).toISOString().slice(5, 16))

const why = (cron: string, zone = "UTC") =>
  Result.match(timesOf(cron, zone), { onFailure: (reason) => reason, onSuccess: () => "" })

/** By zone and cron: the times around both changes of the clocks in 2026, written by hand. */
const table: ReadonlyArray<readonly [zone: string, cron: string, day: string, times: string]> = [
  // 2026-03-29: 02:00 becomes 03:00 (01:00Z). 2026-10-25: 03:00 becomes 02:00 (01:00Z).
  ["Europe/Berlin", "30 2 * * *", "03-28T12:00", "03-29T01:00 03-30T00:30"],
  ["Europe/Berlin", "0,30 2 * * *", "03-28T12:00", "03-29T01:00 03-30T00:00 03-30T00:30"],
  ["Europe/Berlin", "15 2-3 * * *", "03-28T12:00", "03-29T01:00 03-29T01:15 03-30T00:15"],
  ["Europe/Berlin", "0 3 * * *", "03-28T12:00", "03-29T01:00 03-30T01:00"],
  ["Europe/Berlin", "*/30 2 * * *", "03-28T12:00", "03-30T00:00 03-30T00:30"],
  ["Europe/Berlin", "*/30 * * * *", "03-29T00:00", "03-29T00:30 03-29T01:00 03-29T01:30 03-29T02:00"],
  ["Europe/Berlin", "30 2 * * *", "10-24T12:00", "10-25T00:30 10-26T01:30"],
  ["Europe/Berlin", "0,30 2 * * *", "10-24T12:00", "10-25T00:00 10-25T00:30 10-26T01:00"],
  ["Europe/Berlin", "0 3 * * *", "10-24T12:00", "10-25T02:00 10-26T02:00"],
  [
    "Europe/Berlin",
    "*/30 * * * *",
    "10-24T23:30",
    "10-25T00:00 10-25T00:30 10-25T01:00 10-25T01:30 10-25T02:00"
  ],
  ["Europe/Berlin", "*/30 2 * * *", "10-24T12:00", "10-25T00:00 10-25T00:30 10-25T01:00 10-25T01:30"],
  // 2026-03-08: 02:00 becomes 03:00 (07:00Z). 2026-11-01: 02:00 becomes 01:00 (06:00Z).
  ["America/New_York", "30 2 * * *", "03-07T12:00", "03-08T07:00 03-09T06:30"],
  ["America/New_York", "30 1 * * *", "03-07T12:00", "03-08T06:30 03-09T05:30"],
  ["America/New_York", "30 1 * * *", "10-31T12:00", "11-01T05:30 11-02T06:30"],
  ["America/New_York", "*/30 1 * * *", "10-31T12:00", "11-01T05:00 11-01T05:30 11-01T06:00 11-01T06:30"],
  // Half an hour. 2026-04-05: 02:00 becomes 01:30 (15:00Z the day before). 2026-10-04: 02:00 becomes 02:30 (15:30Z).
  ["Australia/Lord_Howe", "45 1 * * *", "04-04T12:00", "04-04T14:45 04-05T15:15"],
  [
    "Australia/Lord_Howe",
    "*/15 1 * * *",
    "04-04T12:00",
    "04-04T14:00 04-04T14:15 04-04T14:30 04-04T14:45 04-04T15:00 04-04T15:15 04-05T14:30"
  ],
  ["Australia/Lord_Howe", "15 2 * * *", "10-03T12:00", "10-03T15:30 10-04T15:15"],
  ["Australia/Lord_Howe", "30 2 * * *", "10-03T12:00", "10-03T15:30 10-04T15:30"],
  // The clocks never change; local time is 5:45 ahead.
  ["Asia/Kathmandu", "0 4 * * *", "03-28T12:00", "03-28T22:15 03-29T22:15"],
  ["Asia/Kathmandu", "*/20 * * * *", "01-01T00:00", "01-01T00:15 01-01T00:35 01-01T00:55"],
  ["UTC", "30 2 * * *", "03-28T12:00", "03-29T02:30 03-30T02:30"],
  ["UTC", "0 0 L * *", "01-15T00:00", "01-31T00:00 02-28T00:00 03-31T00:00"],
  ["UTC", "0 0 * * MON#2", "01-01T00:00", "01-12T00:00 02-09T00:00 03-09T00:00"],
  ["UTC", "0 0 * * 5L", "01-01T00:00", "01-30T00:00 02-27T00:00"],
  ["UTC", "0 9 1 JAN,jul *", "01-01T10:00", "07-01T09:00"],
  ["UTC", "0 9 * * mon-fri", "01-02T00:00", "01-02T09:00 01-05T09:00"],
  ["UTC", "0 0 1 * MON", "01-01T00:00", "01-05T00:00 01-12T00:00"]
]

describe("spec 13.3: times", () => {
  for (const [zone, cron, day, times] of table) {
    it(`${cron} in ${zone} after ${day}: ${times}`, () => {
      const expected = times.split(" ")
      const found = between(read(cron, zone), Date.parse(`2026-${day}:00Z`), Infinity, expected.length)
      assert.deepStrictEqual(shown(found), expected)
    })
  }

  it("a daily time runs 365 times in the year, whatever the clocks do; each hour has its real number", () => {
    const zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]
    for (const zone of zones) {
      // The year of the zone, whose length is that of the real one.
      const from = begin - read("0 0 * * *", zone).offset(begin) * 1000
      for (const cron of ["30 2 * * *", "30 1 * * *", "0 0 * * *"])
        assert.lengthOf(between(read(cron, zone), from - 1, from + end - begin), 365, `${zone} ${cron}`)
    }
    assert.lengthOf(between(read("0 * * * *", "Europe/Berlin"), begin - 1, end), 8760)
    // In half an hour that exists twice, no full hour does.
    assert.lengthOf(between(read("0 * * * *", "Australia/Lord_Howe"), begin - 1, end), 8759)
  })

  it("six fields, other dialects and unknown zones are refused, and the reason says what is expected", () => {
    assert.match(why("0 0 4 * * *"), /^it has six fields\. Expected five fields.*Leave the seconds out\.$/)
    assert.match(why("@daily"), /^it has one field\./)
    for (const cron of [
      "0 0 15W * *",
      "0 0 ? * *",
      "0 0 1 * +MON",
      "60 * * * *",
      "/5 * * * *",
      "H * * * *",
      ""
    ])
      assert.notStrictEqual(why(cron), "", cron)
    assert.match(why("0 0 32 * *"), /^expected .* a day from 1 to 31, .*: 0 0 32 \* \*$/)
    assert.match(why("0 0 * 0 *"), /^expected .* a month from 1 to 12, /)
    assert.strictEqual(why("0 0 * * WED"), "")
    for (const zone of ["Europe/Atlantis", "+02:00", ""])
      assert.match(why("0 4 * * *", zone), /^no time zone has this name/)
  })

  it("a cron without a next time has none", () => {
    assert.isUndefined(read("0 0 30 2 *", "UTC").next(begin))
    assert.strictEqual(shown([read("0 0 29 2 *", "UTC").next(begin) ?? 0])[0], "02-29T00:00")
  })

  it("a note says where the clocks change", () => {
    const notes = nextTimes(read("30 2 * * *", "Europe/Berlin"), Date.parse("2026-03-27T12:00:00Z"), 3)
    assert.deepStrictEqual(
      notes.map(({ note }) => note),
      [undefined, "the clocks go forward by 60 min, from UTC+01:00 to UTC+02:00", undefined]
    )
    const [back] = nextTimes(read("0 4 * * *", "America/St_Johns"), Date.parse("2026-10-31T12:00:00Z"), 1)
    assert.strictEqual(back?.note, "the clocks go back by 60 min, from UTC-02:30 to UTC-03:30")
  })
})

/** The local times of every minute around the changes of the clocks in a zone, from the platform. */
const minutesOf = (zone: string, from: number, until: number): ReadonlyArray<number> => {
  const { offset } = read("* * * * *", zone)
  return Array.from({ length: (until - from) / MINUTE }, (_, n) => {
    const at = from + n * MINUTE
    return at + offset(at) * 1000
  })
}

type Field = { readonly text: string; readonly has: (value: number) => boolean }

const field = (low: number, high: number): fc.Arbitrary<Field> => {
  const value = fc.integer({ min: low, max: high })
  return fc.oneof(
    fc.constant({ text: "*", has: () => true }),
    value.map((one) => ({ text: String(one), has: (given: number) => given === one })),
    fc.tuple(value, value).map(([one, other]) => ({
      text: `${one},${other}`,
      has: (given: number) => given === one || given === other
    })),
    fc.tuple(value, value).map(([one, other]) => {
      const [first, last] = [Math.min(one, other), Math.max(one, other)]
      return { text: `${first}-${last}`, has: (given: number) => given >= first && given <= last }
    }),
    fc.integer({ min: 2, max: Math.min(20, high - low) }).map((step) => ({
      text: `*/${step}`,
      has: (given: number) => (given - low) % step === 0
    }))
  )
}

const changes: ReadonlyArray<readonly [string, string]> = [
  ["Europe/Berlin", "2026-03-29"],
  ["Europe/Berlin", "2026-10-25"],
  ["America/New_York", "2026-03-08"],
  ["America/New_York", "2026-11-01"],
  ["Australia/Lord_Howe", "2026-04-04"],
  ["Australia/Lord_Howe", "2026-10-03"],
  ["Africa/Cairo", "2026-04-23"],
  ["Africa/Cairo", "2026-10-29"],
  ["America/Havana", "2026-03-08"],
  ["Asia/Kathmandu", "2026-03-29"]
]

describe("spec 13.3: any cron around a change of the clocks", () => {
  it("runs at the real minutes that the rules name", () => {
    const crons = fc.record({
      change: fc.constantFrom(...changes),
      minute: field(0, 59),
      hour: field(0, 4),
      weekday: fc.oneof(fc.constant({ text: "*", has: () => true }), field(0, 6))
    })
    fc.assert(
      fc.property(crons, ({ change: [zone, day], hour, minute, weekday }) => {
        const from = Date.parse(`${day}T00:00:00Z`) - 24 * 60 * MINUTE
        const until = from + 72 * 60 * MINUTE
        const matches = (local: number) => {
          const date = new Date(local)
          return (
            minute.has(date.getUTCMinutes()) && hour.has(date.getUTCHours()) && weekday.has(date.getUTCDay())
          )
        }
        const cron = `${minute.text} ${hour.text} * * ${weekday.text}`
        const times = read(cron, zone)
        const local = minutesOf(zone, from, until)
        let newest = (local[0] ?? 0) - MINUTE
        const expected = local.flatMap((now, n) => {
          const missing = Array.from(
            { length: Math.max(0, (now - newest) / MINUTE - 1) },
            (_, m) => now - (m + 1) * MINUTE
          )
          const repeats = now <= newest
          newest = Math.max(newest, now)
          const isDue = times.isFixed ? !repeats && [now, ...missing].some(matches) : matches(now)
          return isDue ? [from + n * MINUTE] : []
        })
        assert.deepStrictEqual(shown(between(times, from - 1, until)), shown(expected), `${cron} ${zone}`)
      }),
      { numRuns: 40 }
    )
  })
})
