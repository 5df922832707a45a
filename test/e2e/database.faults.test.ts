import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { assertError } from "../controlPlane/http/support/http.ts"
import { muster } from "../support/command.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { printed } from "../support/docs.ts"
import { eventsAre, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { freeAllocations } from "../support/ports.ts"
import { startPostgres } from "../support/postgres.ts"
import { newPostgresDatabase } from "../support/postgresDatabase.ts"
import { endLeftovers } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { becomes, create, expectStatus, powered, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const games = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** A data folder and the settings of a service on it; remaining server processes end with the scope. */
const setup = Effect.gen(function* () {
  const folders = yield* definitions(games)
  const dataDir = join(yield* temporaryFolder, "data")
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  return { dataDir, env: { ...folders.env, ...(yield* freeAllocations(10)) } }
})

const rows = (status: string, table: string) => new RegExp(`^${table} +(\\d+)$`, "m").exec(status)?.[1]

describe("keys.md: keys on the database of a stopped service", () => {
  it.live(
    "`keys --database` makes, lists and revokes keys on PostgreSQL; beside a service it is refused",
    () =>
      Effect.gen(function* () {
        const url = yield* newPostgresDatabase()
        const keys = (...args: ReadonlyArray<string>) =>
          muster(["keys", ...args, "--database"], { MUSTER_DATABASE_URL: url })
        assert.strictEqual((yield* muster(["db", "migrate"], { MUSTER_DATABASE_URL: url })).code, 0)
        const made = yield* keys("create", "--name", "found")
        assert.match(made.stdout, /^mst_[A-Za-z0-9]{49}\n$/, made.stderr)
        yield* keys("create", "--name", "lost")
        assert.strictEqual((yield* keys("revoke", "lost", "--yes")).code, 0)
        assert.match((yield* keys("list")).stdout, /found/)

        const { dataDir, env } = yield* setup
        const api = yield* startService({ dataDir, env: { ...env, MUSTER_DATABASE_URL: url } })
        yield* expectStatus(api, 200, "GET", "/api/servers", { key: made.stdout.trim() })
        const beside = yield* keys("list")
        assert.deepStrictEqual([beside.code, beside.stdout], [1, ""])
        assert.match(beside.stderr, /^a service uses the database .*: run the command without --database/)
      }).pipe(Effect.scoped)
  )
})

describe("spec 9.6: database away", () => {
  it.live("reads work, writes are 503, streams stay open; the service recovers without a restart", () =>
    Effect.gen(function* () {
      const server = yield* startPostgres({ durable: true })
      const { dataDir, env } = yield* setup
      const url = yield* newPostgresDatabase(server)
      const api = yield* startService({
        dataDir,
        env: { ...env, MUSTER_DATABASE_URL: url, MUSTER_EMBEDDED_NODE: "true" }
      })
      const made = yield* muster(["keys", "create", "--name", "mine"], {
        MUSTER_DATA_DIR: dataDir,
        MUSTER_DATABASE_URL: url
      })
      const key = made.stdout.trim()
      const id = yield* running(api, "kept")
      const stream = yield* subscribe(api, "/api/events?cursor=0")
      yield* expectStatus(api, 200, "GET", "/api/servers", { key })

      for (const [away, back] of [
        [server.freeze, server.thaw],
        [server.kill, server.start]
      ] as const) {
        yield* away
        // The first write detects the outage; later writes fail without a wait.
        const creation = { body: { blueprint_id: "kept" } }
        for (let i = 0; i < 3; i++) {
          assertError(
            yield* api.request("POST", "/api/servers", creation),
            503,
            "the database cannot be reached"
          )
        }
        yield* expectStatus(api, 200, "GET", "/api/servers")
        yield* expectStatus(api, 200, "GET", `/api/servers/${id}/status`, { key })
        yield* expectStatus(api, 200, "GET", "/healthz")
        assert.strictEqual((yield* api.request("GET", "/readyz")).status, 503)
        assert.isFalse(stream.ended())
        yield* back
        yield* eventually(api.request("GET", "/readyz"), ({ status }) => status === 200)
        const next = yield* create(api, "kept")
        yield* becomes(api, next, "offline")
        yield* eventsAre(stream, next, ["installing", "offline"])
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${next}`)
      }
      // The node has kept the reports of the outage.
      yield* powered(api, id, "stop")
      yield* becomes(api, id, "offline")
      assert.isFalse(stream.ended())
      assert.notInclude(api.output(), "pass word")
      assert.notInclude(api.output(), encodeURIComponent("pass word"))
    }).pipe(Effect.scoped)
  )
})

describe("docs/database.md", () => {
  it.live("an installation moves to PostgreSQL and back, and a service starts from a backup", () =>
    Effect.gen(function* () {
      const { dataDir, env } = yield* setup
      const sqlite = {
        MUSTER_DATA_DIR: dataDir,
        MUSTER_DATABASE_URL: `sqlite:${join(dataDir, "muster.db")}`
      }
      const backup = join(dataDir, "backup.db")
      const settings = { ...env, MUSTER_EMBEDDED_ON_SHUTDOWN: "keep", MUSTER_EMBEDDED_NODE: "true" }
      const id = yield* Effect.scoped(
        Effect.gen(function* () {
          const api = yield* startService({ dataDir, env: { ...settings, ...sqlite } })
          const made = yield* running(api, "kept")
          const saved = yield* muster(["db", "backup", backup], sqlite)
          assert.deepStrictEqual([saved.code, saved.stderr], [0, ""])
          const refused = yield* muster(
            ["db", "copy", "--from", sqlite.MUSTER_DATABASE_URL, "--to", `sqlite:${dataDir}/other.db`],
            sqlite
          )
          assert.strictEqual(refused.code, 1)
          assert.match(refused.stderr, /^a muster service runs on SQLite \S+: stop it first\n$/)
          return made
        })
      )
      const postgres = { MUSTER_DATA_DIR: dataDir, MUSTER_DATABASE_URL: yield* newPostgresDatabase() }
      const copy = printed("docs/database.md", "copy")
        .trim()
        .replace("npm run -s muster -- ", "")
        .replace("sqlite:data/muster.db", sqlite.MUSTER_DATABASE_URL)
        .replace("postgres://muster:secret@db.example.com/muster", postgres.MUSTER_DATABASE_URL)
      const copied = yield* muster(copy.split(" "), sqlite)
      assert.deepStrictEqual([copied.code, copied.stderr], [0, ""])
      assert.notInclude(copied.stdout, "pass")
      const before = yield* muster(["db", "status"], sqlite)
      const after = yield* muster(["db", "status"], postgres)
      for (const table of ["servers", "definitions", "ports", "nodes", "journal"]) {
        assert.strictEqual(rows(after.stdout, table), rows(before.stdout, table), table)
      }
      assert.match(after.stdout, /^Database: PostgreSQL test_\w+ on 127\.0\.0\.1:\d+$/m)
      const migrated = yield* muster(["db", "migrate"], postgres)
      assert.match(migrated.stdout, /: schema \d+, nothing to do\n$/)

      // The server has run on all the time; each start adopts it.
      const restored = { MUSTER_DATA_DIR: dataDir, MUSTER_DATABASE_URL: `sqlite:${backup}` }
      for (const database of [postgres, restored]) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const api = yield* startService({ dataDir, env: { ...settings, ...database } })
            yield* becomes(api, id, "running")
            const stream = yield* subscribe(api, "/api/events?cursor=0")
            yield* eventsAre(stream, id, ["installing", "offline", "starting", "running"])
          })
        )
      }
      const api = yield* startService({ dataDir, env: { ...env, ...restored } })
      yield* becomes(api, id, "running")
      const again = yield* create(api, "kept")
      yield* becomes(api, again, "offline")
    }).pipe(Effect.scoped)
  )

  it.live("an unreachable database or an invalid URL is one line without the password", () =>
    Effect.gen(function* () {
      const { dataDir, env } = yield* setup
      const base = { ...env, MUSTER_DATA_DIR: dataDir, MUSTER_PORT: "0", MUSTER_LOG_LEVEL: "error" }
      for (const [url, expected] of [
        [
          "postgres://u:s3cret@127.0.0.1:1/x",
          /^cannot open the database \(PostgreSQL x on 127\.0\.0\.1:1\): .*\n$/
        ],
        [
          "postgres://u:s3cret@127.0.0.1/x?sslmode=no",
          /^MUSTER_DATABASE_URL is "postgres:…"; it may be .*\n$/
        ]
      ] as const) {
        const ended = yield* muster(["serve"], { ...base, MUSTER_DATABASE_URL: url })
        assert.strictEqual(ended.code, 1)
        assert.match(ended.stderr, expected)
        assert.notInclude(ended.stderr + ended.stdout, "s3cret")
      }
    }).pipe(Effect.scoped)
  )
})
