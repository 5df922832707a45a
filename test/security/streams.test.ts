import { request } from "node:http"
import { connect } from "node:net"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, FileSystem, Logger } from "effect"
import WebSocket from "ws"
import { streamLimits } from "../../src/app/service.ts"
import { loadServiceSettings } from "../../src/shared/config/service.ts"
import {
  assertError,
  bearer,
  noNode,
  options,
  rawRequest,
  service
} from "../controlPlane/http/support/http.ts"
import { eventually } from "../support/eventually.ts"
import { makeKey } from "../support/keys.ts"
import { Muster } from "../support/Muster.ts"
import { requestTo, type Service, type ServiceFailed } from "../support/Service.ts"
import { running } from "../support/servers.ts"

const PER_KEY = 20
const TOTAL = 30

/** A client that opens streams. */
type Caller = Pick<Service, "url" | "key">

/** An opened stream, or the status of its refusal. */
interface Opened {
  readonly status: number
  readonly close: () => void
}

const overSse = (api: Caller, path: string, headers: Record<string, string> = bearer(api)) =>
  Effect.acquireRelease(
    Effect.callback<Opened>((resume) => {
      const sent = request(`${api.url}${path}`, { headers, agent: false }).end()
      sent.on("error", () => {})
      sent.once("response", (response) => {
        response.on("error", () => {}).resume()
        resume(Effect.succeed({ status: response.statusCode ?? 0, close: () => sent.destroy() }))
      })
      return Effect.sync(() => sent.destroy())
    }),
    ({ close }) => Effect.sync(close)
  )

const overWebSocket = (api: Caller, path: string, headers: Record<string, string> = bearer(api)) =>
  Effect.acquireRelease(
    Effect.callback<Opened>((resume) => {
      const ws = new WebSocket(`${api.url.replace("http", "ws")}${path}`, { headers })
      const close = () => ws.terminate()
      ws.on("error", () => {})
      ws.once("open", () => resume(Effect.succeed({ status: 101, close })))
      ws.once("unexpected-response", (_, response) =>
        resume(Effect.succeed({ status: response.statusCode ?? 0, close }))
      )
    }),
    ({ close }) => Effect.sync(close)
  )

const storedKey = Effect.fnUntraced(function* (
  api: Service,
  name: string
): Effect.fn.Return<Caller, ServiceFailed> {
  const { key } = yield* makeKey(api.dataDir, name)
  return { url: api.url, key }
})

/** The number of streams that the service counts. */
const openStreams = (api: Service) =>
  Effect.map(api.request("GET", "/metrics"), ({ text }) =>
    Number(/^muster_open_streams (\d+)$/m.exec(text)?.[1] ?? Number.NaN)
  )

const allClosed = (api: Service) => eventually(openStreams(api), (open) => open === 0)

const ticketOf = (caller: Caller) =>
  Effect.map(requestTo(caller.url, caller.key)("POST", "/api/events/tickets"), (answer) => {
    assert.strictEqual(answer.status, 201, answer.text)
    return String(answer.json.ticket)
  })

/** Sends bytes and aborts the connection. */
const breakOff = (api: Caller, bytes: string) =>
  Effect.callback<void>((resume) => {
    const { hostname, port } = new URL(api.url)
    const socket = connect({ host: hostname, port: Number(port) }, () => {
      socket.write(bytes, () => socket.resetAndDestroy())
    })
    socket.on("error", () => {})
    socket.once("close", () => resume(Effect.void))
  })

const limits = { ...noNode, MUSTER_STREAMS_PER_KEY: String(PER_KEY), MUSTER_STREAMS: String(TOTAL) }

