import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer, Logger, Option } from "effect"
import { HttpServerRequest } from "effect/http"
import { TestClock } from "effect/testing"
import { FailedLogins } from "../../src/controlPlane/http/FailedLogins.ts"
import { countedAddress } from "../../src/controlPlane/http/node/clients.ts"
import { assertError, noNode, options, service } from "../controlPlane/http/support/http.ts"
import { muster } from "../support/command.ts"
import { makeKey } from "../support/keys.ts"
import { Muster } from "../support/Muster.ts"
import { connectedNode } from "../support/nodes.ts"
import { requestTo, type Service, startService } from "../support/Service.ts"

const over = "too many failed authentications from this address"

/** Failures are counted by client address; behind a proxy each test uses its own. */
const behindProxy = { ...noNode, MUSTER_TRUSTED_PROXIES: "127.0.0.0/8" }
const from = (address: string) => ({ "x-forwarded-for": address })

const guess = (api: Service, address: string, key: string) =>
  api.request("GET", "/api/nodes", { key, headers: from(address) })

/** Uses up the failures of an address in a minute. */
const exhaust = Effect.fnUntraced(function* (api: Service, address: string) {
  for (let i = 0; i < 20; i++) assertError(yield* guess(api, address, `guess-${i}`), 401)
})

const storedKey = (api: Service) => Effect.map(makeKey(api.dataDir, "stored"), ({ key }) => key)

/** The sum of failures in the warnings for an address. */
const warned = (output: string, address: string) =>
  [...output.matchAll(/(\d+) failed authentications? from (\S+), the first: (\S+ \S+)/g)]
    .filter((match) => match[2] === address)
    .map((match) => ({ failures: Number(match[1]), first: match[3] }))

const failuresIn = (text: string, reason: string) =>
  Number(new RegExp(`^muster_auth_failures_total\\{reason="${reason}"\\} (\\d+)$`, "m").exec(text)?.[1] ?? 0)

layer(service({ ...behindProxy, APP_ADMIN_API_KEY: "hunter2" }), options)(
  "a short key from outside",
  (it) => {
    describe("spec 1.6: a short key from outside", () => {
      it.effect("over the limit, right and wrong guesses get 429; a stored key is accepted", () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const stored = yield* storedKey(api)
          yield* exhaust(api, "10.0.0.1")
          const right = yield* guess(api, "10.0.0.1", "hunter2")
          assertError(right, 429, over)
          const wrong = yield* guess(api, "10.0.0.1", "hunter3")
          assertError(wrong, 429, over)
          assert.deepStrictEqual([...right.headers.keys()].toSorted(), [...wrong.headers.keys()].toSorted())
          assert.strictEqual((yield* guess(api, "10.0.0.1", stored)).status, 200)
          assert.strictEqual((yield* guess(api, "10.0.0.2", "hunter2")).status, 200)
        })
      )

      it.effect("of a word list sent at once, only the first 20 words are checked", () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const words = [...Array.from({ length: 300 }, (_, i) => `word${i}`), ...Array(20).fill("hunter2")]
          const answers = yield* Effect.forEach(words, (word) => guess(api, "10.0.1.1", word), {
            concurrency: 16
          })
          assert.isEmpty(answers.filter(({ status }) => status !== 401 && status !== 429))
          assert.strictEqual(answers.filter(({ status }) => status === 401).length, 20)
        })
      )
    })
  }
)

