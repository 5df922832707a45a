import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Metric, type Pull, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { NodeId, ServerId } from "../../../src/contract/domain/Id.ts"
import type { Server } from "../../../src/contract/domain/Server.ts"
import type { EncodedEvent } from "../../../src/controlPlane/events/EncodedEvent.ts"
import { EventHub, type Subscription } from "../../../src/controlPlane/events/EventHub.ts"
import { LiveFeed, type LiveNews } from "../../../src/controlPlane/events/LiveFeed.ts"
import { eventLag, subscribersCutOff } from "../../../src/shared/observability/metrics.ts"
import { plain } from "../../support/ids.ts"
import { eventsOf } from "./eventsOf.ts"
import { internal, MemoryJournal, status, statuses } from "./MemoryJournal.ts"

const hub = (options: { readonly batches?: number; readonly replayPage?: number } = {}) =>
  EventHub.layer(options).pipe(Layer.provideMerge(MemoryJournal.layer))

const cursors = (events: ReadonlyArray<EncodedEvent>) => events.map((event) => event.cursor)
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)
const collect = (subscription: Subscription, count: number) =>
  Effect.map(Stream.runCollect(Stream.take(eventsOf(subscription), count)), cursors)
/** Pulls chunks until `count` events have arrived. */
const pullUpTo = Effect.fnUntraced(function* (
  pull: Pull.Pull<ReadonlyArray<EncodedEvent>, unknown>,
  count: number
) {
  const got: Array<number> = []
  while (got.length < count) got.push(...cursors(yield* pull))
  return got
})
/** `too slow`, or the cursors of all events. */
const outcome = (subscription: Subscription) =>
  Stream.runCollect(eventsOf(subscription)).pipe(
    Effect.map(cursors),
    Effect.catchTag("SubscriberTooSlow", () => Effect.succeed("too slow"))
  )

describe("spec 5.2: one total order, no gap", () => {
  it.effect("a subscriber receives every event published after its subscription", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(2))
      const subscription = yield* subscribe({ filter: {} })
      yield* journal.append([status("a"), internal("a"), status("b")])
      yield* journal.append([status("c")])
      assert.deepStrictEqual(yield* collect(subscription, 3), [3, 5, 6])
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("a large commit arrives whole and disconnects no subscriber that keeps up", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const subscription = yield* subscribe({ filter: {} })
      const reader = yield* Effect.forkChild(collect(subscription, 5000), { startImmediately: true })
      yield* journal.append(statuses(5000))
      assert.deepStrictEqual(yield* Fiber.join(reader), range(1, 5000))
    }).pipe(Effect.scoped, Effect.provide(hub({ batches: 4 })))
  )

  it.effect("a filter that fails ends its own stream only", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const mayRead = (): never => {
        throw new Error("a defect")
      }
      const failing = yield* subscribe({ filter: { mayRead } })
      const other = yield* subscribe({ filter: {} })
      yield* journal.append(statuses(1))
      assert.isTrue(Exit.hasDies(yield* Effect.exit(collect(failing, 1))))
      assert.deepStrictEqual(yield* collect(other, 1), [1])
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("the events of one turn arrive together, and subscribers with the same filter share them", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const filter = { topics: new Set(["status" as const]) }
      const subscriptions = [yield* subscribe({ filter }), yield* subscribe({ filter: { ...filter } })]
      const pulls = yield* Effect.forEach(subscriptions, ({ events }) => Stream.toPull(events))
      yield* Effect.forkChild(journal.append([status("s1"), status("s2")]), { startImmediately: true })
      const [[delivery] = [], [same] = []] = yield* Effect.all(pulls)
      assert.deepStrictEqual(delivery === "beat" ? [] : cursors(delivery ?? []), [1, 2])
      assert.strictEqual(same, delivery)
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("an interrupted publisher withholds no event from the subscribers", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const subscription = yield* subscribe({ filter: {} })
      const writer = yield* Effect.forkChild(journal.append(statuses(2000)), { startImmediately: true })
      const pull = yield* Stream.toPull(eventsOf(subscription))
      const first = cursors(yield* pull)
      assert.isBelow(first.length, 2000)
      yield* Fiber.interrupt(writer)
      yield* journal.append([status("last")])
      assert.deepStrictEqual([...first, ...(yield* pullUpTo(pull, 2001 - first.length))], range(1, 2001))
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )
})

