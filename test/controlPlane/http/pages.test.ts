import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { HttpApi } from "effect/http-api"
import { version } from "../../../src/app/version.ts"
import { ApplicationApi } from "../../../src/contract/api/ApplicationApi.ts"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import type { NodeDetail } from "../../../src/contract/domain/Node.ts"
import { bannerPage, nodesPage } from "../../../src/controlPlane/pages/publicHtml.ts"
import { metrics } from "../../../src/shared/observability/metrics.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { startService } from "../../support/Service.ts"
import { keysOf, noNode, options, service } from "./support/http.ts"

/** A parameter of the OpenAPI document. */
interface ErrorResponse {
  readonly description: string
  readonly content: { readonly "application/json": { readonly schema: { readonly $ref: string } } }
}

interface Parameter {
  readonly name: string
  readonly in: string
  readonly description?: string
}

const hostile = `<script>alert("x")</script>'&`

const size = { memory_bytes: 1, cpu_threads: 1, disk_bytes: 1 }

const node = (fields: Partial<NodeDetail>): NodeDetail => ({
  ...{ id: NodeId.make("n1"), name: "n1", location: "here", url: "http://n1", version: "1" },
  ...{ capacity: size, committed: size, usage: null, ports_free: 1, servers: 0 },
  ...{ drained: false, connected: true, last_seen_at: null },
  ...fields
})

