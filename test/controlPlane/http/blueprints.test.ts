import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, definitions, softwareFile } from "../../support/definitions.ts"
import { startService } from "../../support/Service.ts"
import { expectStatus } from "../../support/servers.ts"
import { assertError, keysOf, noNode } from "./support/http.ts"

const many = 60
const ids = Array.from({ length: many }, (_, i) => `world-${String(i).padStart(2, "0")}`)

const start = Effect.gen(function* () {
  const folders = yield* definitions({
    software: {
      "game.yml": softwareFile("game", {
        extra: {
          images: { stable: "ghcr.io/example/game:1" },
          mappings: [{ stable: "1.0" }],
          runtimes: ["docker"]
        }
      })
    },
    blueprints: {
      ...Object.fromEntries(ids.map((id) => [`${id}.yml`, blueprintFile(id, "game")])),
      "mixin.yml": JSON.stringify({
        mixin: { id: "common", description: "For all" },
        annotations: { tags: ["x"] },
        files: { deny: ["*.key"] }
      }),
      "full.yml": blueprintFile("zz-full", "game", {
        rest: { includes: ["common"], state: { env: { MOTD: "hi" }, copy: ["a:b"] } }
      })
    }
  })
  const api = yield* startService({ env: { ...noNode, ...folders.env } })
  return { api, folders }
})

const list = (api: Effect.Success<typeof start>["api"], query = "") =>
  Effect.map(expectStatus(api, 200, "GET", `/api/blueprints${query}`), ({ json }) => json)

describe("spec 4.1: blueprints", () => {
  it.live("the list is sorted by id, paginated, and has exactly the documented fields", () =>
    Effect.gen(function* () {
      const { api } = yield* start
      const first = yield* list(api)
      assert.deepStrictEqual(keysOf(first), ["data", "meta"])
      assert.deepStrictEqual(first.meta, {
        pagination: { total: many + 1, per_page: 50, current_page: 1, total_pages: 2 }
      })
      assert.deepStrictEqual(
        first.data.map((item: { readonly metadata: { readonly id: string } }) => item.metadata.id),
        ids.slice(0, 50)
      )
      assert.deepStrictEqual(first.data[0], {
        metadata: { id: "world-00", name: "world-00", type: "test" },
        server: {
          software: "game",
          version: "1.0",
          image: "ghcr.io/example/game:1",
          limits: { memory_limit: 64 }
        },
        state: null,
        save: true,
        annotations: {}
      })
      assert.deepStrictEqual(yield* list(api, "?meta=anything"), first)

      for (const [query, per_page, current_page, length] of [
        ["page=1", 50, 1, 50],
        ["page=2", 50, 2, 11],
        ["page=3", 50, 3, 0],
        ["page=0", 50, 1, 50],
        ["page=-5", 50, 1, 50],
        ["page=x", 50, 1, 50],
        ["page=1.5", 50, 1, 50],
        ["page=", 50, 1, 50],
        ["limit=10", 10, 1, 10],
        ["limit=10&page=7", 10, 7, 1],
        ["limit=1", 1, 1, 1],
        ["limit=0", 20, 1, 20],
        ["limit=-1", 20, 1, 20],
        ["limit=x", 20, 1, 20],
        ["limit=2.5", 20, 1, 20],
        ["limit=61", 61, 1, 61],
        ["limit=1000", 1000, 1, 61],
        ["limit=1001", 1000, 1, 61],
        ["limit=999999999", 1000, 1, 61],
        ["limit=0&page=4", 20, 4, 1],
        ["per_page=10&page=7", 10, 7, 1],
        ["limit=10&per_page=20", 10, 1, 10]
      ] as const) {
        const { meta, data } = yield* list(api, `?${query}`)
        assert.deepStrictEqual(
          meta.pagination,
          { total: 61, per_page, current_page, total_pages: Math.ceil(61 / per_page) },
          query
        )
        assert.strictEqual(data.length, length, query)
      }

      const full = yield* expectStatus(api, 200, "GET", "/api/blueprints/zz-full")
      assert.deepStrictEqual(full.json, {
        ...first.data[0],
        metadata: { id: "zz-full", name: "zz-full", type: "test" },
        state: { volumes: [], mounts: [], copy: [{ source: "a", target: "b" }], env: { MOTD: "hi" } },
        files: { deny: ["*.key"] },
        annotations: { tags: ["x"] }
      })
      assertError(yield* api.request("GET", "/api/blueprints/nope"), 404, "blueprint not found: nope")

      const mixins = yield* expectStatus(api, 200, "GET", "/api/mixins")
      const mixin = yield* expectStatus(api, 200, "GET", "/api/mixins/common")
      assert.deepStrictEqual(mixins.json, [mixin.json])
      assert.deepStrictEqual(keysOf(mixin.json), [
        "annotations",
        "description",
        "extends",
        "files",
        "id",
        "mixin",
        "server",
        "state"
      ])
      assertError(yield* api.request("GET", "/api/mixins/nope"), 404, "mixin not found: nope")

      const software = yield* expectStatus(api, 200, "GET", "/api/software")
      const game = yield* expectStatus(api, 200, "GET", "/api/software/game")
      assert.deepStrictEqual(software.json, [game.json])
      assert.deepStrictEqual(keysOf(game.json), [
        "configs",
        "id",
        "images",
        "install_script",
        "limits",
        "mappings",
        "name",
        "process",
        "runtimes"
      ])
      assertError(yield* api.request("GET", "/api/software/nope"), 404, "software not found: nope")
    })
  )

  it.live("an empty folder is an empty list with no pages", () =>
    Effect.gen(function* () {
      const folders = yield* definitions({ blueprints: {}, software: {} })
      const api = yield* startService({ env: { ...noNode, ...folders.env } })
      assert.deepStrictEqual(yield* list(api), {
        meta: { pagination: { total: 0, per_page: 50, current_page: 1, total_pages: 0 } },
        data: []
      })
      assert.deepStrictEqual((yield* api.request("GET", "/api/mixins")).json, [])
      assert.deepStrictEqual((yield* api.request("GET", "/api/software")).json, [])
    })
  )
})

