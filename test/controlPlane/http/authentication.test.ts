import { statSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../../support/command.ts"
import { eventually } from "../../support/eventually.ts"
import { makeKey } from "../../support/keys.ts"
import { Muster } from "../../support/Muster.ts"
import { requestTo, type Service, startService } from "../../support/Service.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { assertError, noNode, options, service } from "./support/http.ts"

const missing = "the Authorization header is missing"
const malformed = "the Authorization header is not of the form `Bearer <key>`"
const invalid = "the API key is not valid"
const lacks = "the API key lacks the scope AppAdmin"

/** Creates a key by the command while the service runs. */
const createKey = Effect.fnUntraced(function* (api: Service, ...args: ReadonlyArray<string>) {
  const ended = yield* muster(["keys", "create", ...args], { MUSTER_DATA_DIR: api.dataDir })
  assert.strictEqual(ended.code, 0, ended.stderr)
  const id = /^Key (key_\w+) /.exec(ended.stderr)?.[1] ?? ""
  return { key: ended.stdout.trim(), id, stderr: ended.stderr }
})

/** Failures are counted by client address; behind a proxy each test can use its own. */
const behindProxy = { ...noNode, MUSTER_TRUSTED_PROXIES: "127.0.0.0/8", MUSTER_LOG_LEVEL: "debug" }
const from = (address: string) => ({ "x-forwarded-for": address })

layer(service(behindProxy), options)("authentication", (it) => {
  describe("spec 1.5: 401 and 403", () => {
    it.effect("a missing header, a malformed header and an unknown key are 401 with WWW-Authenticate", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const wrong = `mst_${"a".repeat(49)}`
        for (const [authorization, detail] of [
          [undefined, missing],
          ["", malformed],
          ["Bearer", malformed],
          ["Bearer ", malformed],
          [api.key, malformed],
          [`Basic ${api.key}`, malformed],
          [`Bearer ${api.key} more`, malformed],
          [`Bearer=${api.key}`, malformed],
          ["Bearer wrong", invalid],
          [`Bearer ${wrong}`, invalid],
          [`Bearer ${api.key}x`, invalid],
          [`Bearer ${api.key.slice(1)}`, invalid]
        ] as const) {
          const answer = yield* api.request("GET", "/api/nodes", {
            key: null,
            headers: { ...from("10.0.0.1"), ...(authorization === undefined ? {} : { authorization }) }
          })
          assertError(answer, 401, detail)
          assert.strictEqual(answer.headers.get("www-authenticate"), "Bearer", authorization)
        }
      })
    )

    it.effect("the authentication scheme is case-insensitive", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR"]) {
          const headers = { authorization: `${scheme} ${api.key}` }
          assert.strictEqual((yield* api.request("GET", "/api/nodes", { key: null, headers })).status, 200)
        }
      })
    )

    it.effect(
      "every route under /api and /metrics requires a key; pages, health checks and documents do not",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const document = (yield* api.request("GET", "/openapi.json", { key: null })).json
          let client = 0
          for (const [path, operations] of Object.entries<Record<string, { security: unknown }>>(
            document.paths
          )) {
            for (const [method, operation] of Object.entries(operations)) {
              client++
              const answer = yield* api.request(method.toUpperCase(), path.replaceAll(/\{\w+\}/g, "x"), {
                key: null,
                headers: from(`10.1.0.${client}`)
              })
              const open = !path.startsWith("/api/") && path !== "/metrics"
              assert.deepStrictEqual(operation.security, open ? [] : [{ bearer: [] }], path)
              if (open) assert.strictEqual(answer.status, 200, path)
              else assertError(answer, 401, missing)
            }
          }
          assert.isAbove(client, 35)
          for (const path of ["/docs", "/openapi.json", "/openapi-3.0.json"]) {
            assert.strictEqual((yield* api.request("GET", path, { key: null })).status, 200)
          }
        })
    )

    it.effect("spec 1.6: the 21st failure in a minute from one address is 429; a valid key still works", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const headers = from("10.2.0.1")
        for (let i = 0; i < 20; i++) {
          assertError(yield* api.request("GET", "/api/nodes", { key: i % 2 ? "wrong" : null, headers }), 401)
        }
        const answer = yield* api.request("GET", "/api/nodes", { key: "wrong", headers })
        assertError(answer, 429, "too many failed authentications from this address")
        const seconds = Number(answer.headers.get("retry-after"))
        assert.isTrue(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60, String(seconds))
        assert.strictEqual((yield* api.request("GET", "/api/nodes", { headers })).status, 200)
        assertError(yield* api.request("GET", "/api/nodes", { key: "wrong", headers: from("10.2.0.2") }), 401)
      })
    )
  })

  describe("spec 6.1: keys", () => {
    it.effect("a key created by the command works at once, and a revoked key stops working at once", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { key, id, stderr } = yield* createKey(api, "--name", "ci", "--scope", "AppAdmin")
        assert.match(key, /^mst_[0-9A-Za-z]{49}$/)
        assert.strictEqual(stderr, `Key ${id} (AppAdmin). It is shown only now: keep it.\n`)
        const asked = requestTo(api.url, key)
        assert.strictEqual((yield* asked("GET", "/api/nodes")).status, 200)

        const listed = yield* muster(["keys", "list"], { MUSTER_DATA_DIR: api.dataDir })
        assert.match(listed.stdout, new RegExp(`^${id} +AppAdmin +valid +ci +-  `, "m"))
        assert.notInclude(listed.stdout, key)

        const revoked = yield* muster(["keys", "revoke", id], { MUSTER_DATA_DIR: api.dataDir })
        assert.strictEqual(revoked.stdout, `Key ${id} is revoked.\n`)
        assertError(yield* asked("GET", "/api/nodes", { headers: from("10.3.0.1") }), 401, invalid)
        yield* eventually(api.output, (output) => output.includes("API key refused: revoked"))

        const again = yield* muster(["keys", "revoke", id], { MUSTER_DATA_DIR: api.dataDir })
        assert.deepStrictEqual(
          [again.code, again.stderr],
          [3, `key not found, or revoked already: ${id}. \`muster keys list\` shows what exists.\n`]
        )
        const after = yield* muster(["keys", "list"], { MUSTER_DATA_DIR: api.dataDir })
        assert.match(after.stdout, new RegExp(`^${id} +AppAdmin +revoked \\S+Z +ci +-  `, "m"))
      })
    )

    it.effect(
      "a key with scope Metrics reads the metrics and nothing else; a key with scope Node cannot read them",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const metrics = requestTo(api.url, (yield* makeKey(api.dataDir, "m", "Metrics")).key)
          const node = requestTo(api.url, (yield* makeKey(api.dataDir, "n", "Node")).key)
          for (const path of ["/api/nodes", "/api/nope", "/api/events", "/api/events/ws"]) {
            for (const asked of [metrics, node]) {
              const answer = yield* asked("GET", path)
              assertError(answer, 403, lacks)
              assert.isNull(answer.headers.get("www-authenticate"))
            }
          }
          assertError(yield* metrics("POST", "/api/servers", { body: { blueprint_id: "kept" } }), 403, lacks)
          assert.strictEqual((yield* metrics("GET", "/metrics")).status, 200)
          assert.strictEqual((yield* api.request("GET", "/metrics")).status, 200)
          assertError(yield* node("GET", "/metrics"), 403, "the API key lacks the scope Metrics")
          assertError(
            yield* api.request("GET", "/metrics", { key: null, headers: from("10.4.0.1") }),
            401,
            missing
          )
        })
    )

    it.effect("a key shows when it expires", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { id } = yield* createKey(api, "--name", "short", "--expires", "90m")
        const listed = yield* muster(["keys", "list"], { MUSTER_DATA_DIR: api.dataDir })
        assert.match(listed.stdout, new RegExp(`^${id} +AppAdmin +valid until \\S+Z +short +-  `, "m"))
      })
    )

    it.effect("an invalid option is refused with a message", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [args, expected] of [
          [["create"], "name"],
          [["create", "--name", "x", "--scope", "Everything"], "Everything"],
          [["create", "--name", "x", "--expires", "soon"], "expected a time such as 90m, 12h or 30d"],
          [["revoke"], "key"]
        ] as const) {
          const ended = yield* muster(["keys", ...args], { MUSTER_DATA_DIR: api.dataDir })
          assert.notStrictEqual(ended.code, 0, args.join(" "))
          assert.include(ended.stdout + ended.stderr, expected)
          assert.notInclude(ended.stderr, "    at ")
        }
      })
    )
  })
})

