import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Latch, Layer } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import {
  CurrentPrincipal,
  KeyEnds,
  type Principal,
  ServerAccess
} from "../../../src/controlPlane/http/Principal.ts"
import { makeBulk, ServerManager } from "../../../src/controlPlane/servers/ServerManager.ts"

const caller: Principal = { key_id: "k", name: "k", scope: "Operator" }

/** A bulk action on 66 servers, of which the last two wait for their turn while the key changes. */
const bulkWhile = Effect.fnUntraced(function* (
  change: (key: {
    readonly hidden: Set<ServerId>
    readonly end: Effect.Effect<unknown>
  }) => Effect.Effect<unknown>
) {
  const ids = Array.from({ length: 66 }, (_, index) => ServerId.make(`server${index}`))
  const hidden = new Set<ServerId>()
  const ended = yield* Deferred.make<void>()
  const gate = Latch.makeUnsafe(false)
  const acted: Array<string> = []
  const select: ServerManager["Service"]["select"] = () =>
    Effect.succeed({
      ids,
      next: undefined,
      encode: () => assert.fail("not encoded"),
      encodeIds: Effect.die("not encoded")
    })
  const bulk = yield* makeBulk.pipe(
    Effect.provide(
      Layer.mergeAll(
        Layer.mock(ServerManager)({ select }),
        Layer.mock(ServerAccess)({
          mayRead: (id) => Effect.sync(() => !hidden.has(id)),
          explained: (_, error) => Effect.succeed(error)
        }),
        Layer.succeed(KeyEnds, () => Deferred.await(ended))
      )
    )
  )
  const running = yield* bulk({ ids }, (id) =>
    Effect.andThen(
      Effect.sync(() => acted.push(id)),
      gate.await
    )
  ).pipe(Effect.provideService(CurrentPrincipal, caller), Effect.forkChild({ startImmediately: true }))
  while (acted.length < 64) yield* Effect.yieldNow
  assert.lengthOf(acted, 64)
  yield* change({ hidden, end: Deferred.succeed(ended, undefined) })
  yield* gate.open
  const outcomes = Object.fromEntries(yield* Fiber.join(running))
  return { acted: acted.slice(64), statuses: ids.slice(64).map((id) => outcomes[id]?.status) }
})

describe("spec 6.3: bulk actions", () => {
  it.effect("a server that has left the limits of the key by its turn is not touched, and is 404", () =>
    Effect.gen(function* () {
      const leave = yield* bulkWhile(({ hidden }) => Effect.sync(() => hidden.add(ServerId.make("server64"))))
      assert.deepStrictEqual(leave, { acted: ["server65"], statuses: ["Not Found", 200] })
    })
  )

  it.effect("once the key is revoked, the servers that remain are not touched, and are 401", () =>
    Effect.gen(function* () {
      const revoked = yield* bulkWhile(({ end }) => end)
      assert.deepStrictEqual(revoked, { acted: [], statuses: ["Unauthorized", "Unauthorized"] })
    })
  )
})
