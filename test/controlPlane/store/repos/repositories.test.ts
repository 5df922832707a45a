import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import { CapacityRepo } from "../../../../src/controlPlane/store/repos/CapacityRepo.ts"
import { IdempotencyRepo } from "../../../../src/controlPlane/store/repos/IdempotencyRepo.ts"
import { type KeyRecord, KeyRepo } from "../../../../src/controlPlane/store/repos/KeyRepo.ts"
import { type NodeRecord, NodeRepo } from "../../../../src/controlPlane/store/repos/NodeRepo.ts"
import { ServerRepo } from "../../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { branded, plain } from "../../../support/ids.ts"
import { key, node, server } from "../../../support/samples.ts"
import { append, type DatabaseKind, databases, freshStore, query } from "../support/database.ts"

type Services = Store | ServerRepo | NodeRepo | CapacityRepo | KeyRepo | IdempotencyRepo
const onFresh =
  (kind: DatabaseKind) =>
  <A, E>(test: Effect.Effect<A, E, Services | SqlClient.SqlClient>) =>
    test.pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))

const ports = Effect.map(query("SELECT server_id, address, port FROM ports ORDER BY port"), (rows) =>
  rows.map((row) => `${row.server_id} ${row.address}:${row.port}`)
)

describe.each(databases)("spec 2.4: placement and ports (%s)", (kind) => {
  const onFreshStore = onFresh(kind)

  it.effect("a record is read as it was inserted, with and without overrides", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* ServerRepo
        const { overrides: _, ...plain } = server("srv_2", [25_566])
        const full = server("srv_1", [25_565, 25_575])
        assert.strictEqual(yield* store.write(repo.insert(plain)), "inserted")
        assert.strictEqual(yield* store.write(repo.insert(full)), "inserted")
        assert.deepStrictEqual(yield* store.read(repo.all), [full, plain])
        assert.deepStrictEqual(
          yield* store.read(repo.find([ServerId.make("srv_2"), ServerId.make("unknown")])),
          [plain]
        )
        assert.deepStrictEqual(yield* store.read(repo.find([])), [])
        const many = Array.from({ length: 40_000 }, (_, i) => ServerId.make(`srv_${i}`))
        assert.deepStrictEqual(yield* store.read(repo.find(many)), [full, plain])
        assert.deepStrictEqual(yield* store.write(repo.lock(ServerId.make("srv_1"))), full)
        assert.deepStrictEqual(yield* store.write(repo.lock(ServerId.make("unknown"))), undefined)
        assert.deepStrictEqual(yield* ports, [
          "srv_1 10.0.0.1:25565",
          "srv_2 10.0.0.1:25566",
          "srv_1 10.0.0.1:25575"
        ])
      })
    )
  )

  it.effect("all records are read, however many, and share equal definitions and equal parts of others", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* ServerRepo
        const some = Array.from({ length: 1_001 }, (_, n) => server(`srv_${1_000 + n}`, [1_000 + n]))
        const other = {
          ...server("srv_9", [9_000]),
          definition: { ...server("srv_9", []).definition, ports: 7 }
        }
        yield* store.write(repo.insertAll([...some, other]))
        const all = yield* store.read(repo.all)
        assert.deepStrictEqual(all, [...some, other])
        const stored = [...new Set(all.map(({ definition }) => definition))]
        assert.strictEqual(stored.length, 2)
        assert.strictEqual(stored[0]?.limits, stored[1]?.limits)
        yield* store.write(Effect.forEach(some.slice(1), ({ id }) => repo.remove(id), { discard: true }))
        assert.deepStrictEqual(yield* store.read(repo.all), [...some.slice(0, 1), other])
      })
    )
  )

  it.effect("a port that is held rolls back the record, and nothing else of the mutation", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        yield* store.write(repo.insert(server("srv_1", [1_000, 1_001])))
        const outcomes = yield* store.write(
          Effect.gen(function* () {
            yield* append("kept")
            return [
              yield* repo.insert(server("srv_2", [1_002, 1_001])),
              yield* repo.insert(server("srv_3", [1_002])),
              // The default port counts, whether or not the mappings have it.
              yield* repo.insert({
                ...server("srv_4", [1_003]),
                allocations: { ...server("srv_4", [1_002]).allocations, mappings: {} }
              }),
              yield* repo.insert(server("srv_5", [1_001], "node-2"))
            ]
          })
        )
        assert.deepStrictEqual(outcomes, ["port-taken", "inserted", "port-taken", "inserted"])
        assert.deepStrictEqual(
          (yield* store.read(repo.all)).map((record) => record.id),
          ["srv_1", "srv_3", "srv_5"]
        )
        assert.strictEqual((yield* ports).length, 4)
        assert.strictEqual((yield* query("SELECT cursor FROM journal")).length, 1)
      })
    )
  )

  it.effect("of several concurrent records, those whose ports are held are rolled back alone", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        assert.deepStrictEqual(yield* store.write(repo.insertAll([])), [])
        const all = Array.from({ length: 120 }, (_, n) => server(`srv_${100 + n}`, [1_000 + n]))
        assert.deepStrictEqual(
          yield* store.write(repo.insertAll(all)),
          all.map(() => "inserted" as const)
        )
        const outcomes = yield* store.write(
          Effect.tap(
            repo.insertAll([
              server("srv_1", [2_000], "node-2"),
              server("srv_2", [1_119]),
              server("srv_3", [2_001]),
              server("srv_4", [2_002, 2_001]),
              server("srv_5", [2_002])
            ]),
            () => append("kept")
          )
        )
        assert.deepStrictEqual(outcomes, ["inserted", "port-taken", "inserted", "port-taken", "inserted"])
        const kept = yield* store.read(repo.all)
        assert.deepStrictEqual(
          kept.map(({ id }) => id),
          ["srv_1", ...all.map(({ id }) => id), "srv_3", "srv_5"].toSorted()
        )
        assert.deepStrictEqual(
          kept.find(({ id }) => id === "srv_3"),
          server("srv_3", [2_001])
        )
        assert.strictEqual((yield* ports).length, 123)
        const held = yield* query("SELECT node_id FROM reservations ORDER BY node_id")
        assert.deepStrictEqual(
          held.map(({ node_id }) => node_id),
          [...Array.from({ length: 122 }, () => "node-1"), "node-2"]
        )
        assert.strictEqual((yield* query("SELECT cursor FROM journal")).length, 1)
      })
    )
  )

  it.effect("of 200 concurrent requests for a port one succeeds", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 200 }),
          (_, i) => store.write(repo.insert(server(`srv_${i}`, [25_565, 30_000 + i]))),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(outcomes.filter((outcome) => outcome === "inserted").length, 1)
        assert.strictEqual((yield* ports).length, 2)
      })
    )
  )

  it.effect("an existing id is a defect, not a taken port", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        yield* store.write(repo.insert(server("srv_1", [1])))
        const exit = yield* Effect.exit(store.write(repo.insert(server("srv_1", [2]))))
        assert.isTrue(Exit.hasDies(exit))
        assert.deepStrictEqual(yield* ports, ["srv_1 10.0.0.1:1"])
      })
    )
  )

  it.effect("a removed server frees its ports", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        yield* store.write(repo.insert(server("srv_1", [1, 2])))
        yield* store.write(repo.remove("srv_1"))
        yield* store.write(repo.remove("srv_1"))
        assert.deepStrictEqual(yield* ports, [])
        assert.strictEqual(yield* store.write(repo.insert(server("srv_2", [2]))), "inserted")
      })
    )
  )

  it.effect("an update of single fields keeps the others", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        const record = server("srv_1", [1])
        const install = { phase: "failed", exit_code: 3, failure_reason: "exit code 3" } as const
        yield* store.write(repo.insert(record))
        yield* store.write(
          Effect.all([
            repo.set("srv_1", { status: "offline" }),
            repo.set("srv_1", { install }),
            repo.set("srv_1", { start_pending: false }),
            repo.set("srv_1", { last_sequence: Number.MAX_SAFE_INTEGER }),
            repo.set("unknown", { status: "running" })
          ])
        )
        assert.deepStrictEqual(yield* store.read(repo.all), [
          {
            ...record,
            status: "offline",
            install,
            start_pending: false,
            last_sequence: Number.MAX_SAFE_INTEGER,
            updated_at: "1970-01-01T00:00:00.000Z"
          }
        ])
      })
    )
  )

  it.effect("a row that does not decode is a defect", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* ServerRepo)
        yield* store.write(repo.insert(server("srv_1", [1])))
        const sql = yield* SqlClient.SqlClient
        yield* store.write(sql`UPDATE servers SET install = '{"phase": "nonsense"}'`)
        assert.isTrue(Exit.hasDies(yield* Effect.exit(store.read(repo.all))))
      })
    )
  )
})

