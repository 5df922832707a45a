import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, create, expectStatus, installed, powered, running } from "../../support/servers.ts"
import { assertError, keysOf, options, removed, service } from "./support/http.ts"

layer(service(), options)("management routes", (it) => {
  describe("spec 3: management routes", () => {
    it.effect("an unknown server is 404 on every route", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { paths } = (yield* api.request("GET", "/openapi.json")).json
        let routes = 0
        const bodies: Readonly<Record<string, object>> = {
          power: { action: "stop" },
          commands: { commands: ["x"] },
          folder: { path: "/a" },
          move: { moves: [{ from: "/a", to: "/b" }] },
          copy: { copies: [{ from: "/a", to: "/b" }] },
          delete: { paths: ["/a"] },
          mode: { paths: ["/a"], mode: "0644" },
          pack: { paths: ["/a"], to: "/a.zip" },
          restore: { backup_id: "abcdef012345" },
          unpack: { path: "/a.zip", to: "/a" }
        }
        for (const [path, operations] of Object.entries<object>(paths)) {
          // Uploads ask for the version of tus first.
          if (!path.startsWith("/api/servers/{server}") || path.includes("/uploads")) continue
          for (const method of Object.keys(operations)) {
            routes++
            for (const id of ["nope", "srv_00000000000000000000000000", "__proto__"]) {
              const body = bodies[path.slice(path.lastIndexOf("/") + 1)] ?? {}
              const named = path.includes("/files/") && !path.endsWith("/diff")
              const query = named && method !== "post" ? "?path=/a" : ""
              const url = `${path.replace("{server}", id)}${query}`
              const answer = yield* api.request(method.toUpperCase(), url, {
                ...(method === "post" ? { body } : method === "patch" ? { body: {} } : {})
              })
              assertError(answer, 404, `server not found: ${id}`)
            }
          }
        }
        assert.isAbove(routes, 20)
      })
    )

    it.effect("a running server has a status, stats, logs, commands and power actions", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "kept")
        const at = (path: string) => `/api/servers/${id}${path}`
        assert.deepStrictEqual((yield* api.request("GET", at("/status"))).json, { status: "running" })
        const stats = yield* expectStatus(api, 200, "GET", at("/stats?update_disk_usage=true"))
        // Without cgroups, a limit is a warning.
        const { warnings: _, ...figures } = stats.json
        assert.deepStrictEqual(keysOf(figures), [
          "cpu_absolute",
          "cpu_absolute_limit",
          "disk_bytes",
          "disk_max",
          "memory_bytes",
          "memory_limit_bytes",
          "network",
          "overlay_bytes",
          "state",
          "uptime"
        ])
        assert.deepStrictEqual(keysOf(stats.json.network), ["rx_bytes", "tx_bytes"])
        assert.strictEqual(stats.json.state, "running")

        const sent = yield* api.request("POST", at("/commands"), { body: { commands: ["say hi", "say ho"] } })
        assert.deepStrictEqual([sent.status, sent.text], [204, ""])
        const newest = Effect.map(expectStatus(api, 200, "GET", at("/logs?size=2")), ({ json }) => json)
        yield* eventually(newest, ({ data }) => data.join() === "got say hi,got say ho")
        const one = yield* expectStatus(api, 200, "GET", at("/logs?size=0"))
        assert.deepStrictEqual(one.json.data, ["got say ho"])
        assert.deepStrictEqual(keysOf(one.json), ["data", "meta"])
        assert.deepStrictEqual(keysOf(one.json.meta.pagination), [
          "current_page",
          "per_page",
          "total",
          "total_pages"
        ])
        for (const [query, per_page, current_page] of [
          ["", 100, 1],
          ["?size=101", 100, 1],
          ["?size=", 100, 1],
          ["?size=-3", 1, 1],
          ["?size=5&per_page=7", 7, 1],
          ["?page=2", 100, 2],
          ["?page=2&per_page=1", 1, 2],
          ["?per_page=1001", 1000, 1],
          ["?per_page=&page=", 100, 1],
          ["?per_page=99999999999999999999", 1000, 1]
        ] as const) {
          const { meta } = (yield* expectStatus(api, 200, "GET", at(`/logs${query}`))).json
          assert.strictEqual(meta.pagination.per_page, per_page, query)
          assert.strictEqual(meta.pagination.current_page, current_page, query)
        }
        const second = yield* expectStatus(api, 200, "GET", at("/logs?page=2&per_page=1"))
        assert.deepStrictEqual(second.json.data, ["got say hi"])

        assertError(yield* api.request("POST", at("/reinstall")), 409, `server is running: ${id}`)
        assert.strictEqual((yield* powered(api, id, "start")).text, "")
        yield* powered(api, id, "stop", 10)
        yield* becomes(api, id, "offline")
        yield* powered(api, id, "stop")
        assertError(yield* api.request("POST", at("/commands"), { body: { commands: ["x"] } }), 409)
        assertError(yield* api.request("POST", at("/power"), { body: { action: "pause" } }), 409)
        yield* removed(id)
      })
    )

    it.effect("an installation has a phase, a script and a log; reinstall and reset are 202", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        const at = (path: string) => `/api/servers/${id}${path}`
        const install = (yield* expectStatus(api, 200, "GET", at("/install"))).json
        assert.strictEqual(install.phase, "ready")
        assert.strictEqual(install.entrypoint, "sh")
        assert.strictEqual(install.skip_scripts, false)
        assert.include(install.script, "INSTALL_DIR")
        for (const key of keysOf(install)) {
          assert.include(
            [
              "entrypoint",
              "exit_code",
              "failure_reason",
              "finished_at",
              "phase",
              "script",
              "skip_scripts",
              "started_at",
              "steps"
            ],
            key
          )
        }
        const lines = (yield* expectStatus(api, 200, "GET", at("/install/logs?per_page=5000"))).json
        assert.deepStrictEqual(keysOf(lines), ["data", "meta"])
        assert.strictEqual(lines.meta.pagination.per_page, 1000)
        for (const action of ["reinstall", "reset"]) {
          const answer = yield* expectStatus(api, 202, "POST", at(`/${action}`))
          assert.strictEqual(answer.text, "")
          yield* becomes(api, id, "offline")
        }
        yield* removed(id)
      })
    )

    it.effect(
      "during an installation, routes that need the server offline or running are 409; deletion works",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* create(api, "endless")
          const at = (path: string) => `/api/servers/${id}${path}`
          yield* eventually(api.request("GET", at("/install/logs")), ({ json }) =>
            json?.data?.includes("begun")
          )
          // The node reports after its script has run.
          yield* eventually(
            expectStatus(api, 200, "GET", at("/install")),
            ({ json }) => json.phase === "installing"
          )
          for (const action of ["restart", "stop", "pause", "unpause"]) {
            assertError(
              yield* api.request("POST", at("/power"), { body: { action } }),
              409,
              `server is installing: ${id}`
            )
          }
          assertError(yield* api.request("POST", at("/commands"), { body: { commands: ["x"] } }), 409)
          assertError(yield* api.request("POST", at("/reinstall")), 409)
          yield* removed(id)
          assertError(yield* api.request("DELETE", at("")), 404)
          assertError(yield* api.request("DELETE", at("?force=true")), 404)
        })
    )
  })
})