layer(service(behindProxy), options)("failed logins", (it) => {
  describe("spec 1.6: limited by address", () => {
    it.effect(
      "429 has Retry-After and X-RateLimit-*, with the reset as Unix time; other addresses are not limited",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* exhaust(api, "10.1.0.1")
          const before = Math.floor(Date.now() / 1000)
          const { headers, ...answer } = yield* guess(api, "10.1.0.1", "wrong")
          assertError({ ...answer, headers }, 429, over)
          const wait = Number(headers.get("retry-after"))
          assert.isTrue(Number.isInteger(wait) && wait >= 1 && wait <= 60, String(wait))
          assert.strictEqual(headers.get("x-ratelimit-limit"), "20")
          assert.strictEqual(headers.get("x-ratelimit-remaining"), "0")
          const reset = Number(headers.get("x-ratelimit-reset"))
          assert.isTrue(reset >= before + wait - 1 && reset <= before + 62, `${reset} after ${before}`)
          assertError(yield* guess(api, "10.1.0.2", "wrong"), 401)
          // A key from outside of 24 characters or more cannot be guessed.
          assert.strictEqual((yield* guess(api, "10.1.0.1", api.key)).status, 200)
        })
    )

    it.effect("IPv6 addresses count by their /64, IPv4-mapped addresses as IPv4", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (let i = 0; i < 20; i++) {
          assertError(yield* guess(api, `2001:db8:1:2:${i.toString(16)}::${i + 1}`, "wrong"), 401)
        }
        assertError(yield* guess(api, "2001:db8:1:2:ffff::1", "wrong"), 429, over)
        assertError(yield* guess(api, "2001:db8:1:3::1", "wrong"), 401)
        for (let i = 0; i < 20; i++) {
          assertError(yield* guess(api, i % 2 ? "::ffff:10.1.1.1" : "::ffff:a01:101", "wrong"), 401)
        }
        assertError(yield* guess(api, "10.1.1.1", "wrong"), 429, over)
      })
    )

    it.effect("the routes of daemons and tickets count too", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const headers = from("10.1.2.1")
        for (let i = 0; i < 10; i++) {
          const body = { id: "n" }
          assertError(
            yield* api.request("POST", "/api/nodes/n/register", { key: "wrong", headers, body }),
            401
          )
          assertError(
            yield* api.request("GET", `/api/events?ticket=${"a".repeat(43)}`, { key: null, headers }),
            401
          )
        }
        const path = "/api/nodes/n/internal/heartbeat"
        assertError(yield* api.request("POST", path, { key: "wrong", headers, body: {} }), 429, over)
      })
    )
  })

  describe("spec 1.6: log and metrics", () => {
    it.effect("the log has one warning with the address, the count and the first path, without the key", () =>
      Effect.gen(function* () {
        const api = yield* startService({ env: behindProxy })
        const secret = "a-guess-that-is-in-no-log"
        for (let i = 0; i < 25; i++) {
          yield* api.request("GET", i === 0 ? `/api/first?ticket=${secret}` : "/api/later", {
            key: secret,
            headers: from("10.2.0.1")
          })
        }
        // The shutdown logs the failures that are not logged yet.
        yield* api.kill("SIGTERM")
        const lines = warned(api.output(), "10.2.0.1")
        assert.strictEqual(lines[0]?.first, "GET /api/first")
        assert.strictEqual(
          lines.reduce((sum, { failures }) => sum + failures, 0),
          25
        )
        assert.match(api.output(), /WARN.*failed authentications? from 10\.2\.0\.1/)
        assert.notInclude(api.output(), secret)
      })
    )

    it.effect("muster_auth_failures_total counts by reason", () =>
      Effect.gen(function* () {
        const api = yield* startService({ env: behindProxy })
        const revoked = yield* storedKey(api)
        const listed = yield* muster(["keys", "list"], { MUSTER_DATA_DIR: api.dataDir })
        const id = /key_\w+/.exec(listed.stdout)?.[0] ?? ""
        yield* muster(["keys", "revoke", id], { MUSTER_DATA_DIR: api.dataDir })
        const ask = (path: string, headers: Record<string, string>) =>
          api.request("GET", path, { key: null, headers: { ...from("10.2.1.1"), ...headers } })
        yield* ask("/api/nodes", {})
        yield* ask("/api/nodes", { authorization: "Basic x" })
        yield* ask("/api/nodes", { authorization: "Bearer x" })
        yield* ask("/api/nodes", { authorization: `Bearer ${revoked}` })
        yield* ask("/api/events?ticket=x", {})
        yield* ask("/api/events?ticket=y", {})
        const { text } = yield* api.request("GET", "/metrics")
        const reasons = ["no_header", "malformed_header", "malformed_key", "revoked_key", "ticket"]
        assert.deepStrictEqual(
          reasons.map((reason) => failuresIn(text, reason)),
          [1, 1, 1, 1, 2]
        )
      })
    )
  })

  describe("spec 9.4: calls with a wrong token", () => {
    it.effect("the daemon refuses each call with 401 and logs a warning with the address and the count", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const node = yield* connectedNode(api, "guessed")
        const ask = requestTo(node.url, "a-token-that-is-in-no-log")
        for (let i = 0; i < 30; i++) assertError(yield* ask("GET", "/system"), 401)
        yield* node.kill("SIGTERM")
        assert.strictEqual(warned(node.output(), "127.0.0.1")[0]?.first, "GET /system")
        assert.notInclude(node.output(), "a-token-that-is-in-no-log")
      })
    )
  })
})