describe.each(databases)("spec 2.2: records of nodes (%s)", (kind) => {
  const onFreshStore = onFresh(kind)

  it.effect("a record is inserted, replaced without losing drained, marked as deregistered and removed", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* NodeRepo)
        const one = node("node-1")
        yield* store.write(repo.save(node("node-2")))
        yield* store.write(repo.save(one))
        assert.deepStrictEqual(yield* store.read(repo.all), [one, node("node-2")])
        assert.isTrue(yield* store.write(repo.setDrained("node-1", true)))
        const newer = { ...one, boot_id: "boot-2", token: "newer", last_seen_at: null, runtimes: [] }
        yield* store.write(repo.save(newer))
        assert.deepStrictEqual(yield* store.read(repo.find(["node-1", "zz"])), [{ ...newer, drained: true }])
        assert.isFalse(yield* store.write(repo.disconnect("node-1", "boot-1", "2026-02-02T00:00:00.000Z")))
        assert.isTrue(yield* store.write(repo.disconnect("node-1", "boot-2", "2026-02-02T00:00:00.000Z")))
        assert.isTrue(yield* store.write(repo.setDrained("node-1", false)))
        assert.strictEqual(yield* store.write(repo.remove("node-2")), 0)
        assert.isUndefined(yield* store.write(repo.remove("node-2")))
        assert.isFalse(yield* store.write(repo.setDrained("node-2", true)))
        assert.deepStrictEqual(yield* store.read(repo.all), [
          { ...newer, connected: false, departed: true, last_seen_at: "2026-02-02T00:00:00.000Z" }
        ])
      })
    )
  )

  it.effect("a record is not removed while servers reserve resources of its node", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* NodeRepo)
        const servers = plain(yield* ServerRepo)
        yield* store.write(repo.save(node("node-1")))
        yield* store.write(servers.insert(server("srv_1", [1_000])))
        yield* store.write(servers.insert(server("srv_2", [1_001])))
        assert.strictEqual(yield* store.write(repo.remove("node-1")), 2)
        for (const id of ["srv_1", "srv_2"]) yield* store.write(servers.remove(id))
        assert.strictEqual(yield* store.write(repo.remove("node-1")), 0)
      })
    )
  )

  it.effect("unreachable is kept while the address is the same, reachable while the node is connected", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = plain(yield* NodeRepo)
        const rooms = plain(yield* CapacityRepo)
        let times = 0
        const register = (fields: Partial<NodeRecord> = {}) =>
          store.write(repo.save({ ...node("node-1"), unreachable: "", token: `token ${++times}`, ...fields }))
        const now = Effect.map(store.read(repo.find(["node-1"])), ([record]) => record?.unreachable)
        const isConnected = Effect.map(store.write(rooms.of("node-1", "b")), (room) => room?.connected)
        const found = (unreachable: string | null) =>
          store.write(repo.setUnreachable("node-1", `token ${times}`, unreachable))

        yield* register()
        assert.strictEqual(yield* now, "")
        assert.deepStrictEqual(yield* isConnected, false)
        assert.isFalse(yield* store.write(repo.setUnreachable("node-1", "another token", null)))
        assert.isTrue(yield* found(null))
        assert.isFalse(yield* found(null), "nothing new")
        assert.deepStrictEqual(yield* isConnected, true)
        yield* register()
        assert.isNull(yield* now, "it is connected, and where it was")
        yield* register({ url: "http://127.0.0.1:2" })
        assert.strictEqual(yield* now, "", "it is elsewhere")

        yield* register()
        assert.isTrue(yield* found("ECONNREFUSED"))
        assert.deepStrictEqual(yield* isConnected, false)
        yield* store.write(repo.revoke("node-1", `token ${times}`))
        assert.isFalse(yield* found(null), "that registration counts no more")
        yield* register()
        assert.strictEqual(yield* now, "ECONNREFUSED")
        assert.isTrue(yield* found(null))
        yield* store.write(repo.disconnect("node-1", "boot-1", "2026-02-02T00:00:00.000Z"))
        yield* register()
        assert.strictEqual(yield* now, "", "it was away")
        yield* register({ unreachable: null })
        assert.isNull(yield* now, "it need not be called")
      })
    )
  )

  it.effect(
    "a node becomes lost or given up only if its record is unchanged since the silence was detected",
    () =>
      onFreshStore(
        Effect.gen(function* () {
          const store = yield* Store
          const repo = plain(yield* NodeRepo)
          const one = node("node-1")
          const now = Effect.map(store.read(repo.find(["node-1"])), ([record]) => record)
          const usage = { load: 1.5, memory_bytes: 8 * 1024 ** 4, disk_bytes: 1 }
          const heartbeat = { node_id: "node-1", boot_id: "boot-1", age: 1_000, usage }
          yield* store.write(repo.save(one))
          assert.isFalse(yield* store.write(repo.markLost("node-1", "an older token", 0)))
          yield* store.write(repo.recordHeartbeats([heartbeat, { ...heartbeat, node_id: "node-0" }]))
          yield* store.write(repo.recordHeartbeats([heartbeat]))
          const beats = (yield* store.read(repo.heartbeats)).find(({ node_id }) => node_id === "node-1")
          assert.deepInclude(beats, { boot_id: "boot-1", beats: 2, usage })
          assert.isFalse(
            yield* store.write(repo.markLost("node-1", one.token, 1)),
            "a heartbeat arrived meanwhile"
          )
          assert.isFalse(yield* store.write(repo.markGivenUp("node-1", one.token)), "not lost")
          assert.isTrue(yield* store.write(repo.markLost("node-1", one.token, 2)))
          assert.isFalse(yield* store.write(repo.markLost("node-1", one.token, 2)), "once")
          assert.deepStrictEqual(yield* now, { ...one, connected: false, gone: "lost" })
          assert.isTrue(yield* store.write(repo.markGivenUp("node-1", one.token)))
          assert.isFalse(yield* store.write(repo.markGivenUp("node-1", one.token)), "once")
          yield* store.write(repo.save(one))
          assert.deepStrictEqual(yield* now, one)
          assert.isTrue(yield* store.write(repo.revoke("node-1", one.token)))
          assert.isFalse(yield* store.write(repo.revoke("node-1", one.token)))
          assert.deepStrictEqual(yield* now, { ...one, token: "", connected: false })
          yield* store.write(repo.save(one))
          assert.deepStrictEqual(yield* store.write(repo.resetConnections), [NodeId.make("node-1")])
          assert.deepStrictEqual(yield* now, { ...one, connected: false }, "it is asked with its token")
          assert.deepStrictEqual(yield* store.write(repo.resetConnections), [], "once")
        })
      )
  )
})

