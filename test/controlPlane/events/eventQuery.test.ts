import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { parseEventQuery } from "../../../src/controlPlane/events/eventQuery.ts"

const parse = (query: string, lastEventId?: string) =>
  parseEventQuery(new URLSearchParams(query), lastEventId)

describe("spec 5.6: filters", () => {
  it.effect("without parameters, the stream is unfiltered and does not resume", () =>
    Effect.gen(function* () {
      for (const query of [
        "",
        "topics=&server_id=&blueprint_id=&cursor=",
        "topics=%20,,",
        "ticket=x&other=1"
      ]) {
        assert.deepStrictEqual(yield* parse(query, ""), { filter: {} })
      }
    })
  )

  it.effect("topics are comma-separated and may be repeated", () =>
    Effect.gen(function* () {
      const { filter } = yield* parse("topics=status,%20crash,&topics=deleted")
      assert.deepStrictEqual(filter, { topics: new Set(["status", "crash", "deleted"] as const) })
    })
  )

  it.effect("server_id and blueprint_id may be repeated", () =>
    Effect.gen(function* () {
      const { filter } = yield* parse("server_id=a&server_id=b&server_id=a&blueprint_id=c,d")
      assert.deepStrictEqual(filter, {
        serverIds: new Set([ServerId.make("a"), ServerId.make("b")]),
        blueprintIds: new Set(["c,d"])
      })
    })
  )

  it.effect("an unknown topic is refused by name", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(parse("topics=status,server:created"))
      assert.strictEqual(error._tag, "InvalidRequest")
      assert.strictEqual(
        error.detail,
        'query field topics: expected status, crash, deleted, install, stats, expiring, problem, operation, schedule, backup, got "server:created"'
      )
    })
  )
})

describe("spec 5.5: resume", () => {
  it.effect("the stream resumes from cursor or Last-Event-ID; Last-Event-ID takes precedence", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* parse("cursor=0")).cursor, 0)
      assert.strictEqual((yield* parse("cursor=17")).cursor, 17)
      assert.strictEqual((yield* parse("", "18")).cursor, 18)
      assert.strictEqual((yield* parse("cursor=17", "18")).cursor, 18)
    })
  )

  it.effect("a cursor that is not an integer is refused", () =>
    Effect.gen(function* () {
      for (const cursor of ["-1", "1.5", "1e3", "abc", "0x10", "%201", "99999999999999999999"]) {
        const error = yield* Effect.flip(parse(`cursor=${cursor}`))
        assert.strictEqual(error.detail, "cursor: expected a whole number of at least 0, or now")
      }
      const error = yield* Effect.flip(parse("cursor=1", "x"))
      assert.strictEqual(error.detail, "Last-Event-ID: expected a whole number of at least 0")
      assert.strictEqual(
        (yield* Effect.flip(parse("cursor=1&cursor=2"))).detail,
        "cursor: given more than once"
      )
    })
  )
})

describe("spec 5.5: cursor=now, include and opt-in topics", () => {
  it.effect("cursor=now is the current position; Last-Event-ID takes precedence and is a number", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* parse("cursor=now")).cursor, "now")
      assert.strictEqual((yield* parse("cursor=now", "18")).cursor, 18)
      const error = yield* Effect.flip(parse("", "now"))
      assert.strictEqual(error.detail, "Last-Event-ID: expected a whole number of at least 0")
    })
  )

  it.effect("include is comma-separated and may be repeated; an unknown field is refused by name", () =>
    Effect.gen(function* () {
      const both = new Set(["server", "time"] as const)
      assert.deepStrictEqual((yield* parse("include=server,%20time")).include, both)
      assert.deepStrictEqual((yield* parse("include=server&include=time,")).include, both)
      assert.isUndefined((yield* parse("include=")).include)
      const error = yield* Effect.flip(parse("include=server,status"))
      assert.strictEqual(error._tag, "InvalidRequest")
      assert.strictEqual(error.detail, 'query field include: expected server, time, got "status"')
    })
  )

  it.effect("interval is a number of seconds from 1 to 60, and only for the topic stats", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* parse("topics=stats&interval=1")).filter.interval, 1)
      assert.strictEqual((yield* parse("topics=status,stats&interval=60")).filter.interval, 60)
      assert.isUndefined((yield* parse("topics=stats&interval=")).filter.interval)
      for (const [query, detail] of [
        ["topics=stats&interval=0", "query field interval: expected a whole number from 1 to 60"],
        ["topics=stats&interval=61", "query field interval: expected a whole number from 1 to 60"],
        ["topics=stats&interval=1.5", "query field interval: expected a whole number from 1 to 60"],
        ["topics=stats&interval=5&interval=6", "query field interval: expected a whole number from 1 to 60"],
        ["interval=5", "query field interval: only the topic stats has an interval"],
        ["topics=install&interval=5", "query field interval: only the topic stats has an interval"]
      ] as const) {
        const error = yield* Effect.flip(parse(query))
        assert.strictEqual(error._tag === "InvalidRequest" && error.detail, detail)
      }
    })
  )

  it.effect("topics may name an opt-in topic", () =>
    Effect.gen(function* () {
      const { filter } = yield* parse("topics=install,crash")
      assert.deepStrictEqual(filter, { topics: new Set(["install", "crash"] as const) })
    })
  )
})