describe("spec 1.6: the table is bounded", () => {
  const web = HttpServerRequest.fromWeb(new Request("http://muster.test/api/nodes?ticket=secret"))
  const request = (address: string) => web.modify({ remoteAddress: Option.some(address) })
  const addresses = (count: number) =>
    Array.from({ length: count }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`)
  const lines: Array<string> = []
  const kept = (settings: Parameters<typeof FailedLogins.layer>[0] = {}) =>
    Effect.provide(
      FailedLogins.layer(settings).pipe(
        Layer.provideMerge(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
      )
    )

  it.effect("30,000 addresses use 10,000 entries and evict no address that is over the limit", () =>
    Effect.gen(function* () {
      const logins = yield* FailedLogins
      const attacker = request("192.0.2.1")
      for (let i = 0; i < 20; i++) assert.isUndefined(yield* logins.count(attacker))
      for (const address of addresses(30_000)) yield* logins.count(request(address))
      assert.isAtMost(yield* logins.size, 10_001)
      assert.isTrue(yield* logins.isOver(attacker))
      assert.isAbove((yield* logins.count(attacker)) ?? 0, 0)
      // Addresses without an entry share one, which is over the limit by now.
      assert.isTrue(yield* logins.isOver(request("198.51.100.1")))
      yield* TestClock.adjust("3 minutes")
      assert.strictEqual(yield* logins.size, 0)
      assert.isFalse(yield* logins.isOver(attacker))
      assert.isUndefined(yield* logins.count(attacker))
    }).pipe(kept())
  )

  it.effect("failures from many addresses write eleven lines with the counts of all", () =>
    Effect.gen(function* () {
      lines.length = 0
      const logins = yield* FailedLogins
      for (const address of addresses(500)) yield* logins.count(request(address))
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(lines.length, 11)
      assert.strictEqual(lines[0], "1 failed authentication from 10.0.0.0, the first: GET /api/nodes")
      assert.strictEqual(lines[10], "490 failed authentications from 490 more addresses")
    }).pipe(kept())
  )

  it.effect("an address causes at most one line a minute", () =>
    Effect.gen(function* () {
      lines.length = 0
      const logins = yield* FailedLogins
      for (let second = 0; second < 180; second++) {
        yield* logins.count(request("192.0.2.7"))
        yield* TestClock.adjust("1 second")
      }
      const counts = lines.map((line) => /^(\d+) failed authentications from 192\.0\.2\.7, /.exec(line)?.[1])
      assert.deepStrictEqual(counts, ["5", "60", "60"])
    }).pipe(kept())
  )

  it.effect("the limit counts a minute from the first failure", () =>
    Effect.gen(function* () {
      const logins = yield* FailedLogins
      const one = request("192.0.2.9")
      for (let i = 0; i < 20; i++) yield* logins.count(one)
      assert.strictEqual(yield* logins.count(one), 60_000)
      yield* TestClock.adjust("59 seconds")
      assert.strictEqual(yield* logins.count(one), 1000)
      yield* TestClock.adjust("1 second")
      assert.isFalse(yield* logins.isOver(one))
    }).pipe(kept())
  )

  it("text that is not an address counts as one address", () => {
    const cases = {
      "192.0.2.1": "192.0.2.1",
      "::ffff:192.0.2.1": "192.0.2.1",
      "::ffff:c000:201": "192.0.2.1",
      "2001:db8::1": "2001:db8:0:0::/64",
      "fe80::1%eth0": "fe80:0:0:0::/64",
      "": "an unknown address",
      "192.0.2.1, 192.0.2.2": "an unknown address"
    }
    for (const [text, counted] of Object.entries(cases)) assert.strictEqual(countedAddress(text), counted)
  })
})
