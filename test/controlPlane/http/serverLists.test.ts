import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { muster } from "../../support/command.ts"
import { blueprintFile, softwareFile, definitions as writeDefinitions } from "../../support/definitions.ts"
import { makeKey } from "../../support/keys.ts"
import { Muster } from "../../support/Muster.ts"
import { endLeftovers } from "../../support/processes.ts"
import { requestTo, startService } from "../../support/Service.ts"
import { create, expectStatus, installed, powered, running } from "../../support/servers.ts"
import { assertError, games, options, removed } from "./support/http.ts"

interface Listed {
  readonly id: string
}

const idsOf = (list: ReadonlyArray<Listed>) => list.map(({ id }) => id)

const list = Effect.fnUntraced(function* (query: string) {
  const api = yield* Muster
  return yield* expectStatus(api, 200, "GET", `/api/servers?${query}`)
})

const definitions = {
  software: {
    ...games.software,
    "broken.yml": softwareFile("broken", { files: { "server.sh": "exit 3" } }),
    "failing.yml": softwareFile("failing", { install: { script: "exit 4" } })
  },
  blueprints: {
    ...games.blueprints,
    "broken.yml": blueprintFile("broken", "broken"),
    "failing.yml": blueprintFile("failing", "failing")
  }
}
const service = Muster.layer(definitions, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26600-26699" })

layer(service, options)("lists of servers", (it) => {
  describe("spec 3.2", () => {
    it.effect("a beginning that one id has names its server, for GET only", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        const found = yield* expectStatus(api, 200, "GET", `/api/servers/${id.slice(0, 11)}`)
        assert.strictEqual(found.json.id, id)
        assertError(yield* api.request("GET", `/api/servers/${id}x`), 404)
        assertError(yield* api.request("GET", `/api/servers/${id.slice(0, 11)}/status`), 404)
        const refused = assertError(yield* api.request("DELETE", `/api/servers/${id.slice(0, 11)}`), 404)
        assert.match(refused.hint ?? "", /^This route needs the whole id; GET \/api\/servers\?q=/)
        yield* removed(id)
      })
    )

    it.effect("a beginning that several ids have is 409 with at most ten of them", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        // 27 ids begin with one of 26 letters: two share one.
        const made = yield* Effect.all(
          Array.from({ length: 27 }, () => create(api, "kept")),
          { concurrency: 8 }
        )
        const shared = made.find((id) => made.some((other) => other !== id && other[0] === id[0])) ?? ""
        const same = made.filter((id) => id[0] === shared[0])
        const { detail = "" } = assertError(yield* api.request("GET", `/api/servers/${shared[0]}`), 409)
        assert.strictEqual(same.filter((id) => detail.includes(id)).length, Math.min(same.length, 10))
        yield* Effect.forEach(made, removed, { discard: true })
      })
    )
  })

  describe("spec 3.3", () => {
    it.effect("labels, name and expires_in are kept, and shown by include=", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const labels = { "muster.example/team": "blue", season: "" }
        const before = Date.now()
        const id = yield* create(api, "kept", { name: "Ünder \u{1F600}", labels, expires_in: 3600 })
        const query = "include=labels,name,expires_at,updated_at,install,ports"
        const { json } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?${query}`)
        assert.deepStrictEqual(json.labels, labels)
        assert.strictEqual(json.name, "Ünder \u{1F600}")
        assert.deepStrictEqual(json.ports, { game: json.allocations.default })
        const expires = Date.parse(json.expires_at) - 3_600_000
        assert.isTrue(expires >= before && expires <= Date.now(), json.expires_at)
        assert.isTrue(json.updated_at >= json.created_at)
        assert.include(["pending", "installing", "ready"], json.install.phase)
        const plain = yield* create(api, "kept")
        const other = (yield* expectStatus(api, 200, "GET", `/api/servers/${plain}?${query}`)).json
        assert.deepStrictEqual([other.labels, other.name, other.expires_at], [{}, null, null])
        yield* Effect.forEach([id, plain], removed, { discard: true })
      })
    )

    it.effect("labels, a name or an expiry out of bounds are 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const many = Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`k${n}`, ""]))
        for (const body of [
          { labels: { Upper: "a" } },
          { labels: { "-a": "a" } },
          { labels: { ["k".repeat(64)]: "a" } },
          { labels: { k: "v".repeat(129) } },
          { labels: { k: 1 } },
          { labels: many },
          { name: "" },
          { name: "n".repeat(65) },
          { name: "two\nlines" },
          { name: "\ud800" },
          { name: "right\u202eleft" },
          { labels: { k: "\udc00" } },
          { expires_in: 9 },
          { expires_in: 31_536_001 }
        ]) {
          const answer = yield* api.request("POST", "/api/servers", {
            body: { blueprint_id: "kept", ...body }
          })
          assertError(answer, 422, /body field (labels|name|expires_in)/)
        }
      })
    )

    it.effect("Prefer: wait=N delays the 202 until the server is installed, or running if it starts", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = (body: object, prefer: string) =>
          api.request("POST", "/api/servers", {
            body: { blueprint_id: "kept", ...body },
            headers: { prefer }
          })
        const installed = yield* made({}, "wait=60")
        assert.strictEqual(installed.status, 202, installed.text)
        assert.strictEqual(installed.headers.get("preference-applied"), "wait")
        const { json } = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${installed.json.id}?include=status`
        )
        assert.strictEqual(json.status, "offline")
        const started = yield* made({ start: true }, "respond-async, wait=60")
        const now = yield* expectStatus(api, 200, "GET", `/api/servers/${started.json.id}?include=status`)
        assert.strictEqual(now.json.status, "running")
        const ignored = yield* made({}, "wait=soon")
        assert.isNull(ignored.headers.get("preference-applied"))
        const late = yield* made({ blueprint_id: "endless" }, "wait=1")
        assert.strictEqual(late.status, 202, late.text)
        const ids = [installed, started, ignored, late].map((answer) => answer.json.id)
        yield* Effect.forEach(ids, removed, { discard: true })
      })
    )
  })

  describe("spec 3.6: filters and pages", () => {
    it.effect("each filter selects servers; all of them must match", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const one = yield* running(api, "kept", { name: "Alpha One", labels: { team: "blue", tier: "1" } })
        const two = yield* installed(api, "kept", { name: "Alpha Two", labels: { team: "red" } })
        const node = (yield* expectStatus(api, 200, "GET", "/api/nodes?ids_only=true")).json[0]
        const finds = Effect.fnUntraced(function* (query: string, ...expected: ReadonlyArray<string>) {
          assert.deepStrictEqual(idsOf((yield* list(query)).json), expected, query)
        })
        yield* finds("status=running", one)
        yield* finds("blueprint_id=kept", one, two)
        yield* finds("blueprint_id=passing")
        yield* finds(`node_id=${node}`, one, two)
        yield* finds("node_id=other")
        yield* finds("label=team", one, two)
        yield* finds("label=team%3Dblue", one)
        yield* finds("label=team!%3Dblue", two)
        yield* finds("label=!tier", two)
        yield* finds("label=team&label=!tier", two)
        yield* finds("q=alpha", one, two)
        yield* finds("q=two", two)
        yield* finds(`q=${one.slice(0, 11)}`, one)
        yield* finds("q=alpha&status=running&label=team%3Dblue&blueprint_id=kept", one)
        assert.deepStrictEqual((yield* list("q=alpha&ids_only=true")).json, [one, two])
        yield* powered(api, one, "kill")
        yield* Effect.forEach([one, two], removed, { discard: true })
      })
    )

    it.effect("limit and after page through the list; Link leads to the next page", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* Effect.forEach([0, 1, 2, 3, 4], () => create(api, "kept", { labels: { paged: "yes" } }))
        const made = idsOf((yield* list("label=paged")).json)
        const first = yield* list("label=paged&limit=2&include=labels")
        assert.deepStrictEqual(idsOf(first.json), made.slice(0, 2))
        // The page continues after its last server, also if that server is deleted in between.
        yield* removed(made[1] ?? "")
        const link = /^<([^>]+)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1] ?? ""
        const second = yield* expectStatus(api, 200, "GET", link)
        assert.deepStrictEqual(idsOf(second.json), made.slice(2, 4))
        assert.deepStrictEqual(second.json[0].labels, { paged: "yes" })
        const last = yield* list(`label=paged&limit=2&after=${made[3]}`)
        assert.deepStrictEqual(idsOf(last.json), made.slice(4))
        assert.isNull(last.headers.get("link"))
        assertError(yield* api.request("GET", "/api/servers?after=nothing"), 422, /query field after/)
        // A query may contain a question mark.
        for (const id of [made[0], made[2]]) {
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { name: "why? because" } })
        }
        const asked = yield* list("q=why?&limit=1")
        const next = /^<([^>]+)>/.exec(asked.headers.get("link") ?? "")?.[1] ?? ""
        const answered = yield* expectStatus(api, 200, "GET", next)
        assert.deepStrictEqual(idsOf([...asked.json, ...answered.json]), [made[0], made[2]])
        yield* Effect.forEach([0, 2, 3, 4], (n) => removed(made[n] ?? ""), { discard: true })
      })
    )

    it.effect("a value that cannot be read is 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const query of [
          "limit=0",
          "limit=1001",
          "limit=x",
          "status=up",
          "label==v",
          "label=!a=b",
          "include=no",
          "labels=a"
        ]) {
          assertError(yield* api.request("GET", `/api/servers?${query}`), 422, /query field/)
        }
        for (const [query, detail] of [
          ["label=Team=a", 'query field label: expected k=v, k!=v, k or !k, got "Team=a"'],
          ["label=a&label=B", 'query field label: expected k=v, k!=v, k or !k, got "B"'],
          ["stat=running", "query field stat: unknown field; did you mean status?"],
          ["per_page=3", "query field per_page: unknown field; did you mean limit?"],
          ["name=lobby", "query field name: unknown field; did you mean q?"]
        ] as const) {
          assertError(yield* api.request("GET", `/api/servers?${query}`), 422, detail)
        }
      })
    )
  })

  describe("spec 1.3: ETag and cursor", () => {
    it.effect("a response has a weak ETag, and If-None-Match is 304 until the response changes", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        for (const path of [
          "/api/servers",
          `/api/servers/${id}`,
          "/api/servers?q=a&limit=9&ids_only=true",
          "/api/nodes",
          "/api/nodes?ids_only=true"
        ]) {
          const first = yield* expectStatus(api, 200, "GET", path)
          const etag = first.headers.get("etag") ?? ""
          assert.match(etag, /^W\/"[^"]+"$/)
          const same = yield* api.request("GET", path, { headers: { "if-none-match": `"other", ${etag}` } })
          assert.deepStrictEqual([same.status, same.text, same.headers.get("etag")], [304, "", etag])
          const other = yield* api.request("GET", path, { headers: { "if-none-match": '"other"' } })
          assert.strictEqual(other.text, first.text)
        }
        const before = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=status`)
        yield* powered(api, id, "start")
        yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=running`)
        const after = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=status`)
        assert.notStrictEqual(after.headers.get("etag"), before.headers.get("etag"))
        assert.isAbove(
          Number(after.headers.get("x-muster-cursor")),
          Number(before.headers.get("x-muster-cursor"))
        )
        yield* removed(id)
      })
    )
  })

  describe("spec 1.3: compression", () => {
    it.effect("the list of all servers has the same bytes and the same ETag in gzip", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const ids = yield* Effect.all(Array.from({ length: 3 }, () => installed(api, "kept")))
        const path = "/api/servers?include=status,limits,software,labels,name,ports,definition"
        const read = (encoding: string) =>
          api.request("GET", path, { headers: { "accept-encoding": encoding } })
        const [whole, gzip] = [yield* read("identity"), yield* read("br, gzip")]
        assert.strictEqual(gzip.text, whole.text)
        const headers = ({ headers }: typeof whole) =>
          ["content-encoding", "vary", "etag"].map((name) => headers.get(name))
        const etag = whole.headers.get("etag")
        assert.deepStrictEqual(headers(whole), [null, "Accept-Encoding, Accept", etag])
        assert.deepStrictEqual(headers(gzip), ["gzip", "Accept-Encoding, Accept", etag])
        assert.isBelow(Number(gzip.headers.get("content-length")), whole.text.length)
        for (const id of ids) yield* removed(id)
      })
    )
  })

  describe("spec 3.8: wait", () => {
    it.effect("wait returns once the server is in the state", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept", { start: true })
        for (const [state, status] of [
          ["installed", undefined],
          ["running", "running"]
        ] as const) {
          const answer = yield* expectStatus(
            api,
            200,
            "GET",
            `/api/servers/${id}?wait=${state}&include=status`
          )
          assert.isNull(answer.headers.get("x-muster-timed-out"))
          if (status !== undefined) assert.strictEqual(answer.json.status, status)
        }
        yield* powered(api, id, "stop")
        const stopped = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=offline&include=status`)
        assert.strictEqual(stopped.json.status, "offline")
        yield* removed(id)
      })
    )

    it.effect("a request that waits is 401 once its key is revoked", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        const made = yield* makeKey(api.dataDir, "waiting")
        const path = `/api/servers/${id}?wait=running&timeout=60`
        const waiting = yield* Effect.forkChild(requestTo(api.url, made.key)("GET", path), {
          startImmediately: true
        })
        yield* muster(["keys", "revoke", made.id], { MUSTER_DATA_DIR: api.dataDir })
        assertError(yield* Fiber.join(waiting), 401, "the API key is not valid")
        yield* removed(id)
      })
    )

    it.effect("at the timeout, the response is 200 with the current state and X-Muster-Timed-Out", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        const path = `/api/servers/${id}?wait=running&timeout=1&include=status`
        const answer = yield* expectStatus(api, 200, "GET", path)
        assert.strictEqual(answer.headers.get("x-muster-timed-out"), "true")
        assert.strictEqual(answer.json.status, "offline")
        const { detail = "" } = assertError(yield* api.request("GET", `/api/servers/${id}?wait=up`), 422)
        assert.include(detail, "running | offline | installed")
        assert.notInclude(detail, '""')
        for (const query of ["wait=running&timeout=0", "wait=running&timeout=61"]) {
          assertError(yield* api.request("GET", `/api/servers/${id}?${query}`), 422)
        }
        yield* removed(id)
      })
    )

    it.effect("after a reinstallation, installed waits for the end of the status installing", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        for (let round = 0; round < 5; round++) {
          yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`)
          const path = `/api/servers/${id}?wait=installed&include=status`
          assert.strictEqual((yield* expectStatus(api, 200, "GET", path)).json.status, "offline")
        }
        yield* removed(id)
      })
    )

    it.effect("a server that cannot reach the state is 409 with the reason, a deleted one 404", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const waiting = (id: string, state: string) => api.request("GET", `/api/servers/${id}?wait=${state}`)
        const crashing = yield* create(api, "broken", { start: true })
        assertError(yield* waiting(crashing, "running"), 409, /is not running: \w+: it crashed: exit code 3$/)
        const failing = yield* create(api, "failing")
        assertError(yield* waiting(failing, "installed"), 409, /is not installed: \w+: install failed: /)
        assertError(yield* waiting(failing, "running"), 409, /install failed: /)
        const answer = yield* api.request("POST", "/api/servers", {
          body: { blueprint_id: "failing" },
          headers: { prefer: "wait=60" }
        })
        assertError(answer, 409, /install failed: /)
        assert.match(answer.headers.get("location") ?? "", /^\/api\/servers\/[a-z0-9]{12}$/)
        const kept = idsOf((yield* list("blueprint_id=failing")).json)
        assert.lengthOf(kept, 2, "the record of a failed installation remains")
        const passing = yield* create(api, "failing", { overrides: { save: false } })
        assertError(yield* waiting(passing, "installed"), 409)
        const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
        const owned = assertError(yield* api.request("DELETE", `/api/nodes/${node.id}`), 409)
        assert.isTrue(owned.hint?.endsWith(`whose installation has failed: delete ${passing}.`), owned.hint)
        yield* removed(passing)
        const endless = yield* create(api, "endless")
        const [gone] = yield* Effect.all([waiting(endless, "installed"), removed(endless)], {
          concurrency: "unbounded"
        })
        assertError(gone, 404)
        yield* Effect.forEach([crashing, ...kept], removed, { discard: true })
      })
    )
  })
})

describe("spec 3.8: a service that stops", () => {
  it.live("ends waits as their timeout does, and has no connection to cut off", () =>
    Effect.gen(function* () {
      const { env } = yield* writeDefinitions(games)
      // The second is for a request that is still on its way.
      const api = yield* startService({ env: { ...env, MUSTER_SHUTDOWN_GRACE: "1" } })
      yield* Effect.addFinalizer(() => endLeftovers(api.dataDir))
      const id = yield* installed(api, "kept")
      const reading = yield* Effect.forkChild(
        api.request("GET", `/api/servers/${id}?wait=running&timeout=60`),
        {
          startImmediately: true
        }
      )
      const creating = yield* Effect.forkChild(
        api.request("POST", "/api/servers", {
          body: { blueprint_id: "endless" },
          headers: { prefer: "wait=60" }
        }),
        { startImmediately: true }
      )
      yield* api.kill("SIGTERM")
      const read = yield* Fiber.join(reading)
      assert.strictEqual(read.status, 200)
      assert.strictEqual(read.headers.get("x-muster-timed-out"), "true")
      assert.strictEqual((yield* Fiber.join(creating)).status, 202)
      assert.notInclude(api.output(), "cut off")
    })
  )
})