describe("spec 4.4: reload", () => {
  it.live("a reload is 200 with an empty body and takes effect at once, all or nothing", () =>
    Effect.gen(function* () {
      const { api, folders } = yield* start
      const total = Effect.map(list(api), ({ meta }) => meta.pagination.total)
      const reload = (kind: string) => api.request("POST", `/api/${kind}/reload`)
      const write = (folder: string, name: string, text: string) =>
        Effect.sync(() => writeFileSync(join(folder, name), text))

      yield* write(folders.blueprints, "new.yml", blueprintFile("new", "game"))
      assert.strictEqual(yield* total, many + 1)
      const done = yield* reload("blueprints")
      assert.deepStrictEqual([done.status, done.text], [200, ""])
      assert.strictEqual(yield* total, many + 2)

      yield* write(folders.blueprints, "other.yml", blueprintFile("other", "game"))
      yield* write(
        folders.blueprints,
        "broken.yml",
        "blueprint: { id: broken, name: x, type: x }\nserver:\n  sofware: game\n"
      )
      yield* write(folders.blueprints, "unread.yml", "blueprint: [")
      yield* write(
        folders.blueprints,
        "conflict.yml",
        `blueprint: { id: conflict }
server: { software: game, version: "1.0" }
state: { volumes: ["lib:lib:/lib:ro", "a:a:lib/a"] }
`
      )
      const failed = yield* reload("blueprints")
      const { detail = "" } = assertError(failed, 422)
      assert.match(detail, /broken\.yml:3:\d+/)
      assert.match(detail, /software/)
      assert.match(detail, /unread\.yml:1:\d+/)
      assert.match(
        detail,
        /^conflict\.yml:3:39: the target `lib\/a` of volume `a` \(cow\) lies in `\/lib` of volume/m
      )
      assert.notInclude(detail, folders.blueprints)
      assert.strictEqual(yield* total, many + 2)

      for (const name of ["broken.yml", "unread.yml", "conflict.yml", "new.yml"])
        rmSync(join(folders.blueprints, name))
      assert.strictEqual((yield* reload("blueprints")).status, 200)
      assertError(yield* api.request("GET", "/api/blueprints/new"), 404)
      yield* expectStatus(api, 200, "GET", "/api/blueprints/other")

      yield* write(folders.software, "second.yml", softwareFile("second"))
      const both = yield* Effect.all(
        Array.from({ length: 5 }, () => reload("software")),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        both.map(({ status, text }) => [status, text]),
        both.map(() => [200, ""])
      )
      yield* expectStatus(api, 200, "GET", "/api/software/second")
      yield* write(folders.software, "third.yml", "software: { id: third }")
      assertError(yield* reload("software"), 422, /third\.yml/)
      assertError(yield* api.request("GET", "/api/software/third"), 404)
    })
  )
})
