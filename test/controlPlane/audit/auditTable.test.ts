import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import * as fc from "fast-check"
import type { AuditEntry } from "../../../src/contract/domain/AuditEntry.ts"
import {
  AuditedRequest,
  auditNodeCall,
  auditObject,
  CurrentAudit
} from "../../../src/contract/domain/AuditedRequest.ts"
import { fieldNames } from "../../../src/contract/domain/compareDefinitions.ts"
import { auditId } from "../../../src/contract/domain/idBytes.ts"
import { makeSharedEntries, SINGLE_ENTRIES } from "../../../src/controlPlane/audit/AuditLog.ts"
import type { AuditQuery } from "../../../src/controlPlane/store/repos/AuditRepo.ts"
import { AuditRepo } from "../../../src/controlPlane/store/repos/AuditRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { append, databases, freshStore } from "../store/support/database.ts"

const START = Date.parse("2026-03-01T00:00:00Z")

/** The request of a caller at a time after the start, in milliseconds. */
const request = (
  action: string,
  id: string | undefined,
  {
    at = 0,
    isShareable = false,
    key = "k1",
    success = 200
  }: {
    at?: number
    isShareable?: boolean
    key?: string
    success?: number
  } = {}
) =>
  new AuditedRequest({
    begin: {
      id: auditId(START + at),
      at: new Date(START + at).toISOString(),
      client: "192.0.2.1",
      request_id: "r"
    },
    action,
    kind: "server",
    id,
    success,
    isShareable,
    actor: { key_id: key, name: `name of ${key}`, scope: "AppAdmin" }
  })

const find = Effect.fnUntraced(function* (query: Partial<AuditQuery> = {}) {
  const store = yield* Store
  return yield* store.read((yield* AuditRepo).find({ limit: 100, ...query }))
})

const shown = (entries: ReadonlyArray<AuditEntry>) =>
  entries.map(({ action, object, result }) => `${action} ${object.id} ${result.status}`)

const put = Effect.fnUntraced(function* (...requests: ReadonlyArray<readonly [AuditedRequest, number]>) {
  const store = yield* Store
  const repo = yield* AuditRepo
  yield* store.write(repo.put(requests.flatMap(([one, status]) => one.pending(status) ?? [])))
})

