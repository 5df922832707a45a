import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { formatKey, KEY_BYTES } from "../../../src/controlPlane/keys/keyFormat.ts"
import { assertError } from "../../controlPlane/http/support/http.ts"
import { subscriber } from "../../support/balancer.ts"
import { blueprintFile, definitions, softwareFile } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { startPostgres } from "../../support/postgres.ts"
import { nodeOf, replicaSet } from "../../support/replicaSet.ts"
import { adminKey } from "../../support/Service.ts"
import { create, expectStatus } from "../../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

describe("spec 9.6: database away, route by route", () => {
  it.live(
    "reads and streams work, routes that need the database are 503 with the reason, and the service recovers",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const server = yield* startPostgres({ durable: true })
        const set = yield* replicaSet({ ...env, MUSTER_DATABASE_TIMEOUT: "1000" }, server)
        const api = yield* set.start()
        const other = yield* set.start()
        yield* nodeOf(set, api, "n1", "30000-34999")
        const good = yield* set.key("good")
        const bad = yield* set.key("bad")
        const first = yield* create(api, "kept")
        for (const { key } of [good, bad]) yield* expectStatus(api, 200, "GET", "/api/servers", { key })
        const before = yield* subscribe(api)

        yield* server.kill
        const unready = yield* eventually(api.request("GET", "/readyz"), ({ status }) => status === 503)
        assertError(unready, 503, "the database cannot be reached")
        assert.strictEqual(unready.headers.get("retry-after"), "1")
        for (const path of [
          "/api/servers",
          `/api/servers/${first}`,
          "/api/nodes",
          "/api/blueprints",
          "/healthz"
        ]) {
          yield* expectStatus(api, 200, "GET", path, { key: good.key })
        }
        // A key that is not cached cannot be checked now.
        assertError(yield* api.request("GET", "/api/servers", { key: unknownKey }), 503)
        for (const [method, path, body] of [
          ["POST", "/api/servers", { blueprint_id: "kept" }],
          ["POST", "/api/events/tickets", undefined],
          ["POST", "/api/software/reload", undefined],
          ["GET", "/api/events?cursor=1", undefined],
          ["GET", `/api/servers/${first}/events?cursor=0`, undefined]
        ] as const) {
          const answer = yield* api.request(method, path, body === undefined ? {} : { body })
          assertError(answer, 503, /^the database cannot be reached/)
          assert.strictEqual(answer.headers.get("retry-after"), "1")
        }
        const during = [
          yield* subscribe(api),
          yield* subscribe(api, `/api/servers/${first}/events`),
          yield* subscribe(api, "/api/events?topics=status")
        ] as const
        const socket = yield* subscriber("websocket", adminKey, Effect.succeed(api.url), { resume: false })
        yield* eventually(Effect.sync(socket.opened), (opened) => opened === 1)

        yield* server.start
        for (const replica of [api, other]) {
          yield* eventually(replica.request("GET", "/readyz"), ({ status }) => status === 200)
        }
        yield* set.command("keys", "revoke", bad.id)
        yield* eventually(
          Effect.map(api.request("GET", "/api/servers", { key: bad.key }), ({ status }) => status),
          (status) => status === 401
        )
        yield* expectStatus(api, 200, "GET", "/api/servers", { key: good.key })
        const second = yield* create(api, "kept")
        for (const stream of [before, during[0], during[2]]) {
          yield* eventually(
            Effect.sync(() => stream.of(second)),
            (received) => received[0] === "installing"
          )
          assert.isFalse(stream.ended())
        }
        yield* eventually(
          Effect.sync(() => socket.received().some(({ text }) => text.includes(second))),
          (received) => received
        )
        assert.deepStrictEqual(during[1].of(second), [])
        assert.deepStrictEqual(socket.endings(), [])
      }).pipe(Effect.scoped),
    120_000
  )
})

/** A well-formed key that does not exist. */
const unknownKey = formatKey(new Uint8Array(KEY_BYTES).fill(9))
