import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, definitions, softwareFile, writeFiles } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { statementsOn } from "../support/postgresDatabase.ts"
import { nodeOf, replicaSet } from "../support/replicaSet.ts"
import type { Service } from "../support/Service.ts"
import { create, expectStatus } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const statuses = (replicas: ReadonlyArray<Service>, key: string) =>
  Effect.forEach(
    replicas,
    (api) => Effect.map(api.request("GET", "/api/servers", { key }), ({ status }) => status),
    { concurrency: "unbounded" }
  )

describe("design: replicas are equal", () => {
  it.live(
    "a key that a command creates works at every replica, and a key that it revokes at none",
    () =>
      Effect.gen(function* () {
        const set = yield* replicaSet()
        const replicas = [yield* set.start(), yield* set.start(), yield* set.start()]
        for (let round = 0; round < 3; round++) {
          const { id, key } = yield* set.key(`key ${round}`)
          yield* eventually(statuses(replicas, key), (all) => all.every((status) => status === 200))
          const before = performance.now()
          yield* set.command("keys", "revoke", id)
          const revoked = performance.now()
          yield* eventually(statuses(replicas, key), (all) => all.every((status) => status === 401))
          const refused = performance.now()
          yield* Effect.logInfo(
            `revoked after ${Math.round(revoked - before)} ms, refused everywhere ${Math.round(refused - revoked)} ms later`
          )
        }
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "spec 3.3: one Idempotency-Key at two replicas at once creates one server, and both publish it",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const [one, other] = [yield* set.start(), yield* set.start()]
        yield* nodeOf(set, one, "n1", "31000-31199")
        yield* nodeOf(set, other, "n2", "31200-31399")
        const keys = Array.from({ length: 25 }, (_, n) => `key-${n}`)
        const ask = (api: Service, key: string) =>
          api.request("POST", "/api/servers", {
            body: { blueprint_id: "kept" },
            headers: { "idempotency-key": key }
          })
        const answers = yield* Effect.forEach(
          keys,
          (key) =>
            Effect.all([ask(one, key), ask(other, key), ask(one, key), ask(other, key)], {
              concurrency: "unbounded"
            }),
          { concurrency: 5 }
        )
        for (const same of answers) {
          assert.deepStrictEqual(
            same.map(({ status, text }) => ({ status, text })),
            same.map(() => ({ status: 202, text: same[0].text }))
          )
        }
        const ids = answers.map(([first]) => first.json.id)
        assert.strictEqual(new Set(ids).size, keys.length)
        for (const api of [one, other]) {
          yield* eventually(
            Effect.map(expectStatus(api, 200, "GET", "/api/servers?ids_only=true"), ({ json }) => json),
            (listed) => JSON.stringify(listed.toSorted()) === JSON.stringify(ids.toSorted())
          )
        }
        const conflict = yield* other.request("POST", "/api/servers", {
          body: { blueprint_id: "kept", start: true },
          headers: { "idempotency-key": "key-0" }
        })
        assert.strictEqual(conflict.status, 409)
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "spec 5.5: the ticket of a stream whose replica is killed opens the stream again at another one",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const [one, other, third] = [yield* set.start(), yield* set.start(), yield* set.start()]
        yield* nodeOf(set, one, "n1", "31000-31199")
        const { ticket } = (yield* expectStatus(one, 201, "POST", "/api/events/tickets")).json
        const connect = (api: Service, cursor: number | "now") =>
          subscribe({ url: api.url, key: "none" }, `/api/events?ticket=${ticket}&cursor=${cursor}`, {
            key: null
          })
        const first = yield* connect(other, "now")
        const id = yield* create(one, "kept")
        const installing = yield* eventually(Effect.sync(first.events), (events) => events.length > 0)
        yield* other.kill("SIGKILL")
        yield* eventually(Effect.sync(first.ended))
        yield* expectStatus(one, 200, "DELETE", `/api/servers/${id}?force=true`)
        const second = yield* connect(third, installing.at(-1)?.Cursor ?? 0)
        yield* eventually(Effect.sync(() => second.of(id).at(-1) === "deleted"))
        // The stream is open at one replica only, whichever the reconnect reaches.
        const last = yield* connect(one, "now")
        yield* eventually(Effect.sync(second.ended))
        assert.isFalse(last.ended())
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "spec 4.4: a reload at one replica reloads all, each from its own disk",
    () =>
      Effect.gen(function* () {
        const folders = [yield* definitions(files), yield* definitions(files), yield* definitions(files)]
        const set = yield* replicaSet()
        const replicas = yield* Effect.forEach(folders, ({ env }) => set.start(env))
        const [one, other, third] = replicas
        assert.isDefined(one)
        assert.isDefined(other)
        assert.isDefined(third)
        const names = (api: Service) =>
          Effect.map(expectStatus(api, 200, "GET", "/api/blueprints"), ({ json }) =>
            json.data.map(
              (blueprint: { readonly metadata: { readonly name: string } }) => blueprint.metadata.name
            )
          )
        const renamed = (name: string) => ({
          "kept.yml": blueprintFile("kept", "game").replace('"name": "kept"', `"name": "${name}"`)
        })
        for (const { blueprints } of folders.slice(0, 2)) yield* writeFiles(blueprints, renamed("second"))
        yield* writeFiles(folders[2]?.blueprints ?? "", { "kept.yml": "blueprint: [" })
        yield* expectStatus(one, 200, "POST", "/api/blueprints/reload")
        assert.deepStrictEqual(yield* names(one), ["second"])
        yield* eventually(names(other), (now) => now.join() === "second")
        // Unreadable definitions keep the previous set, and the log has a hint.
        yield* eventually(Effect.sync(third.output), (text) => text.includes("this one could not"))
        assert.match(
          third.output(),
          /another replica has reloaded, this one could not: .*kept\.yml.*POST \/api\/blueprints\/reload/
        )
        assert.deepStrictEqual(yield* names(third), ["kept"])
        // A reload triggers no further reload.
        yield* writeFiles(folders[2]?.blueprints ?? "", renamed("second"))
        yield* expectStatus(third, 200, "POST", "/api/blueprints/reload")
        yield* expectStatus(third, 200, "POST", "/api/software/reload")
        const reloads = (api: Service) =>
          (api.output().match(/(blueprints|software): reloaded/g) ?? []).length
        yield* eventually(
          Effect.sync(() => replicas.map(reloads)),
          (counts) => counts.join() === "3,3,2"
        )
        const [entries] = yield* statementsOn(
          set.url,
          "SELECT COUNT(*)::int AS count FROM journal WHERE topic = 'definitions:reloaded'"
        )
        assert.deepStrictEqual(entries, [{ count: 3 }])
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "a service with an embedded node has its database alone: a second service is refused, on either side",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        // With this timeout, only the deregistration can disconnect the node during this test.
        const set = yield* replicaSet({ ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3600" })
        const names = (api: Service) =>
          Effect.map(api.request("GET", "/api/nodes"), ({ json }) =>
            json.map(({ name }: { readonly name: string }) => name)
          )
        const inside = { MUSTER_EMBEDDED_NODE: "true", MUSTER_NODE_NAME: "inside" }
        const own = yield* set.start(inside)
        assert.deepStrictEqual(yield* names(own), ["inside"])
        const second = yield* Effect.flip(set.start())
        assert.match(
          second.message,
          /node \S+ is in another service on this database, which alone reaches it: there, set/
        )
        yield* own.kill("SIGTERM")
        const next = yield* set.start()
        assert.deepStrictEqual(yield* names(next), [])
        const third = yield* Effect.flip(set.start(inside))
        assert.match(
          third.message,
          /other services run on this database, and cannot reach the node in this one: set/
        )
      }).pipe(Effect.scoped)
  )
})
