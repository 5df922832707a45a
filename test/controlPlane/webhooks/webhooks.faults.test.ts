import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDatabase } from "../../support/database.ts"
import { definitions } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { makeRestartingService } from "../../support/faults/index.ts"
import { adminKey, startService } from "../../support/Service.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { games } from "../http/support/http.ts"
import { messages, receiver } from "./receiver.ts"

const isPublic = (topic: string) => !topic.includes(":")

const env = { MUSTER_WEBHOOK_ALLOW_PRIVATE: "true", APP_ADMIN_API_KEY: adminKey }

describe("spec 7.2: faults", () => {
  it.live(
    "every event is delivered at least once and in order for each server, through kill -9 and failures of the receiver",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const dataDir = `${yield* temporaryFolder}/data`
        const target = yield* receiver
        let requests = 0
        yield* target.respond(() => (++requests % 7 === 0 ? 500 : 200))
        const service = yield* makeRestartingService({ dataDir, env: { ...env, ...folders.env } })
        const current = yield* service.current
        const { json: hook } = yield* expectStatus(current, 201, "POST", "/api/webhooks", {
          body: { url: target.url, topics: ["status", "crash", "deleted", "install"] }
        })
        const ids = yield* Effect.forEach([1, 2, 3, 4], () => installed(current, "kept"))
        for (let round = 0; round < 4; round++) {
          for (const id of ids)
            yield* service.send("POST", `/api/servers/${id}/power`, { body: { action: "restart" } })
          yield* service.killAndRestart()
          const again = yield* service.current
          // A failing webhook is tried again at once.
          yield* expectStatus(again, 200, "PATCH", `/api/webhooks/${hook.id}`, {
            body: { description: `${round}` }
          })
        }
        const last = yield* service.current
        yield* target.respond(() => 200)
        for (const id of ids) yield* expectStatus(last, 200, "DELETE", `/api/servers/${id}`)
        yield* expectStatus(last, 200, "PATCH", `/api/webhooks/${hook.id}`, { body: { description: "end" } })
        const { journal } = yield* readDatabase(dataDir)
        const expected = journal
          .filter(
            ({ change: { topic }, cursor }) =>
              cursor > hook.cursor && (isPublic(topic) || topic === "server:install")
          )
          .map(({ cursor }) => cursor)
        assert.isAtLeast(expected.length, 20)
        const cursorsOf = () => target.received().map(({ body }): number => JSON.parse(body).Cursor)
        yield* eventually(
          () => new Set(cursorsOf()).size,
          (size) => size === expected.length
        )
        assert.deepStrictEqual(
          [...new Set(cursorsOf())].toSorted((a, b) => a - b),
          expected
        )
        for (const id of ids) {
          const firstTimes = [
            ...new Set(
              target
                .received()
                .flatMap(({ body }) => (body.includes(id) ? [Number(JSON.parse(body).Cursor)] : []))
            )
          ]
          assert.deepStrictEqual(
            firstTimes,
            firstTimes.toSorted((a, b) => a - b)
          )
        }
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "an event that is refused delays no event of another server, also one many entries later",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const target = yield* receiver
        const api = yield* startService({
          dataDir: `${yield* temporaryFolder}/data`,
          env: { ...env, ...folders.env }
        })
        const [first, second] = [yield* installed(api, "kept"), yield* installed(api, "kept")]
        yield* target.respond(({ body }) => (body.includes(first) ? 500 : 200))
        const { json: hook } = yield* expectStatus(api, 201, "POST", "/api/webhooks", {
          body: { url: target.url, topics: ["status"] }
        })
        const again = expectStatus(api, 200, "PATCH", `/api/webhooks/${hook.id}`, {
          body: { description: "again" }
        })
        yield* expectStatus(api, 200, "POST", `/api/servers/${first}/power`, { body: { action: "start" } })
        yield* eventually(
          Effect.map(expectStatus(api, 200, "GET", `/api/webhooks/${hook.id}`), ({ json }) => json.state),
          (state) => state === "retrying"
        )
        // More entries of the journal than one page.
        yield* Effect.forEach(
          Array.from({ length: 1100 }),
          (_, index) =>
            expectStatus(api, 200, "PATCH", `/api/servers/${second}`, {
              body: { labels: { n: `${index}` } }
            }),
          { concurrency: 16, discard: true }
        )
        yield* expectStatus(api, 200, "POST", `/api/servers/${second}/power`, { body: { action: "start" } })
        yield* expectStatus(api, 200, "GET", `/api/servers/${second}?wait=running`)
        yield* again
        yield* eventually(
          () => messages(target.received(), second),
          (all) => all.includes("running")
        )
        yield* target.respond(() => 200)
        yield* again
        yield* eventually(
          () => messages(target.received(), first),
          (all) => all.includes("running")
        )
        assert.deepStrictEqual(messages(target.received(), second), ["starting", "running"])
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "the events of a deleted server match a label after a restart",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const dataDir = `${yield* temporaryFolder}/data`
        const target = yield* receiver
        yield* target.respond(() => 503)
        const service = yield* makeRestartingService({ dataDir, env: { ...env, ...folders.env } })
        const api = yield* service.current
        const { json: hook } = yield* expectStatus(api, 201, "POST", "/api/webhooks", {
          body: { url: target.url, topics: ["deleted"], label: "team=red" }
        })
        const [red, blue] = yield* Effect.forEach(["red", "blue"], (team) =>
          installed(api, "kept", { labels: { team } })
        )
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${blue}`)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${red}`)
        yield* service.killAndRestart()
        yield* target.respond(() => 200)
        const again = yield* service.current
        const body = { description: "try again at once" }
        yield* expectStatus(again, 200, "PATCH", `/api/webhooks/${hook.id}`, { body })
        const shown = Effect.map(
          expectStatus(again, 200, "GET", `/api/webhooks/${hook.id}`),
          ({ json }) => json
        )
        yield* eventually(shown, ({ state }) => state === "active")
        const servers = () => target.received().map(({ body }) => JSON.parse(body).Data.server_id)
        yield* eventually(servers, (ids) => ids.length > 0)
        assert.deepStrictEqual([...new Set(servers())], [red])
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "a receiver that hangs fails after 10 s; a webhook that fails for 24 h is parked until it is replayed",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const dataDir = `${yield* temporaryFolder}/data`
        const target = yield* receiver
        yield* target.respond(() => "hang")
        const options = { dataDir, env: { ...env, ...folders.env } }
        const id = yield* Effect.gen(function* () {
          const api = yield* startService(options)
          const { json: hook } = yield* expectStatus(api, 201, "POST", "/api/webhooks", {
            body: { url: target.url }
          })
          yield* installed(api, "kept")
          const shown = yield* eventually(
            Effect.map(expectStatus(api, 200, "GET", `/api/webhooks/${hook.id}`), ({ json }) => json),
            ({ state }) => state === "retrying"
          )
          assert.strictEqual(shown.failure, "no response within 10 s")
          return hook.id
        }).pipe(Effect.scoped)
        yield* Effect.sync(() => {
          const database = new DatabaseSync(join(dataDir, "muster.db"))
          database.exec(`UPDATE webhooks SET failing_since = failing_since - ${25 * 60 * 60 * 1000}`)
          database.close()
        })
        yield* target.respond(() => 503)
        const api = yield* startService(options)
        const shown = Effect.map(expectStatus(api, 200, "GET", `/api/webhooks/${id}`), ({ json }) => json)
        yield* eventually(shown, ({ state }) => state === "parked")
        yield* target.respond(() => 200)
        const before = target.received().length
        const { cursor } = yield* shown
        yield* expectStatus(api, 200, "POST", `/api/webhooks/${id}/replay`, { body: { cursor } })
        yield* eventually(shown, ({ state }) => state === "active")
        yield* eventually(
          () => target.received().length,
          (count) => count > before
        )
      }).pipe(Effect.scoped),
    90_000
  )
})
