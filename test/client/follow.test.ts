import type { ServerResponse } from "node:http"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Fiber, Queue, Stream } from "effect"
import type { Change, FollowOptions, MusterClient, Reset } from "../../src/client/index.ts"
import { options, removed, service } from "../controlPlane/http/support/http.ts"
import { newest } from "../controlPlane/http/support/streams.ts"
import { eventually } from "../support/eventually.ts"
import { during, tcpProxy } from "../support/faults/index.ts"
import { Muster } from "../support/Muster.ts"
import { create, expectStatus, installed } from "../support/servers.ts"
import { clientOf, scripted } from "./support.ts"

/** Follows until the scope closes; `next` waits for the next element. */
const following = Effect.fnUntraced(function* (muster: MusterClient["Service"], follow: FollowOptions) {
  const elements = yield* Queue.unbounded<Change | Reset>()
  const fiber = yield* Effect.forkScoped(
    Stream.runForEach(muster.follow(follow), (element) => Queue.offer(elements, element))
  )
  return { next: Queue.take(elements), fiber }
})

const brief = (element: Change | Reset) =>
  element.topic === "reset" ? "reset" : [element.server_id, element.payload]

layer(service(), options)("the client: follow", (it) => {
  it.effect(
    "a follower from a list has the list first, then every change once, each with time and cursor",
    () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const muster = yield* clientOf(api.url, api.key)
        const before = yield* installed(api, "kept")
        const { next } = yield* following(muster, { include: ["server"] })
        const first = yield* next
        assert.strictEqual(first.topic, "reset")
        if (first.topic !== "reset") return
        assert.deepStrictEqual(
          first.servers.map(({ id, status }) => [id, status]),
          [[before, "offline"]]
        )
        const id = yield* create(api, "kept")
        const installing = yield* next
        assert.deepStrictEqual(brief(installing), [id, "installing"])
        assert.isAbove(installing.cursor, first.cursor)
        if (installing.topic === "reset") return
        assert.match(String(installing.at), /^\d{4}-\d\d-\d\dT.*Z$/)
        assert.strictEqual(installing.server?.blueprint_id, "kept")
        assert.deepStrictEqual(brief(yield* next), [id, "offline"])
        yield* removed(id)
        assert.deepStrictEqual(brief(yield* next), [id, null])
        yield* removed(before)
      })
  )

  it.effect(
    "a follower begins at the cursor of a list, or now; filters apply to changes and to the list",
    () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const muster = yield* clientOf(api.url, api.key)
        const { cursor, servers } = yield* muster.list({ include: ["labels"] })
        assert.deepStrictEqual(servers, [])
        const kept = yield* installed(api, "kept", { labels: { team: "blue" } })
        const other = yield* installed(api, "passing")
        const resumed = yield* following(muster, { from: cursor, servers: [other] })
        assert.deepStrictEqual(brief(yield* resumed.next), [other, "installing"])
        const listed = yield* following(muster, { blueprints: ["kept"], topics: ["deleted"] })
        const reset = yield* listed.next
        assert.deepStrictEqual(reset.topic === "reset" && reset.servers.map(({ id }) => id), [kept])
        const now = yield* following(muster, { from: "now" })
        yield* eventually(
          Effect.map(
            expectStatus(api, 200, "GET", "/metrics"),
            ({ text }) => /^muster_event_subscribers (\d+)/m.exec(text)?.[1]
          ),
          (open) => Number(open) >= 3
        )
        yield* removed(other)
        yield* removed(kept)
        assert.deepStrictEqual(brief(yield* now.next), [other, null])
        assert.deepStrictEqual(brief(yield* listed.next), [kept, null])
        const blue = yield* muster.list({ label: "team=blue" })
        assert.deepStrictEqual(blue.servers, [])
      })
  )

  it.effect("after a cut connection, the follower resumes: no change is missed or repeated", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const proxy = yield* tcpProxy(Number(new URL(api.url).port))
      const muster = yield* clientOf(proxy.through(api.url), api.key)
      const { next } = yield* following(muster, { from: yield* newest(api) })
      const first = yield* installed(api, "kept")
      assert.deepStrictEqual(brief(yield* next), [first, "installing"])
      assert.deepStrictEqual(brief(yield* next), [first, "offline"])
      const second = yield* during(proxy.dropped, installed(api, "kept"))
      assert.deepStrictEqual(brief(yield* next), [second, "installing"])
      assert.deepStrictEqual(brief(yield* next), [second, "offline"])
      // The connection breaks in the middle of the events.
      yield* proxy.cutAt((chunk) => chunk.includes(second))
      yield* removed(first)
      yield* removed(second)
      assert.deepStrictEqual(brief(yield* next), [first, null])
      assert.deepStrictEqual(brief(yield* next), [second, null])
      assert.isTrue(proxy.hasCut())
    })
  )

  it.effect("a cursor that is not retained: the list takes the place of the missing changes", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const muster = yield* clientOf(api.url, api.key)
      const id = yield* installed(api, "kept")
      const { next } = yield* following(muster, { from: 1_000_000 })
      const reset = yield* next
      assert.strictEqual(reset.topic, "reset")
      if (reset.topic !== "reset") return
      assert.deepStrictEqual(
        reset.servers.map((server) => server.id),
        [id]
      )
      assert.strictEqual(reset.cursor, yield* newest(api))
      yield* removed(id)
      assert.deepStrictEqual(brief(yield* next), [id, null])
    })
  )

  it.effect("a failure that a repetition cannot cure ends the follower", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const wrong = yield* clientOf(api.url, "wrong")
      const { fiber } = yield* following(wrong, { from: "now" })
      assert.strictEqual((yield* Effect.flip(Fiber.join(fiber)))._tag, "Unauthorized")
      const { fiber: invalid } = yield* following(yield* clientOf(api.url, api.key), { from: -1 })
      assert.strictEqual((yield* Effect.flip(Fiber.join(invalid)))._tag, "InvalidRequest")
    })
  )
})