describe.each(databases)("spec 3.3: idempotency keys (%s)", (kind) => {
  const onFreshStore = onFresh(kind)

  it.effect("a response is found until it expires, and is then replaced or removed", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* IdempotencyRepo
        const first = { body_hash: "a", response: '{"id":"1"}', created_at: 1_000 }
        const second = { body_hash: "b", response: '{"id":"2"}', created_at: 2_000 }
        yield* store.write(repo.keepAll([{ key: "k", ...first }]))
        assert.deepStrictEqual(yield* store.read(repo.find("k", 1_000)), first)
        assert.deepStrictEqual(yield* store.read(repo.find("k", 1_001)), undefined)
        assert.deepStrictEqual(yield* store.read(repo.find("other", 0)), undefined)
        yield* store.write(
          repo.keepAll([
            { key: "k", ...second },
            { key: "l", ...first }
          ])
        )
        assert.deepStrictEqual(yield* store.read(repo.find("k", 0)), second)
        assert.deepStrictEqual(
          yield* store.read(repo.findAll(["k", "l", "other"], 1_001)),
          new Map([["k", second]])
        )
        yield* store.write(repo.prune(2_000))
        assert.deepStrictEqual(yield* store.read(repo.find("k", 0)), second)
        yield* store.write(repo.prune(2_001))
        assert.deepStrictEqual(yield* store.read(repo.find("k", 0)), undefined)
      })
    )
  )
})