describe("spec 1.6: the rate limit of a key", () => {
  it.live(
    "X-RateLimit-* show the remaining requests, on failures too; over the limit is 429 with Retry-After",
    () =>
      Effect.gen(function* () {
        const api = yield* startService({ env: { ...noNode, MUSTER_RATE_LIMIT: "6" } })
        const paths = ["/api/nodes", "/api/nope", "/api/servers/nope", "/metrics", "/api/servers?include=x"]
        let left = 6
        const first = Math.floor(Date.now() / 1000)
        for (const path of paths) {
          const { headers } = yield* api.request("GET", path)
          left--
          assert.strictEqual(headers.get("x-ratelimit-limit"), "6", path)
          assert.strictEqual(headers.get("x-ratelimit-remaining"), String(left), path)
          const reset = Number(headers.get("x-ratelimit-reset"))
          assert.isTrue(
            reset > first && reset <= Math.ceil(Date.now() / 1000) + 60,
            `${reset} after ${first}`
          )
        }
        assert.strictEqual(
          (yield* api.request("PUT", "/api/nodes")).headers.get("x-ratelimit-remaining"),
          "0"
        )
        const answer = yield* api.request("GET", "/api/nodes")
        assertError(answer, 429, "the request limit of this API key is used up")
        assert.strictEqual(answer.headers.get("x-ratelimit-remaining"), "0")
        const wait = Number(answer.headers.get("retry-after"))
        assert.isTrue(Number.isInteger(wait) && wait >= 1 && wait <= 60, String(wait))
        assert.isAtMost(Number(answer.headers.get("x-ratelimit-reset")), Date.now() / 1000 + wait)
        assert.strictEqual((yield* api.request("GET", "/healthz")).headers.get("x-ratelimit-limit"), null)
        const { key } = yield* makeKey(api.dataDir, "other")
        const other = yield* requestTo(api.url, key)("GET", "/api/nodes")
        assert.strictEqual(other.headers.get("x-ratelimit-remaining"), "5")
      })
  )
})