const event = (cursor: number) =>
  `id: ${cursor}\nevent: deleted\ndata: {"Topic":"deleted","Data":{"server_id":"a","payload":null}}\n\n`

const cursorOf = (query: string) => new URLSearchParams(query).get("cursor")

describe("the client: connections that break", () => {
  it.live("a silent connection is cut, and the follower resumes at its cursor", () =>
    Effect.gen(function* () {
      const sends = (text: string) => (response: ServerResponse) =>
        response.writeHead(200, { "content-type": "text/event-stream" }).write(`: connected\n\n${text}`)
      const { asked, url } = yield* scripted(
        sends(event(6)),
        // Not even the head of a response.
        () => {},
        sends(event(7))
      )
      const muster = yield* clientOf(url)
      const changes = yield* muster
        .follow({ from: 5, silence: "500 millis" })
        .pipe(Stream.take(2), Stream.runCollect)
      assert.deepStrictEqual(
        changes.map(({ cursor }) => cursor),
        [6, 7]
      )
      assert.deepStrictEqual(asked.map(cursorOf), ["5", "6", "6"])
    }).pipe(Effect.scoped)
  )

  it.live("a proxy without a service, an overloaded service and a broken response are no ends", () =>
    Effect.gen(function* () {
      const page = (status: number) => (response: ServerResponse) =>
        response.writeHead(status, { "content-type": "text/html" }).end("<h1>no upstream</h1>")
      const { asked, url } = yield* scripted(
        page(502),
        page(503),
        (response) =>
          response.writeHead(503, { "content-type": "application/json" }).end(
            JSON.stringify({
              code: "503",
              status: "Service Unavailable",
              detail: "shutting down",
              hint: "Wait."
            })
          ),
        (response) => response.destroy(),
        (response) => response.writeHead(200, { "content-type": "text/event-stream" }).end(event(9))
      )
      const muster = yield* clientOf(url)
      const changes = yield* muster.follow({ from: 5 }).pipe(Stream.take(1), Stream.runCollect)
      assert.strictEqual(changes[0]?.cursor, 9)
      assert.deepStrictEqual(asked.map(cursorOf), ["5", "5", "5", "5", "5"])
    }).pipe(Effect.scoped)
  )
})