describe("spec 5.6: filters", () => {
  it.effect("each field filters live events and the replay alike", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = plain(yield* MemoryJournal)
      const filter = {
        topics: new Set(["deleted" as const]),
        serverIds: new Set([ServerId.make("a"), ServerId.make("b")]),
        blueprintIds: new Set(["one"])
      }
      const live = yield* subscribe({ filter })
      yield* journal.append([status("a"), { topic: "deleted", server_id: "a", payload: null }], "one")
      yield* journal.append([{ topic: "deleted", server_id: "a", payload: null }], "other")
      yield* journal.append(
        [
          { topic: "deleted", server_id: "c", payload: null },
          { topic: "deleted", server_id: "b", payload: null }
        ],
        "one"
      )
      assert.deepStrictEqual(yield* collect(live, 2), [2, 5])
      const replayed = yield* subscribe({ filter, cursor: 0 })
      assert.deepStrictEqual(yield* collect(replayed, 2), [2, 5])
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )
})

describe("spec 5.2: slow subscribers", () => {
  it.effect(
    "a slow subscriber is disconnected at its bound; other subscribers and the publisher are not affected",
    () =>
      Effect.gen(function* () {
        const { subscribe } = yield* EventHub
        const journal = yield* MemoryJournal
        const cutOff = Effect.map(Metric.value(subscribersCutOff), ({ count }) => Number(count))
        const lags = Effect.map(Metric.value(eventLag), ({ count }) => count)
        const [before, published] = [yield* cutOff, yield* lags]
        const slow = yield* subscribe({ filter: {} })
        const quick = yield* subscribe({ filter: {} })
        const reader = yield* Effect.forkChild(collect(quick, 200), { startImmediately: true })
        for (const change of statuses(200)) yield* journal.append([change])
        assert.deepStrictEqual(yield* Fiber.join(reader), range(1, 200))
        assert.strictEqual(yield* outcome(slow), "too slow")
        assert.strictEqual(yield* cutOff, before + 1)
        assert.strictEqual(yield* lags, published + 200)
      }).pipe(Effect.scoped, Effect.provide(hub({ batches: 8 })))
  )

  it.effect("a slow replay does not overflow, because live events are not buffered during it", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(1000))
      const subscription = yield* subscribe({ filter: {}, cursor: 0 })
      const pull = yield* Stream.toPull(eventsOf(subscription))
      const got: Array<number> = []
      got.push(...cursors(yield* pull))
      for (let i = 0; i < 5; i++) {
        yield* journal.append(statuses(400))
        got.push(...cursors(yield* pull))
      }
      got.push(...(yield* pullUpTo(pull, 3000 - got.length)))
      assert.deepStrictEqual(got, range(1, 3000))
    }).pipe(Effect.scoped, Effect.provide(hub({ batches: 8, replayPage: 50 })))
  )
})

describe("spec 5.5: resume", () => {
  it.effect("cursor 0 replays all retained events, also after pruning", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const early = yield* subscribe({ filter: {}, cursor: 0 })
      yield* journal.append(statuses(10))
      assert.deepStrictEqual(yield* collect(early, 10), range(1, 10))
      yield* journal.prune(8)
      const later = yield* subscribe({ filter: {}, cursor: 0 })
      assert.deepStrictEqual(yield* collect(later, 3), [8, 9, 10])
      yield* journal.prune(11)
      const last = yield* subscribe({ filter: {}, cursor: 0 })
      const reader = yield* Effect.forkChild(collect(last, 1), { startImmediately: true })
      yield* journal.append([status("x")])
      assert.deepStrictEqual(yield* Fiber.join(reader), [11])
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("a cursor that is pruned or was never issued is expired", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(10))
      yield* journal.prune(5)
      const at = (cursor: number, count: number) =>
        Effect.scoped(Effect.flatMap(subscribe({ filter: {}, cursor }), (it) => collect(it, count)))
      const expired = yield* Effect.flip(at(3, 0))
      assert.strictEqual(expired._tag, "CursorExpired")
      assert.deepStrictEqual(yield* at(4, 6), range(5, 10))
      assert.deepStrictEqual(yield* at(10, 0), [])
      const future = yield* Effect.flip(at(11, 0))
      assert.strictEqual(future._tag, "CursorExpired")
      assert.include(future, { detail: "cursor 11 was never issued" })
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("pruning events ahead of a slow replay ends the replay instead of leaving a gap", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(100))
      const subscription = yield* subscribe({ filter: {}, cursor: 1 })
      const pull = yield* Stream.toPull(eventsOf(subscription))
      assert.deepStrictEqual(cursors(yield* pull), range(2, 11))
      yield* journal.prune(50)
      assert.include(yield* Effect.flip(pull), { _tag: "SubscriberTooSlow" })
    }).pipe(Effect.scoped, Effect.provide(hub({ replayPage: 10 })))
  )

  it.effect("every event arrives exactly once and in order, for any batches, pages and disconnections", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(fc.boolean(), { minLength: 1, maxLength: 30 }), { minLength: 1, maxLength: 40 }),
          fc.array(fc.nat({ max: 30 }), { maxLength: 20 }),
          fc.integer({ min: 1, max: 40 }),
          (batches, stays, replayPage) =>
            Effect.runPromise(
              Effect.gen(function* () {
                const { subscribe, subscribers } = yield* EventHub
                const journal = yield* MemoryJournal
                const writer = yield* Effect.forkChild(
                  Effect.forEach(batches, (batch) =>
                    journal.append(batch.map((isPublic) => (isPublic ? status("s") : internal("s"))))
                  )
                )
                const expected = batches.flat().flatMap((isPublic, i) => (isPublic ? [i + 1] : []))
                const got: Array<number> = []
                const remember = (event: EncodedEvent) => Effect.sync(() => got.push(event.cursor))
                // Each connection ends after some events; the last one stays.
                for (const stay of [...stays, Number.POSITIVE_INFINITY]) {
                  const wanted = Math.min(stay, expected.length - got.length)
                  yield* subscribe({ filter: {}, cursor: got.at(-1) ?? 0 }).pipe(
                    Effect.flatMap((subscription) =>
                      Stream.runForEach(Stream.take(eventsOf(subscription), wanted), remember)
                    ),
                    Effect.scoped
                  )
                }
                yield* Fiber.join(writer)
                assert.deepStrictEqual(got, expected)
                assert.strictEqual(yield* subscribers, 0)
              }).pipe(Effect.provide(hub({ replayPage })))
            )
        ),
        { numRuns: 60 }
      )
    )
  )
})