describe.each(databases)("spec 6.6: the table (%s)", (kind) => {
  it.effect("an entry is committed with the change of its request, once, and not without it", () =>
    Effect.gen(function* () {
      const store = yield* Store
      const changed = request("server.patch", "a")
      const both = Effect.andThen(store.write(append("x")), store.write(append("y")))
      yield* Effect.provideService(both, CurrentAudit, changed)
      const refused = request("server.patch", "b", { at: 1 })
      const failing = store.write(Effect.andThen(append("z"), Effect.fail("refused" as const)))
      const exit = yield* Effect.exit(Effect.provideService(failing, CurrentAudit, refused))
      assert.isTrue(Exit.isFailure(exit))
      assert.deepStrictEqual(shown(yield* find()), ["server.patch a 200"])
      assert.isFalse(refused.isCommitted)
      // The response was another one than that of a success.
      yield* put([changed, 504], [refused, 409])
      assert.deepStrictEqual(shown(yield* find()), ["server.patch b 409", "server.patch a 504"])
      const waiting = request("server.create", undefined, { at: 2, success: 202 })
      waiting.describe({ id: null })
      yield* Effect.provideService(store.write(append("w")), CurrentAudit, waiting)
      assert.lengthOf(yield* find(), 2)
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("the changes of a bulk action share an entry, which each of its objects finds", () =>
    Effect.gen(function* () {
      const store = yield* Store
      const bulk = request("server.delete", undefined)
      const remove = (id: string) =>
        store.write(id === "c" ? Effect.fail("busy" as const) : append(id)).pipe(auditObject(id), Effect.exit)
      yield* Effect.forEach(["a", "b", "c"], remove, { concurrency: "unbounded" }).pipe(
        Effect.provideService(CurrentAudit, bulk)
      )
      yield* put([bulk, 200])
      const [entry, ...others] = yield* find({ object: "a", action: "server.delete" })
      assert.deepStrictEqual(others, [])
      assert.deepStrictEqual(entry?.object, { kind: "server", id: null, count: 2 })
      assert.lengthOf(yield* find({ object: "b" }), 1)
      assert.deepStrictEqual(yield* find({ object: "c" }), [])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("an id of a request with a NUL is stored without it: PostgreSQL takes none", () =>
    Effect.gen(function* () {
      const described = request("server.delete", undefined, { at: 1 })
      described.describe({ id: "c\0d" })
      yield* put([request("server.delete", "a\0b"), 403], [described, 200])
      assert.deepStrictEqual(shown(yield* find()), [
        "server.delete c\ufffdd 200",
        "server.delete a\ufffdb 403"
      ])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("entries are found by time, caller, action, object and result, newest first; old ones go", () =>
    Effect.gen(function* () {
      yield* put(
        [request("server.power.stop", "a", { at: 0 }), 200],
        [request("server.power.kill", "a", { at: 1000, key: "k2" }), 409],
        [request("server.powers", "b", { at: 1000 }), 200],
        [request("key.create", "k3", { at: 2000 }), 201]
      )
      const is = Effect.fnUntraced(function* (
        query: Partial<AuditQuery>,
        ...expected: ReadonlyArray<string>
      ) {
        const found = (yield* find(query)).map(({ action }) => action)
        assert.deepStrictEqual(found, expected, JSON.stringify(query))
      })
      const all = ["key.create", "server.powers", "server.power.kill", "server.power.stop"] as const
      yield* is({}, ...all)
      yield* is({ limit: 2 }, all[0], all[1])
      const [, second] = yield* find({ limit: 2 })
      yield* is({ after: second?.id ?? "" }, all[2], all[3])
      yield* is({ action: "server.power" }, all[2], all[3])
      yield* is({ action: "server.power.stop" }, all[3])
      yield* is({ actor: "k2" }, all[2])
      yield* is({ actor: "name of k1", object: "a" }, all[3])
      yield* is({ result: "refused" }, all[2])
      yield* is({ result: 201 }, all[0])
      yield* is({ since: START + 1000 }, all[0], all[1], all[2])
      yield* is({ since: START + 1, until: START + 1000 }, all[1], all[2])
      yield* is({ until: START }, all[3])
      const { prune } = yield* AuditRepo
      const store = yield* Store
      const old = { notBefore: START + 1001, maxBytes: Number.MAX_SAFE_INTEGER }
      assert.strictEqual(yield* store.write(prune(old, 2)), 2)
      assert.strictEqual(yield* store.write(prune(old, 2)), 1)
      yield* is({}, all[0])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect(
    "the oldest entries go beyond a number of bytes, which counts bulk actions with their objects",
    () =>
      Effect.gen(function* () {
        const store = yield* Store
        const { prune, size } = yield* AuditRepo
        const bulk = request("server.power.stop", undefined, { at: 1 })
        for (let i = 0; i < 100; i++) bulk.object(`s${i}`, true)
        yield* put([request("server.patch", "a"), 200])
        const single = yield* store.read(size)
        yield* put([bulk, 200], [request("server.patch", "b", { at: 2 }), 200])
        const all = yield* store.read(size)
        assert.isAbove(all, 2 * single + 100 * 100)
        const within = (maxBytes: number) => store.write(prune({ notBefore: 0, maxBytes }, 100))
        assert.strictEqual(yield* within(all), 0)
        assert.strictEqual(yield* within(all - 1), 1)
        assert.strictEqual(yield* store.read(size), all - single)
        assert.strictEqual(yield* within(single), 1)
        assert.deepStrictEqual(shown(yield* find()), ["server.patch b 200"])
        assert.strictEqual(yield* within(0), 1)
        assert.strictEqual(yield* store.read(size), 0)
      }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})

describe("spec 6.6: entries", () => {
  it("beyond a bound in a minute, the refused requests of a key share an entry for each action and status", () => {
    const { add, take } = makeSharedEntries()
    const refuse = (key: string, action: string, status: number) => {
      const record = request(action, "a", { key }).pending(status)
      return record === undefined ? undefined : add(record, 0)
    }
    for (let i = 0; i < SINGLE_ENTRIES; i++) assert.isDefined(refuse("k1", "server.delete", 403))
    for (let i = 0; i < 5000; i++) assert.isUndefined(refuse("k1", "server.delete", 403))
    assert.isUndefined(refuse("k1", "server.power", 403))
    assert.isDefined(refuse("k2", "server.delete", 403))
    assert.deepStrictEqual(take(59_999), [])
    assert.deepStrictEqual(
      take(60_000).map(({ entry }) => [entry.action, entry.object.id, entry.repeated]),
      [
        ["server.delete", null, 5000],
        ["server.power", null, 1]
      ]
    )
    assert.deepStrictEqual(take(120_000), [])
    assert.isDefined(refuse("k1", "server.delete", 403))
  })

  it.effect("an object whose node was called stays in the entry, however the request ends", () =>
    Effect.gen(function* () {
      const bulk = request("server.power.stop", undefined)
      const refused = Effect.ignore(auditObject("refused")(Effect.fail("before the call")))
      const called = auditObject("called")(Effect.andThen(auditNodeCall, Effect.never))
      const acting = Effect.provideService(Effect.andThen(refused, called), CurrentAudit, bulk)
      const fiber = yield* Effect.forkChild(acting, { startImmediately: true })
      yield* Fiber.interrupt(fiber)
      assert.isTrue(bulk.isActing)
      const { entry, objects } = bulk.pending(504) ?? assert.fail("no entry")
      assert.deepStrictEqual(entry.object, { kind: "server", id: null, count: 1 })
      assert.deepStrictEqual(
        objects.map(({ id }) => id),
        ["called"]
      )
    })
  )

  it.effect("spec 10.1: a read of a file is no change, although its node is called; a write is one", () =>
    Effect.gen(function* () {
      const [read, write] = [request("file.read", "a", { isShareable: true }), request("file.write", "a")]
      for (const one of [read, write]) yield* Effect.provideService(auditNodeCall, CurrentAudit, one)
      assert.deepStrictEqual([read.isActing, read.changesNothing], [false, true])
      assert.deepStrictEqual([write.isActing, write.changesNothing], [true, false])
      assert.isUndefined(read.carried())
    })
  )

  it("spec 10.1: beyond the bound, reads share an entry without a path", () => {
    const { add, take } = makeSharedEntries()
    const read = (path: string) => {
      const one = request("file.read", "a", { isShareable: true })
      one.describe({ paths: [path] })
      return add(one.pending(200) ?? assert.fail("no entry"), 0)
    }
    for (let i = 0; i < SINGLE_ENTRIES; i++) assert.deepStrictEqual(read(`/${i}`)?.entry.paths, [`/${i}`])
    for (const path of ["/x", "/y"]) assert.isUndefined(read(path))
    const [shared = assert.fail("no entry")] = take(60_000)
    assert.strictEqual(shared.entry.repeated, 2)
    assert.notProperty(shared.entry, "paths")
  })

  it("spec 10.1: paths take at most 2 KB of an entry, and the first is always there, without a secret", () => {
    const paths = fc.array(
      fc.string({ unit: "binary", maxLength: 4096 }).map((text) => `/${text}`),
      { minLength: 1 }
    )
    fc.assert(
      fc.property(paths, (all) => {
        const one = request("file.move", "a")
        one.describe({ paths: all })
        const kept = one.pending(200)?.entry.paths ?? []
        assert.isNotEmpty(kept)
        assert.isAtMost(Buffer.byteLength(JSON.stringify(kept)), 2048 + 2)
      })
    )
    const secret = request("file.read", "a")
    secret.describe({ paths: ["/mst_0123", `/${"x".repeat(600)}`] })
    assert.deepStrictEqual(secret.pending(403)?.entry.paths, ["/mst_...", `/${"x".repeat(499)}`])
  })

  it("the names of the changed fields take at most 2 KB of an entry", () => {
    const one = request("server.patch", "a")
    one.describe({ changes: Array.from({ length: 120 }, (_, i) => `${i}`.padEnd(200, "\u{1f600}")) })
    const { changes } = one.pending(200)?.entry ?? assert.fail("no entry")
    assert.isNotEmpty(changes)
    assert.isAtMost(Buffer.byteLength(JSON.stringify(changes)), 2050)
  })

  it("an entry names the changed fields, and has no value of a request and nothing that looks like a key", () => {
    const secret = "s3cr3t-value"
    const values = fc.letrec<{ value: unknown }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.constant(secret),
        fc.constant(null),
        fc.array(tie("value"), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom("limits", "configs", "env", "a.b", "motd", "find"), tie("value"), {
          maxKeys: 4
        })
      )
    })).value
    const body = fc.dictionary(fc.constantFrom("name", "labels", "limits", "configs", "env"), values)
    fc.assert(
      fc.property(body, fc.constantFrom("mst_", "whsec_"), (change, prefix) => {
        const one = request("server.patch", `${prefix}${"a1B2".repeat(12)}`)
        one.describe({ changes: [...fieldNames(JSON.parse(JSON.stringify(change))), `env.${prefix}xyz`] })
        const text = JSON.stringify(one.pending(200))
        assert.notInclude(text, secret)
        assert.notInclude(text, "a1B2")
        assert.notInclude(text, "xyz")
        assert.notInclude(JSON.stringify(one.pending(422)), "env.")
      })
    )
    assert.deepStrictEqual(
      fieldNames({ name: null, limits: { memory_limit: 512 }, labels: { "a.b": "c" }, expires_in: 5 }),
      ["name", "limits.memory_limit", 'labels["a.b"]', "expires_in"]
    )
  })
})
