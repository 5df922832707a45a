import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import { CurrentPrincipal } from "../../../src/controlPlane/http/Principal.ts"
import { ApiKeys } from "../../../src/controlPlane/keys/ApiKeys.ts"
import { NodeKeys } from "../../../src/controlPlane/keys/NodeKeys.ts"
import { NodeRepo } from "../../../src/controlPlane/store/repos/NodeRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { until } from "../../support/eventually.ts"
import { plain } from "../../support/ids.ts"
import { node } from "../../support/samples.ts"
import { testDatabase } from "../../support/testDatabase.ts"
import { newUrl, storeAt } from "../store/support/database.ts"

const services = (url: string) =>
  Layer.mergeAll(NodeKeys.layer, ApiKeys.layer()).pipe(Layer.provideMerge(storeAt(url)))
const newServices = newUrl(testDatabase)

const onFreshStore = <A, E>(test: Effect.Effect<A, E, NodeKeys | ApiKeys | NodeRepo | Store>) =>
  Effect.gen(function* () {
    return yield* Effect.provide(test, services(yield* newServices))
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

const newKey = Effect.fnUntraced(function* (name: string, expires?: Duration.Duration) {
  const keys = yield* ApiKeys
  const made = yield* keys.create({ name, scope: "Node", ...(expires === undefined ? {} : { expires }) })
  return made.record.id
})
const as =
  (key_id: string) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.provideService(effect, CurrentPrincipal, { key_id, name: key_id, scope: "Node" })
const bind = (key_id: string, node_id: string) =>
  as(key_id)(Effect.flatMap(NodeKeys, (keys) => keys.bind(NodeId.make(node_id))))
const check = (key_id: string, node_id: string) =>
  as(key_id)(Effect.flatMap(NodeKeys, (keys) => keys.check(NodeId.make(node_id))))
const refusalOf = <R>(effect: Effect.Effect<unknown, { readonly detail: string }, R>) =>
  Effect.map(Effect.flip(effect), (error) => error.detail)

describe("spec 9.1: binding of keys to nodes", () => {
  it.effect("a key is bound permanently to the first node that it registers", () =>
    onFreshStore(
      Effect.gen(function* () {
        const key = yield* newKey("one")
        assert.strictEqual(yield* check(key, "n1"), "unbound")
        yield* bind(key, "n1")
        yield* bind(key, "n1")
        assert.strictEqual(yield* check(key, "n1"), "own")
        assert.strictEqual(yield* refusalOf(bind(key, "n2")), "the API key is that of another node")
        assert.strictEqual(yield* refusalOf(check(key, "n2")), "the API key is that of another node")
      })
    )
  )

  it.effect("another key can be bound to the node once the first is revoked", () =>
    onFreshStore(
      Effect.gen(function* () {
        const first = yield* newKey("first")
        const second = yield* newKey("second")
        yield* bind(first, "n1")
        assert.strictEqual(yield* refusalOf(bind(second, "n1")), "node n1 is bound to another key")
        // A refused binding leaves the key unbound.
        assert.strictEqual(yield* check(second, "n1"), "unbound")
        yield* (yield* ApiKeys).revoke(first)
        yield* bind(second, "n1")
        assert.strictEqual(yield* check(second, "n1"), "own")
      })
    )
  )

  it.effect("another key can be bound to the node once the first has expired", () =>
    onFreshStore(
      Effect.gen(function* () {
        const first = yield* newKey("first", Duration.minutes(1))
        const second = yield* newKey("second")
        const keys = plain(yield* NodeKeys)
        yield* bind(first, "n1")
        yield* TestClock.adjust("59999 millis")
        assert.strictEqual(yield* refusalOf(bind(second, "n1")), "node n1 is bound to another key")
        assert.deepStrictEqual(yield* keys.revoked(["n1", "n2"]), [])
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(yield* keys.revoked(["n1", "n2"]), [NodeId.make("n1")])
        yield* bind(second, "n1")
        assert.deepStrictEqual(yield* keys.revoked(["n1"]), [])
      })
    )
  )

  it.effect("another key can be bound to the node once the node was removed; the first cannot any more", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const nodes = plain(yield* NodeRepo)
        const first = yield* newKey("first")
        const second = yield* newKey("second")
        yield* bind(first, "n1")
        yield* store.write(nodes.save(node("n1")))
        assert.strictEqual(yield* refusalOf(bind(second, "n1")), "node n1 is bound to another key")
        yield* store.write(nodes.remove("n1"))
        assert.strictEqual(yield* check(first, "n1"), "unbound")
        yield* bind(second, "n1")
        assert.strictEqual(yield* refusalOf(bind(first, "n1")), "node n1 is bound to another key")
        assert.strictEqual(yield* check(first, "n1"), "unbound")
      })
    )
  )

  it.effect("no key can be bound to an embedded node", () =>
    onFreshStore(
      Effect.gen(function* () {
        const key = yield* newKey("thief")
        const store = yield* Store
        yield* store.write((yield* NodeRepo).save(node("embedded")))
        assert.strictEqual(yield* refusalOf(bind(key, "embedded")), "node embedded is bound to another key")
        assert.strictEqual(yield* check(key, "embedded"), "unbound")
      })
    )
  )

  it.effect("one of several concurrent bindings succeeds", () =>
    onFreshStore(
      Effect.gen(function* () {
        const keys = yield* Effect.forEach([1, 2, 3, 4, 5, 6, 7, 8], (n) => newKey(`key ${n}`))
        const results = yield* Effect.forEach(keys, (key) => Effect.result(bind(key, "n1")), {
          concurrency: "unbounded"
        })
        assert.strictEqual(results.filter(({ _tag }) => _tag === "Success").length, 1)
      })
    )
  )

  it.effect("one of several concurrent bindings in different processes succeeds", () =>
    Effect.gen(function* () {
      const url = yield* newServices
      const both = yield* Effect.forEach([1, 2], () => Layer.build(Layer.fresh(services(url))))
      const results = yield* Effect.forEach(
        both,
        (context, index) =>
          Effect.flatMap(newKey(`key ${index}`), (key) => Effect.result(bind(key, "n1"))).pipe(
            Effect.provideContext(context)
          ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(results.filter(({ _tag }) => _tag === "Success").length, 1)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.effect("a binding or revocation by another process takes effect", () =>
    Effect.gen(function* () {
      const url = yield* newServices
      yield* Effect.gen(function* () {
        const key = yield* newKey("one")
        const keys = plain(yield* NodeKeys)
        const other = yield* Layer.build(Layer.fresh(services(url)))
        const elsewhere = <A, E>(effect: Effect.Effect<A, E, NodeKeys | ApiKeys>) =>
          Effect.provideContext(effect, other)
        assert.strictEqual(yield* check(key, "n1"), "unbound")
        yield* elsewhere(bind(key, "n1"))
        yield* until(
          "the binding is known",
          Effect.map(check(key, "n1"), (owner) => owner === "own")
        )
        assert.deepStrictEqual(yield* keys.revoked(["n1"]), [])
        yield* elsewhere(Effect.flatMap(ApiKeys, (it) => it.revoke(key)))
        yield* until(
          "the revocation is known",
          Effect.map(keys.revoked(["n1"]), (revoked) => revoked.includes(NodeId.make("n1")))
        )
      }).pipe(Effect.provide(services(url)))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