layer(service(limits), options)("streams", (it) => {
  describe("spec 1.6: streams are bounded", () => {
    it.effect(
      "over the limit of a key, on both transports together, a stream is 429; other keys are not limited",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const own = yield* storedKey(api, "by-key")
          const opened = yield* Effect.forEach(Array(PER_KEY).keys(), (i) =>
            i % 2 ? overSse(own, "/api/events") : overWebSocket(own, "/api/events/ws")
          )
          assert.isTrue(opened.every(({ status }) => status === 200 || status === 101))
          const refused = yield* requestTo(own.url, own.key)("GET", "/api/events")
          const { hint } = assertError(refused, 429, `the API key has ${PER_KEY} open streams`)
          assert.include(hint, "MUSTER_STREAMS_PER_KEY")
          assert.strictEqual(refused.headers.get("retry-after"), "5")
          assert.strictEqual(refused.headers.get("x-ratelimit-limit"), String(PER_KEY))
          assert.strictEqual(refused.headers.get("x-ratelimit-remaining"), "0")
          assert.isAbove(Number(refused.headers.get("x-ratelimit-reset")), Date.now() / 1000)
          assert.strictEqual((yield* overWebSocket(own, "/api/events/ws")).status, 429)
          // Existence is checked first (spec 1.4).
          assert.strictEqual((yield* overWebSocket(own, "/api/servers/none/console")).status, 404)
          assert.strictEqual((yield* overSse(own, "/api/servers/none/events")).status, 404)
          assert.strictEqual((yield* overSse(api, "/api/events")).status, 200)
          // Other routes work with the key.
          assert.strictEqual((yield* requestTo(own.url, own.key)("GET", "/api/servers")).status, 200)
          opened[0]?.close()
          yield* eventually(overSse(own, "/api/events"), ({ status }) => status === 200)
        }).pipe(Effect.scoped)
    )

    it.effect("over the total limit, a stream is 429 for any key", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* allClosed(api)
        const callers = [yield* storedKey(api, "one"), yield* storedKey(api, "two")] as const
        for (let i = 0; i < TOTAL; i++) {
          assert.strictEqual((yield* overSse(callers[i % 2 ? 0 : 1], "/api/events")).status, 200)
        }
        assert.strictEqual(yield* openStreams(api), TOTAL)
        assertError(yield* api.request("GET", "/api/events"), 429, `the service has ${TOTAL} open streams`)
      }).pipe(Effect.scoped)
    )

    it.effect("a stream of a ticket counts for the key that requested the ticket", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* allClosed(api)
        const own = yield* storedKey(api, "tickets")
        for (let i = 0; i < PER_KEY; i++) {
          const path = `/api/events?ticket=${yield* ticketOf(own)}`
          assert.strictEqual((yield* overSse(own, path, {})).status, 200)
        }
        const ticket = yield* ticketOf(own)
        assert.strictEqual((yield* overWebSocket(own, `/api/events/ws?ticket=${ticket}`, {})).status, 429)
        assert.strictEqual((yield* overSse(own, "/api/events")).status, 429)
      }).pipe(Effect.scoped)
    )

    it.effect("1,000 streams that are opened and broken off release their slots", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* allClosed(api)
        const own = yield* storedKey(api, "breaks-off")
        const authorization = `Bearer ${own.key}`
        const handshake = {
          authorization,
          connection: "Upgrade",
          upgrade: "websocket",
          "sec-websocket-version": "13",
          "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="
        }
        const sse = rawRequest("GET", "/api/events", { authorization })
        const attacks = [
          // Aborted before the response, over both transports.
          breakOff(own, sse),
          breakOff(own, rawRequest("GET", "/api/events/ws", handshake)),
          // Two streams on one connection.
          breakOff(
            own,
            `${rawRequest("GET", "/api/events", { authorization, connection: "keep-alive" })}${sse}`
          ),
          // Upgrades that fail: no version, an invalid key, an unknown server.
          breakOff(own, rawRequest("GET", "/api/events/ws", { ...handshake, "sec-websocket-version": "7" })),
          Effect.scoped(overWebSocket(own, "/api/servers/none/console")),
          Effect.asVoid(requestTo(own.url, own.key)("GET", "/api/events/ws")),
          Effect.asVoid(requestTo(own.url, own.key)("GET", "/api/events?cursor=x")),
          Effect.asVoid(requestTo(own.url, own.key)("HEAD", "/api/events")),
          // Opened, then interrupted.
          Effect.scoped(overSse(own, "/api/events")),
          Effect.scoped(overWebSocket(own, "/api/events/ws"))
        ]
        yield* Effect.forEach(
          Array(100).keys(),
          () => Effect.all(attacks, { concurrency: 10, discard: true }),
          {
            discard: true
          }
        )
        yield* allClosed(api)
        for (let i = 0; i < PER_KEY; i++) {
          assert.strictEqual((yield* overSse(own, "/api/events")).status, 200)
        }
        assert.strictEqual(yield* openStreams(api), PER_KEY)
      }).pipe(Effect.scoped)
    )
  })

  describe("spec 5.7: tickets are bounded", () => {
    it.effect("with 1,000 unused tickets of a key the next is 429; other keys are not limited", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const own = yield* storedKey(api, "hoards")
        const ask = requestTo(own.url, own.key)
        const answers = yield* Effect.forEach(Array(1020).keys(), () => ask("POST", "/api/events/tickets"), {
          concurrency: 64
        })
        assert.strictEqual(answers.filter(({ status }) => status === 201).length, 1000)
        const refused = answers.find(({ status }) => status !== 201)
        assert.isDefined(refused)
        assertError(refused, 429, "1000 tickets of this key wait to be used")
        assert.strictEqual(refused.headers.get("x-ratelimit-limit"), "1000")
        assert.strictEqual(refused.headers.get("retry-after"), "30")
        yield* ticketOf(api)
      })
    )
  })
})

layer(service({ MUSTER_STREAMS_PER_KEY: "1" }), options)("consoles", (it) => {
  describe("spec 1.6: consoles count as streams", () => {
    it.effect("an open console takes a slot and releases it when it closes", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const console = yield* overWebSocket(api, `/api/servers/${id}/console`)
        assert.strictEqual(console.status, 101)
        assert.strictEqual(yield* openStreams(api), 1)
        for (const path of ["/api/events", `/api/servers/${id}/events`]) {
          assertError(yield* api.request("GET", path), 429, "the API key has 1 open streams")
        }
        console.close()
        yield* eventually(overSse(api, `/api/servers/${id}/events`), ({ status }) => status === 200)
      }).pipe(Effect.scoped)
    )
  })
})

describe("spec 1.6: the default limit of streams", () => {
  const limitsWith = (limits: string, wanted: number) => {
    const lines: Array<string> = []
    return Effect.gen(function* () {
      const settings = yield* loadServiceSettings
      return { ...(yield* streamLimits({ ...settings, streams: wanted })), lines }
    }).pipe(
      Effect.provide([
        FileSystem.layerNoop({ readFileString: () => Effect.succeed(limits) }),
        Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
      ])
    )
  }
  const procfs =
    "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n"

  it.effect("the default is half of the open files of the process, and a warning names the limit", () =>
    Effect.gen(function* () {
      const low = yield* limitsWith(procfs, 10_000)
      assert.strictEqual(low.total, 512)
      assert.strictEqual(low.perKey, 100)
      assert.match(low.lines.join(), /^512 streams can be open, not 10000: the process may open 1024 files\./)
      const enough = yield* limitsWith(procfs, 512)
      assert.deepStrictEqual([enough.total, enough.lines], [512, []])
      const unknown = yield* limitsWith("Max open files            unlimited            unlimited", 10_000)
      assert.deepStrictEqual([unknown.total, unknown.lines], [10_000, []])
    })
  )
})