describe("EventHub: subscriptions", () => {
  it.effect("a thousand closed subscriptions release their resources", () =>
    Effect.gen(function* () {
      const { subscribe, subscribers } = yield* EventHub
      const journal = yield* MemoryJournal
      const scopes = yield* Effect.forEach(range(1, 1000), (i) =>
        Effect.gen(function* () {
          const scope = yield* Scope.make()
          const subscription = yield* Scope.provide(
            subscribe(i % 2 === 0 ? { filter: {} } : { filter: {}, cursor: 0 }),
            scope
          )
          yield* Effect.forkIn(Stream.runDrain(eventsOf(subscription)), scope)
          return scope
        })
      )
      yield* journal.append(statuses(10))
      assert.strictEqual(yield* subscribers, 1000)
      yield* Effect.forEach(scopes, (scope) => Scope.close(scope, Exit.void))
      assert.strictEqual(yield* subscribers, 0)
    }).pipe(Effect.provide(hub()))
  )

  it.effect(
    "at the end of the service, a stream ends after what was published, and a later one at once",
    () =>
      Effect.gen(function* () {
        const { end, subscribe } = yield* EventHub
        const journal = yield* MemoryJournal
        const subscription = yield* subscribe({ filter: {} })
        const received = yield* Effect.forkChild(outcome(subscription), { startImmediately: true })
        yield* journal.append(statuses(1000))
        // The first of several batches has left.
        for (let turn = 0; turn < 3; turn++) yield* Effect.yieldNow
        yield* journal.append(statuses(2, 1001))
        yield* end
        assert.deepStrictEqual(yield* Fiber.join(received), range(1, 1002))
        for (const cursor of [undefined, 0, "now"] as const) {
          const later = yield* subscribe({ filter: {}, ...(cursor === undefined ? {} : { cursor }) })
          assert.deepStrictEqual(yield* outcome(later), cursor === 0 ? range(1, 1002) : [])
        }
      }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("a subscriber without events gets a beat every 15 s", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const { events } = yield* subscribe({ filter: { topics: new Set(["deleted"]) } })
      const pull = yield* Stream.toPull(events)
      const next = yield* Effect.forkChild(pull, { startImmediately: true })
      yield* TestClock.adjust("14999 millis")
      assert.isUndefined(next.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(yield* Fiber.join(next), ["beat"])
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )
})

describe("spec 5.5: cursor=now", () => {
  it.effect("the stream begins at the current position and misses no later event", () =>
    Effect.gen(function* () {
      const { position, subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(3))
      // Commits while the stream opens.
      const writer = yield* Effect.forkChild(
        Effect.forEach(statuses(50, 4), (change) => journal.append([change]), { discard: true }),
        { startImmediately: true }
      )
      const subscription = yield* subscribe({ filter: {}, cursor: "now" })
      yield* Fiber.join(writer)
      assert.isAtLeast(subscription.start, 3)
      assert.strictEqual(yield* position, 53)
      assert.deepStrictEqual(
        yield* collect(subscription, 53 - subscription.start),
        range(subscription.start + 1, 53)
      )
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("a hub that has published nothing yet begins at the newest entry of the journal", () =>
    Effect.gen(function* () {
      const journal = yield* MemoryJournal
      yield* journal.append(statuses(5))
      const { subscribe } = Context.get(yield* Layer.build(Layer.fresh(EventHub.layer())), EventHub)
      const subscription = yield* subscribe({ filter: {}, cursor: "now" })
      assert.strictEqual(subscription.start, 5)
      yield* journal.append([status("s6")])
      assert.deepStrictEqual(yield* collect(subscription, 1), [6])
    }).pipe(Effect.scoped, Effect.provide(MemoryJournal.layer))
  )
})

describe("spec 5.5: include and opt-in topics", () => {
  const install = { topic: "server:install", server_id: "a", payload: { phase: "installing" } } as const
  const texts = (subscription: Subscription, count: number) =>
    Effect.map(Stream.runCollect(Stream.take(eventsOf(subscription), count)), (events) =>
      events.map((event) => JSON.parse(event.text))
    )

  it.effect("an opt-in topic is present only if topics names it, live and in the replay", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const topics = new Set(["install" as const, "status" as const])
      const plain = yield* subscribe({ filter: {} })
      const named = yield* subscribe({ filter: { topics } })
      yield* journal.append([install, status("a"), install, status("b")])
      for (const [subscription, expected] of [
        [plain, [2, 4]],
        [named, [1, 2, 3, 4]],
        [yield* subscribe({ filter: {}, cursor: 0 }), [2, 4]],
        [yield* subscribe({ filter: { topics }, cursor: 0 }), [1, 2, 3, 4]]
      ] as const) {
        assert.deepStrictEqual(yield* collect(subscription, expected.length), [...expected])
      }
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("live news comes after the events before it, without a cursor, and late news is dropped", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const live = yield* LiveFeed
      const news = (progress: number): LiveNews => ({
        topic: "install",
        server_id: ServerId.make("a"),
        blueprint_id: "b",
        labels: {},
        at: 0,
        payload: { phase: "installing", step: "pull", progress }
      })
      const topics = new Set(["install" as const])
      yield* journal.append([install])
      const now = yield* subscribe({ filter: { topics }, cursor: "now" })
      const resumed = yield* subscribe({ filter: { topics }, cursor: 0 })
      const others = yield* subscribe({ filter: {} })
      live.publish([news(0.5)])
      yield* journal.append([install])
      live.publish([news(1)])
      yield* journal.append([status("a")])
      const received = (subscription: Subscription, count: number) =>
        Effect.map(Stream.runCollect(Stream.take(eventsOf(subscription), count)), (events) =>
          events.map((event) => {
            const { Cursor, Data } = JSON.parse(event.textWithCursor)
            if (event.isLive) assert.strictEqual(event.sseWithId, event.sse)
            return [Cursor, Data.payload.progress]
          })
        )
      assert.deepStrictEqual(yield* received(now, 3), [
        [undefined, 0.5],
        [2, undefined],
        [undefined, 1]
      ])
      // The replay has read the second entry: the news before it says nothing any more.
      assert.deepStrictEqual((yield* received(resumed, 2)).slice(0, 2), [
        [1, undefined],
        [2, undefined]
      ])
      assert.deepStrictEqual(yield* collect(others, 1), [3])
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )

  it.effect("server is the summary at the event, also if the server changes before it is sent", () =>
    Effect.gen(function* () {
      const { subscribe } = yield* EventHub
      const journal = yield* MemoryJournal
      const subscription = yield* subscribe({ filter: {}, include: new Set(["server"]) })
      journal.summaries.set("a", summary("a", "n1"))
      yield* journal.append([status("a")])
      journal.summaries.set("a", summary("a", "n2"))
      yield* journal.append([status("a"), status("unknown")])
      const events = yield* texts(subscription, 3)
      assert.deepStrictEqual(
        events.map(({ Data }) => Data.server?.node_id ?? null),
        ["n1", "n2", null]
      )
      const replayed = yield* texts(
        yield* subscribe({ filter: {}, include: new Set(["server"]), cursor: 0 }),
        3
      )
      // A replay shows the present state.
      assert.deepStrictEqual(
        replayed.map(({ Data }) => Data.server?.node_id ?? null),
        ["n2", "n2", null]
      )
    }).pipe(Effect.scoped, Effect.provide(hub()))
  )
})

const summary = (id: string, node_id: string): Server => ({
  id: ServerId.make(id),
  blueprint_id: "bp",
  node_name: node_id,
  node_id: NodeId.make(node_id),
  allocations: { force_outgoing_ip: false, default: { ip: "127.0.0.1", port: 1 }, alias: "", mappings: {} }
})
