import { once } from "node:events"
import { connect } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Ref } from "effect"
import {
  type Balancer,
  makeBalancer,
  type Outcome,
  type Subscriber,
  subscriber
} from "../support/balancer.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, freePort, nodeIs, nodeKey } from "../support/nodes.ts"
import { nodeOf, replicaSet } from "../support/replicaSet.ts"
import { adminKey, type Service, startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const grace = { MUSTER_SHUTDOWN_GRACE: "1" }

/** Ten clients that create and read without a pause until `done`; returns every outcome. */
const load = Effect.fnUntraced(function* (balancer: Balancer, done: Ref.Ref<boolean>) {
  const outcomes: Array<Outcome> = []
  const work = Effect.gen(function* () {
    const send = yield* balancer.client
    for (let n = 0; !(yield* Ref.get(done)); n++) {
      const outcome = yield* n % 3 === 0
        ? send("POST", "/api/servers", { blueprint_id: "kept" })
        : send("GET", "/api/servers?ids_only=true")
      outcomes.push(outcome)
    }
  }).pipe(Effect.scoped)
  yield* Effect.forEach(Array.from({ length: 10 }), () => work, { concurrency: "unbounded", discard: true })
  return outcomes
})

const idsOf = (outcomes: ReadonlyArray<Outcome>): ReadonlyArray<string> =>
  outcomes.flatMap(({ status, text }) => (status === 202 ? [JSON.parse(text).id] : []))

/** Asserts that every request got a response, and every acknowledged server exists. */
const assertNothingLost = Effect.fnUntraced(function* (api: Service, outcomes: ReadonlyArray<Outcome>) {
  const wrong = outcomes.filter(
    ({ status, text }) =>
      !(status === 200 || status === 202 || (status === 503 && text.includes("no nodes available")))
  )
  assert.deepStrictEqual(wrong, [])
  const created = idsOf(outcomes)
  assert.isAbove(created.length, 20)
  // Changes of another replica appear with a short delay.
  const { json: listed } = yield* eventually(
    expectStatus(api, 200, "GET", "/api/servers?ids_only=true"),
    ({ json }) => json.length >= created.length
  )
  assert.sameMembers(listed, [...created])
})

/** Asserts that all subscribers received the same events, once and in one order. */
const assertSameEvents = Effect.fnUntraced(function* (
  reference: Subscriber,
  others: ReadonlyArray<Subscriber>
) {
  for (const other of others) {
    yield* eventually(
      Effect.sync(() => [reference.received().length, other.received().length]),
      ([one, two]) => one === two
    )
    assert.deepStrictEqual(other.received(), reference.received())
  }
  const cursors = reference.received().map(({ cursor }) => cursor)
  assert.deepStrictEqual(
    cursors,
    [...new Set(cursors)].toSorted((one, other) => one - other)
  )
})

const enough = (subscribers: ReadonlyArray<Subscriber>, count: number) =>
  eventually(
    Effect.sync(() => Math.min(...subscribers.map(({ received }) => received().length))),
    (least) => least >= count,
    "60 seconds"
  )

describe("design: rolling restart", () => {
  it.live(
    "a replica that gets SIGTERM hands over: no request fails, and streams resume at another replica",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet({ ...env, ...grace })
        const [first, other] = [yield* set.start(), yield* set.start()]
        yield* nodeOf(set, first, "n1", "30000-34999")
        yield* nodeOf(set, other, "n2", "35000-39999")
        let urls = [first.url, other.url]
        const balancer = yield* makeBalancer(adminKey, () => urls)
        // Never disconnected, because the other replica stays.
        const reference = yield* subscriber("sse", adminKey, Effect.succeed(other.url))
        // Stays with the first replica while it is ready, as the balancer does.
        let ended = false
        const firstThenAny = Effect.suspend(() => (ended ? balancer.pick : Effect.succeed(first.url)))
        const cut = [
          yield* subscriber("sse", adminKey, firstThenAny),
          yield* subscriber("websocket", adminKey, firstThenAny),
          yield* subscriber("sse", adminKey, firstThenAny)
        ]
        const done = yield* Ref.make(false)
        const running = yield* Effect.forkChild(load(balancer, done))
        yield* enough([reference, ...cut], 60)

        first.process.kill("SIGTERM")
        ended = true
        const [code] = yield* Effect.promise(() => once(first.process, "exit"))
        assert.strictEqual(code, 0, first.output())
        // The next version replaces it.
        const next = yield* set.start()
        urls = [next.url, other.url]
        const received = reference.received().length
        yield* enough([reference, ...cut], received + 60)
        yield* Ref.set(done, true)
        const outcomes = yield* Fiber.join(running)

        yield* assertNothingLost(other, outcomes)
        yield* assertSameEvents(reference, cut)
        assert.deepStrictEqual(
          cut.map(({ endings }) => endings()[0]),
          ["complete", 1001, "complete"]
        )
        assert.deepStrictEqual(reference.endings(), [])
        assert.isTrue(outcomes.some(({ url }) => url.startsWith(next.url)))
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "a single service restarts at its port: every acknowledged change is there, and streams resume",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const dataDir = `${yield* temporaryFolder}/data`
        const port = yield* freePort
        const start = startService({
          dataDir,
          env: { ...alone, ...env, ...grace, MUSTER_PORT: String(port) }
        })
        const first = yield* start
        const { key } = yield* nodeKey(first, "n1")
        yield* makeSimulatedNode({
          id: "n1",
          key,
          control: [first.url],
          ports: "30000-39999",
          heartbeat: "200 millis"
        })
        yield* nodeIs(first, "n1", true)
        const balancer = yield* makeBalancer(adminKey, () => [first.url])
        const subscribers = [
          yield* subscriber("sse", adminKey, balancer.pick),
          yield* subscriber("websocket", adminKey, balancer.pick)
        ] as const
        const done = yield* Ref.make(false)
        const running = yield* Effect.forkChild(load(balancer, done))
        yield* enough(subscribers, 60)

        first.process.kill("SIGTERM")
        const [code] = yield* Effect.promise(() => once(first.process, "exit"))
        assert.strictEqual(code, 0, first.output())
        const second = yield* start
        yield* enough(subscribers, subscribers[0].received().length + 60)
        yield* Ref.set(done, true)
        const outcomes = yield* Fiber.join(running)

        yield* assertNothingLost(second, outcomes)
        const reference = yield* subscriber("sse", adminKey, balancer.pick)
        yield* assertSameEvents(reference, subscribers)
        assert.strictEqual(subscribers[0].endings()[0], "complete")
        assert.strictEqual(subscribers[1].endings()[0], 1001)
      }).pipe(Effect.scoped),
    180_000
  )

  interface HalfSent {
    readonly send: (text: string) => void
    /** The received bytes, once the connection is closed. */
    readonly answer: Effect.Effect<string>
    readonly end: () => void
  }

  /** A connection on which a part of a request was sent. */
  const halfSent = (api: Service, head: string) =>
    Effect.acquireRelease(
      Effect.callback<HalfSent>((resume) => {
        let answer = ""
        const { hostname, port } = new URL(api.url)
        const socket = connect({ host: hostname, port: Number(port) })
        const connection: HalfSent = {
          send: (text) => socket.write(text),
          answer: Effect.callback<string>((done) => {
            if (socket.closed) return done(Effect.succeed(answer))
            socket.once("close", () => done(Effect.succeed(answer)))
          }),
          end: () => socket.destroy()
        }
        socket.once("connect", () => {
          if (head === "") resume(Effect.succeed(connection))
          else socket.write(head, () => resume(Effect.succeed(connection)))
        })
        socket.on("data", (chunk) => {
          answer += chunk.toString()
        })
        socket.on("error", (error) => {
          answer += error.message
        })
      }),
      ({ end }) => Effect.sync(end)
    )

  const stopping = (api: Service) =>
    eventually(Effect.sync(api.output), (text) => text.includes("shutting down"))
  const body = JSON.stringify({ blueprint_id: "none" })
  const head = `POST /api/servers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${adminKey}\r\nContent-Length: ${body.length}\r\n\r\n`

  it.live("without a grace period, a request in progress is answered, and its connection then closes", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: alone })
      const request = yield* halfSent(api, head + body.slice(0, 5))
      const idle = yield* halfSent(api, "")
      yield* expectStatus(api, 200, "GET", "/readyz")
      api.process.kill("SIGTERM")
      yield* stopping(api)
      assert.strictEqual(yield* idle.answer, "")
      request.send(body.slice(5))
      const answer = yield* request.answer
      assert.match(answer, /^HTTP\/1\.1 404 /)
      assert.match(answer, /\r\nconnection: close\r\n/i)
      assert.match(answer, /blueprint not found: none/)
      yield* eventually(
        Effect.sync(() => api.process.exitCode),
        (code) => code === 0
      )
    }).pipe(Effect.scoped)
  )

  it.live("a second signal ends the service at once; a second signal at the same moment does not", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: { ...alone, MUSTER_SHUTDOWN_GRACE: "3600" } })
      api.process.kill("SIGINT")
      // npm forwards the signal that the terminal sends to both processes.
      api.process.kill("SIGINT")
      yield* stopping(api)
      const answer = yield* eventually(api.request("GET", "/readyz"), ({ status }) => status === 503)
      assert.strictEqual(answer.json.detail, "shutting down")
      assert.strictEqual(answer.headers.get("retry-after"), "1")
      yield* expectStatus(api, 200, "GET", "/healthz")
      yield* expectStatus(api, 200, "GET", "/api/servers")
      yield* eventually(
        Effect.sync(() => {
          api.process.kill("SIGINT")
          return api.process.exitCode
        }),
        (code) => code === 130
      )
    }).pipe(Effect.scoped)
  )
})