describe("spec 6.1: the first start", () => {
  const noKey = { ...noNode, APP_ADMIN_API_KEY: "" }

  it.live("without keys, the first start writes admin.key with mode 600; the next start keeps it", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const file = join(dataDir, "admin.key")
      const first = yield* Effect.scoped(
        Effect.gen(function* () {
          const api = yield* startService({ dataDir, env: noKey })
          yield* eventually(Effect.sync(api.output), (output) => output.includes("All routes"))
          assert.include(api.output(), `there was no API key for administration: made one, it is in ${file}`)
          assert.strictEqual(statSync(file).mode & 0o777, 0o600)
          assert.strictEqual(statSync(dataDir).mode & 0o777, 0o700)
          const key = (yield* Effect.promise(() => readFile(file, "utf8"))).trim()
          assert.notInclude(api.output(), key)
          assert.strictEqual((yield* requestTo(api.url, key)("GET", "/api/nodes")).status, 200)
          return key
        })
      )
      const api = yield* startService({ dataDir, env: noKey })
      assert.strictEqual((yield* requestTo(api.url, first)("GET", "/api/nodes")).status, 200)
      assert.notInclude(api.output(), "made one")
    })
  )

  it.live("with APP_ADMIN_API_KEY no key is created; a short key works and logs a warning", () =>
    Effect.gen(function* () {
      const short = yield* startService({ env: { ...noNode, APP_ADMIN_API_KEY: "short" } })
      assert.include(short.output(), "APP_ADMIN_API_KEY has 5 characters: use at least 24")
      assert.strictEqual((yield* short.request("GET", "/api/nodes")).status, 200)
      assert.throws(() => statSync(join(short.dataDir, "admin.key")))
      const long = yield* startService({ env: { ...noNode, APP_ADMIN_API_KEY: "x".repeat(24) } })
      assert.notInclude(long.output(), "APP_ADMIN_API_KEY")
    })
  )
})