/** URLs that a page would load. */
const loads = (html: string) =>
  [...html.matchAll(/<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)\s*=\s*["']?([^"'\s>]+)/g)]
    .map((match) => match[1])
    .filter((address) => /^(?:https?:)?\/\//.test(address ?? ""))

describe("spec 1.10: the page of nodes", () => {
  it("every value of the node list is escaped", () => {
    const named = { id: NodeId.make(hostile), name: hostile, location: hostile, url: hostile }
    const html = nodesPage([node({ ...named, drained: true, connected: false, unreachable: "ECONNREFUSED" })])
    assert.notInclude(html, "<script")
    assert.notInclude(html, `"x"`)
    const escaped = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&#39;&amp;"
    assert.strictEqual(html.split(escaped).length - 1, 4)
    assert.include(html, "</span>unreachable, drained</span></td>")
    assert.notInclude(bannerPage(hostile), "<script")
  })

  it("each value has its name, which a screen too narrow for the table shows beside it", () => {
    const html = nodesPage([node({})])
    const names = [...html.matchAll(/<th scope="col">([^<]+)</g)].map(([, name]) => name)
    assert.isAbove(names.length, 5)
    assert.deepStrictEqual(
      [...html.matchAll(/<td data-name="([^"]+)"/g)].map(([, name]) => name),
      names
    )
    assert.match(html, /@media \(max-width: [\d.]+rem\) \{\n {2}\.all /)
  })

  it("an empty list shows that no node exists", () => {
    assert.include(nodesPage([]), "<p>No nodes found.</p>")
    assert.notInclude(nodesPage([]), "<table")
  })
})

layer(service(noNode), options)("pages", (it) => {
  describe("spec 1.10: pages", () => {
    it.effect("/, /nodes and /docs are HTML, need no key and load nothing from other hosts", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/", "/nodes", "/docs"]) {
          const answer = yield* api.request("GET", path, { key: null })
          assert.strictEqual(answer.status, 200)
          assert.strictEqual(answer.headers.get("content-type"), "text/html; charset=utf-8")
          assert.match(answer.text, /^<!doctype html>/)
          assert.deepStrictEqual(loads(answer.text), [])
        }
        assert.include((yield* api.request("GET", "/", { key: null })).text, version)
        assert.include((yield* api.request("GET", "/nodes", { key: null })).text, "No nodes found.")
        // A page accepts a request with an invalid key.
        assert.strictEqual((yield* api.request("GET", "/", { key: "wrong" })).status, 200)
      })
    )

    it.effect("/favicon.ico is an image", () =>
      Effect.gen(function* () {
        const icon = yield* (yield* Muster).request("GET", "/favicon.ico", { key: null })
        assert.strictEqual(icon.status, 200)
        assert.strictEqual(icon.headers.get("content-type"), "image/svg+xml")
        assert.match(icon.text, /^<svg /)
      })
    )

    it.effect("/nodes escapes the values that a node sends", () =>
      Effect.gen(function* () {
        const api = yield* startService({
          env: { MUSTER_NODE_NAME: hostile, MUSTER_NODE_LOCATION: hostile, MUSTER_NODE_URL: hostile }
        })
        const { text } = yield* api.request("GET", "/nodes", { key: null })
        assert.notInclude(text, "<script")
        assert.strictEqual(text.split("&lt;script&gt;").length - 1, 3)
      })
    )

    it.effect(
      "content that changes only with an upgrade is sent once: a browser with a cached copy gets 304",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          for (const path of ["/docs", "/docs/scalar.js", "/openapi.json", "/openapi-3.0.json"]) {
            const whole = yield* api.request("GET", path, { key: null })
            assert.strictEqual(whole.headers.get("cache-control"), "no-cache", path)
            const etag = whole.headers.get("etag") ?? ""
            assert.match(etag, /^"[\w-]{27}"$/)
            for (const known of [etag, `"other", W/${etag}`, "*"]) {
              const headers = { "if-none-match": known }
              const same = yield* api.request("GET", path, { key: null, headers })
              assert.strictEqual(same.status, 304)
              assert.strictEqual(same.text, "")
              assert.strictEqual(same.headers.get("etag"), etag)
            }
            const changed = yield* api.request("GET", path, {
              key: null,
              headers: { "if-none-match": '"old"' }
            })
            assert.strictEqual(changed.text, whole.text)
            const head = yield* api.request("HEAD", path, { key: null })
            assert.strictEqual(head.headers.get("etag"), etag)
          }
        })
    )

    it.effect("files of the dashboard have the hash of their content in their address, for ever", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const page = yield* api.request("GET", "/dashboard", { key: null })
        assert.strictEqual(page.headers.get("content-type"), "text/html; charset=utf-8")
        assert.strictEqual(page.headers.get("cache-control"), "no-cache")
        const policy = page.headers.get("content-security-policy") ?? ""
        assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';/)
        assert.notInclude(policy, "unsafe")
        for (const name of ["main", "style"]) {
          const [path = ""] =
            new RegExp(`/dashboard/assets/${name}\\.\\w+\\?[\\w-]{16}`).exec(page.text) ?? []
          const file = yield* api.request("GET", path, { key: null, headers: { "accept-encoding": "gzip" } })
          assert.strictEqual(file.status, 200, path)
          assert.strictEqual(file.headers.get("cache-control"), "public, max-age=31536000, immutable")
          assert.strictEqual(file.headers.get("content-encoding"), "gzip")
          const known = { "if-none-match": file.headers.get("etag") ?? "" }
          const again = yield* api.request("GET", path, {
            key: null,
            headers: { ...known, "accept-encoding": "gzip" }
          })
          assert.strictEqual(again.status, 304)
          const old = yield* api.request("GET", `${path}old`, { key: null })
          assert.strictEqual(old.headers.get("cache-control"), "no-cache")
          assert.strictEqual((yield* api.request("POST", path)).status, 405)
        }
        assert.strictEqual((yield* api.request("GET", "/dashboard/assets/../main.ts")).status, 404)
      })
    )

    it.effect("/openapi.json describes every parameter", () =>
      Effect.gen(function* () {
        const { json } = yield* (yield* Muster).request("GET", "/openapi.json", { key: null })
        const parameters = Object.entries<Record<string, { readonly parameters?: ReadonlyArray<Parameter> }>>(
          json.paths
        ).flatMap(([path, operations]) =>
          Object.values(operations).flatMap(({ parameters = [] }) =>
            parameters.map((parameter) => ({ path, ...parameter }))
          )
        )
        assert.isAbove(parameters.length, 40)
        assert.deepStrictEqual(
          parameters.filter(({ description = "" }) => description.length < 10),
          []
        )
      })
    )

    it.effect(
      "the log line of a request has its caller, server, method, path, status and time as fields",
      () =>
        Effect.gen(function* () {
          const api = yield* startService({
            env: { ...noNode, MUSTER_LOG_FORMAT: "json", MUSTER_LOG_LEVEL: "debug" }
          })
          yield* api.request("GET", "/api/servers/none?include=status", {
            headers: { "x-request-id": "the-one" }
          })
          const line = yield* eventually(
            Effect.sync(() =>
              api
                .output()
                .split("\n")
                .find((text) => text.includes("the-one"))
            ),
            (found) => found !== undefined
          )
          const { duration_ms, fiber: _, timestamp: __, ...entry } = JSON.parse(line ?? "")
          assert.strictEqual(typeof duration_ms, "number")
          assert.deepStrictEqual(entry, {
            level: "DEBUG",
            message: "request",
            request_id: "the-one",
            client: "127.0.0.1",
            key_id: "env",
            server_id: "none",
            method: "GET",
            path: "/api/servers/none",
            status: 404
          })
        }).pipe(Effect.scoped)
    )
  })

  describe("spec 1.10: health and metrics", () => {
    it.effect("/healthz and /readyz need no key", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/healthz", "/readyz"]) {
          const answer = yield* api.request("GET", path, { key: null })
          assert.strictEqual(answer.status, 200)
          assert.strictEqual(answer.headers.get("content-type"), "application/json")
          assert.deepStrictEqual(answer.json, { status: "ok" })
        }
      })
    )

    it.effect("/metrics has the Prometheus text format and counts requests", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const count = Effect.map(api.request("GET", "/metrics"), ({ text }) =>
          Number(
            /^muster_http_requests_total\{method="OPTIONS",route="\/healthz",status="204"\} (\d+)$/m.exec(
              text
            )?.[1] ?? 0
          )
        )
        const before = yield* count
        yield* api.request("OPTIONS", "/healthz")
        assert.strictEqual(yield* count, before + 1)
        const { headers, text } = yield* api.request("GET", "/metrics")
        for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
          if (name?.endsWith("_total")) assert.strictEqual(type, "counter", name)
        }
        assert.match(text, /^# TYPE muster_placements_total counter$/m)
        assert.match(headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/)
        for (const [, name, labels = ""] of text.matchAll(
          /^([a-z_]+?)(?:_bucket|_sum|_count)?(?:\{([^}]*)\})? \S+$/gm
        )) {
          const metric = metrics.find((one) => one.name === name)
          assert.isDefined(metric, `${name} is not in docs/metrics.md`)
          const known = [...Object.keys(metric?.labels ?? {}), "le"]
          assert.deepStrictEqual(
            [...labels.matchAll(/(\w+)="/g)]
              .map(([, label = ""]) => label)
              .filter((label) => !known.includes(label)),
            [],
            name
          )
        }
        for (const line of text.trimEnd().split("\n")) {
          assert.match(line, /^(?:# (?:HELP|TYPE) [a-z_]+ .+|[a-z_]+(?:\{[^}]*\})? [-+0-9.eInfNa]+)$/)
        }
        for (const name of [
          "muster_database_up",
          "muster_nodes",
          "muster_servers",
          "muster_event_subscribers",
          "muster_http_request_duration_seconds_bucket",
          "muster_journal_newest_cursor",
          "muster_build_info",
          "process_cpu_seconds_total",
          "process_resident_memory_bytes",
          "process_open_fds",
          "process_max_fds",
          "process_start_time_seconds"
        ]) {
          assert.match(text, new RegExp(`^${name}\\b`, "m"))
        }
      })
    )

    it.effect("spec 8.1: the settings have their origins, and no secret; the log has the last lines", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json, text } = yield* api.request("GET", "/api/system/settings")
        const of = (name: string) => json.find((setting: { readonly name: string }) => setting.name === name)
        assert.deepStrictEqual(of("MUSTER_PORT"), {
          name: "MUSTER_PORT",
          value: "0",
          source: "environment"
        })
        assert.deepStrictEqual(of("MUSTER_HOST"), {
          name: "MUSTER_HOST",
          value: "127.0.0.1",
          source: "default"
        })
        assert.deepInclude(of("APP_ADMIN_API_KEY"), { value: null, source: "environment" })
        assert.notInclude(text, api.key)
        const log = (yield* api.request("GET", "/api/system/log")).json
        assert.isTrue(
          log.some((line: string) => line.includes("listens on http://")),
          log.join("\n")
        )
      })
    )

    it.effect("spec 1.1: /api/system has exactly its fields", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json } = yield* api.request("GET", "/api/system")
        assert.deepStrictEqual(keysOf(json), ["system", "version"])
        assert.match(json.version, /^\d+\.\d+\.\d+/)
        assert.deepStrictEqual(keysOf(json.system), [
          "architecture",
          "cpu_threads",
          "kernel_version",
          "memory_bytes",
          "os",
          "os_type"
        ])
        assert.include(["amd64", "arm64"], json.system.architecture)
        assert.strictEqual(json.system.os_type, "linux")
        assert.isTrue(Number.isInteger(json.system.cpu_threads) && json.system.cpu_threads > 0)
        assert.isTrue(Number.isInteger(json.system.memory_bytes) && json.system.memory_bytes > 0)
        for (const name of ["kernel_version", "os"]) assert.notStrictEqual(json.system[name], "")
      })
    )
  })

  describe("spec 1.10: /openapi.json", () => {
    it.effect("the document has every route, its errors, the bearer scheme and examples", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json: document, headers } = yield* api.request("GET", "/openapi.json", { key: null })
        assert.strictEqual(headers.get("content-type"), "application/json")
        assert.strictEqual(document.info.version, version)
        assert.strictEqual(document.components.securitySchemes.bearer.scheme, "bearer")
        let routes = 0
        HttpApi.reflect(ApplicationApi, {
          onGroup: () => {},
          onEndpoint: ({ endpoint }) => {
            routes++
            const path = endpoint.path.replaceAll(/:(\w+)/g, "{$1}")
            const operation = document.paths[path]?.[endpoint.method.toLowerCase()]
            assert.isDefined(operation, `${endpoint.method} ${path}`)
            assert.isNotEmpty(operation.summary)
            // A read requires no space on the disk of the database.
            assert.strictEqual(operation.responses["507"] !== undefined, endpoint.method !== "GET", path)
            const protectedRoute = path.startsWith("/api/") || path === "/metrics"
            const always = ["413", "422", "500", "503", "504"]
            for (const status of protectedRoute ? [...always, "401", "403", "429"] : always) {
              assert.strictEqual(
                operation.responses[status]?.$ref,
                `#/components/responses/${status}`,
                `${path} ${status}`
              )
            }
            if (path.includes("{") || (path === "/api/servers" && endpoint.method === "POST")) {
              assert.isDefined(operation.responses["404"], path)
            }
          }
        })
        assert.strictEqual(
          routes,
          Object.values<object>(document.paths).flatMap((path) => Object.keys(path)).length
        )
        for (const response of Object.values<ErrorResponse>(document.components.responses)) {
          assert.isNotEmpty(response.description)
          assert.strictEqual(response.content["application/json"].schema.$ref, "#/components/schemas/Error")
        }
        assert.deepStrictEqual(keysOf(document.components.schemas.Error.properties), [
          "code",
          "detail",
          "hint",
          "request_id",
          "status"
        ])
        for (const name of ["CreateServer", "Server", "Blueprint", "SystemInfo"]) {
          assert.isNotEmpty(document.components.schemas[name].examples, name)
        }
      })
    )

    it.effect("the document contains the routes of the contract", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { paths } = (yield* api.request("GET", "/openapi.json", { key: null })).json
        const routes = Object.entries<object>(paths)
          .flatMap(([path, operations]) =>
            Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`)
          )
          .toSorted()
        assert.deepStrictEqual(routes, [
          "DELETE /api/backup-targets/{target}",
          "DELETE /api/backups/{backup}",
          "DELETE /api/keys/{key}",
          "DELETE /api/keys/{key}/ssh/{ssh}",
          "DELETE /api/nodes/{node}",
          "DELETE /api/operations/{operation}",
          "DELETE /api/quotas/{quota}",
          "DELETE /api/schedules/{schedule}",
          "DELETE /api/servers",
          "DELETE /api/servers/{server}",
          "DELETE /api/servers/{server}/files/uploads/{upload}",
          "DELETE /api/webhooks/{webhook}",
          "GET /",
          "GET /api/audit",
          "GET /api/backup-targets",
          "GET /api/backup-targets/{target}",
          "GET /api/backups",
          "GET /api/backups/{backup}",
          "GET /api/backups/{backup}/archive",
          "GET /api/backups/{backup}/files",
          "GET /api/backups/{backup}/files/content",
          "GET /api/blueprints",
          "GET /api/blueprints/{blueprint}",
          "GET /api/crashes",
          "GET /api/definitions/sources",
          "GET /api/definitions/warnings",
          "GET /api/events",
          "GET /api/events/ws",
          "GET /api/keys",
          "GET /api/keys/self",
          "GET /api/keys/{key}/ssh",
          "GET /api/mixins",
          "GET /api/mixins/{mixin}",
          "GET /api/nodes",
          "GET /api/nodes/{node}",
          "GET /api/nodes/{node}/system",
          "GET /api/operations",
          "GET /api/operations/{operation}",
          "GET /api/quotas",
          "GET /api/quotas/{quota}",
          "GET /api/rollouts",
          "GET /api/rollouts/{rollout}",
          "GET /api/runs/{run}",
          "GET /api/schedules",
          "GET /api/schedules/{schedule}",
          "GET /api/schedules/{schedule}/runs",
          "GET /api/servers",
          "GET /api/servers/{server}",
          "GET /api/servers/{server}/backups",
          "GET /api/servers/{server}/console",
          "GET /api/servers/{server}/crashes",
          "GET /api/servers/{server}/events",
          "GET /api/servers/{server}/files",
          "GET /api/servers/{server}/files/archive",
          "GET /api/servers/{server}/files/content",
          "GET /api/servers/{server}/files/diff",
          "GET /api/servers/{server}/files/search",
          "GET /api/servers/{server}/files/uploads/{upload}",
          "GET /api/servers/{server}/install",
          "GET /api/servers/{server}/install/logs",
          "GET /api/servers/{server}/logs",
          "GET /api/servers/{server}/stats",
          "GET /api/servers/{server}/status",
          "GET /api/software",
          "GET /api/software/{software}",
          "GET /api/stats",
          "GET /api/system",
          "GET /api/system/log",
          "GET /api/system/settings",
          "GET /api/webhooks",
          "GET /api/webhooks/{webhook}",
          "GET /api/webhooks/{webhook}/deliveries",
          "GET /healthz",
          "GET /metrics",
          "GET /nodes",
          "GET /readyz",
          "PATCH /api/backup-targets/{target}",
          "PATCH /api/backups/{backup}",
          "PATCH /api/nodes/{node}/drained",
          "PATCH /api/quotas/{quota}",
          "PATCH /api/schedules/{schedule}",
          "PATCH /api/servers/{server}",
          "PATCH /api/servers/{server}/files/uploads/{upload}",
          "PATCH /api/webhooks/{webhook}",
          "POST /api/backup-targets",
          "POST /api/backup-targets/{target}/test",
          "POST /api/backups",
          "POST /api/backups/{backup}/drill",
          "POST /api/backups/{backup}/verify",
          "POST /api/blueprints/reload",
          "POST /api/events/tickets",
          "POST /api/files",
          "POST /api/keys",
          "POST /api/keys/{key}/ssh",
          "POST /api/quotas",
          "POST /api/rollouts",
          "POST /api/rollouts/{rollout}/abort",
          "POST /api/rollouts/{rollout}/pause",
          "POST /api/rollouts/{rollout}/resume",
          "POST /api/runs/{run}/cancel",
          "POST /api/schedules",
          "POST /api/schedules/{schedule}/run",
          "POST /api/servers",
          "POST /api/servers/power",
          "POST /api/servers/{server}/backups",
          "POST /api/servers/{server}/commands",
          "POST /api/servers/{server}/files/copy",
          "POST /api/servers/{server}/files/delete",
          "POST /api/servers/{server}/files/folder",
          "POST /api/servers/{server}/files/mode",
          "POST /api/servers/{server}/files/move",
          "POST /api/servers/{server}/files/pack",
          "POST /api/servers/{server}/files/unpack",
          "POST /api/servers/{server}/files/uploads",
          "POST /api/servers/{server}/power",
          "POST /api/servers/{server}/reinstall",
          "POST /api/servers/{server}/reset",
          "POST /api/servers/{server}/restore",
          "POST /api/servers/{server}/sftp",
          "POST /api/servers/{server}/undelete",
          "POST /api/servers/{server}/upgrade",
          "POST /api/software/reload",
          "POST /api/webhooks",
          "POST /api/webhooks/{webhook}/replay",
          "POST /api/webhooks/{webhook}/test",
          "PUT /api/servers/{server}/files/archive",
          "PUT /api/servers/{server}/files/content"
        ])
      })
    )
  })
})