describe.each(databases)("spec 6.1: records of keys (%s)", (kind) => {
  const onFreshStore = onFresh(kind)

  it.effect("the version changes with every change of a key and with nothing else", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* KeyRepo
        const version = store.read(repo.version)
        const v0 = yield* version
        yield* store.write(repo.insert(key("key_1")))
        const v1 = yield* version
        assert.notStrictEqual(v1, v0)
        assert.isTrue(yield* store.write(repo.revoke("key_1", "2026-02-01T00:00:00.000Z")))
        const v2 = yield* version
        assert.notStrictEqual(v2, v1)
        assert.isFalse(yield* store.write(repo.revoke("key_1", "2026-03-01T00:00:00.000Z")))
        assert.isFalse(yield* store.write(repo.revoke("unknown", "2026-03-01T00:00:00.000Z")))
        assert.strictEqual(yield* version, v2)
        assert.deepStrictEqual(yield* store.read(repo.all), [
          { ...key("key_1"), revoked_at: "2026-02-01T00:00:00.000Z" }
        ])
      })
    )
  )

  it.effect("spec 6.2: a key has its rights and limits again", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* KeyRepo
        const limited = branded<KeyRecord>({
          ...key("key_1"),
          scope: "Operator",
          allow: ["power"],
          servers: ["a"],
          labels: { team: "a" },
          max_memory: 5
        })
        const single = branded<KeyRecord>({ ...key("key_2"), scope: "Operator", allow: ["start"] })
        for (const one of [limited, single]) yield* store.write(repo.insert(one))
        assert.deepStrictEqual(yield* store.read(repo.all), [limited, single])
      })
    )
  )
})
