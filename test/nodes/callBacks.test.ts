import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, References } from "effect"
import { TestClock } from "effect/testing"
import { type DaemonError, DaemonRefused, NodeUnreachable } from "../../src/api/Daemon.ts"
import type { Registration } from "../../src/domain/NodeMessages.ts"
import { makeCallBacks } from "../../src/nodes/callBacks.ts"
import { DaemonClient } from "../../src/nodes/DaemonClient.ts"
import { NodeRegistry } from "../../src/nodes/NodeRegistry.ts"
import { TOKEN_REFUSED } from "../../src/nodes/remoteCall.ts"
import { FakeDaemon } from "../servers/support/FakeDaemon.ts"
import { heartbeat, memoryNodes, registration } from "./support/fleet.ts"

const NODE = "n1"
const unreachable = (reason?: string) =>
  new NodeUnreachable({ node_id: NODE, ...(reason === undefined ? {} : { reason }) })

/** A node whose daemon answers, or fails, as it is told. */
const makeWorld = Effect.fnUntraced(function* (lines: ReadonlyArray<string>) {
  const registry = yield* NodeRegistry
  const daemons = yield* DaemonClient
  const fake = new FakeDaemon(NODE)
  const daemon = { failure: undefined as DaemonError | undefined, calls: 0 }
  const system = Effect.suspend(() => {
    daemon.calls += 1
    return daemon.failure === undefined ? fake.daemon.system : Effect.fail(daemon.failure)
  })
  yield* daemons.elsewhere(() => ({ ...fake.daemon, system }))
  const callBacks = yield* makeCallBacks
  const begin = (anew = false) => Effect.sync(() => callBacks.begin(NODE, { anew }))
  return {
    daemon,
    registry,
    begin,
    /** What has been logged above debug level. */
    lines,
    register: (fields: Partial<Registration> = {}) =>
      Effect.tap(registry.register(registration(NODE, fields)), () => begin(true)),
    /** Whether it is connected, and why it cannot be called. */
    shown: Effect.map(registry.get(NODE), ({ connected, unreachable }) => [connected, unreachable])
  }
})
type World = Effect.Success<ReturnType<typeof makeWorld>>

const inWorld = <E>(test: (world: World) => Effect.Effect<void, E>) =>
  Effect.suspend(() => {
    const lines: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${message}`))
    return Effect.flatMap(makeWorld(lines), test).pipe(
      Effect.scoped,
      // Nobody is silent here for too long.
      Effect.provide(memoryNodes({ heartbeat_timeout: "1 hour" })),
      Effect.provide(Logger.layer([logger])),
      Effect.provideService(References.MinimumLogLevel, "Info")
    )
  })

const at = "http://n1:5585"
const warning = (reason: string) =>
  `Warn node n1 cannot be called, and gets no servers until it can: ${at}: ${reason}`
const WELL = "Info node n1 can be called, and gets servers"
const [fine, uncalled] = [
  [true, undefined],
  [false, "it was not called yet"]
]
const cannot = (reason: string) => [false, `${at}: ${reason}`]

describe("node-protocol, register: a node is called back", () => {
  it.effect("it is connected once that has worked, and nobody need be told", () =>
    inWorld(({ begin, daemon, lines, registry, shown }) =>
      Effect.gen(function* () {
        yield* registry.register(registration(NODE))
        assert.deepStrictEqual(yield* shown, uncalled)
        assert.isTrue(registry.isConnected(NODE), "it is heard")
        yield* begin(true)
        assert.deepStrictEqual(yield* shown, fine)
        assert.strictEqual(daemon.calls, 1)
        assert.deepStrictEqual(lines, [])
      })
    )
  )

  it.effect("one that listens a moment after it has registered is not told of", () =>
    inWorld(({ daemon, lines, register, shown }) =>
      Effect.gen(function* () {
        daemon.failure = unreachable("ECONNREFUSED")
        yield* register()
        assert.deepStrictEqual(yield* shown, uncalled)
        daemon.failure = undefined
        yield* TestClock.adjust("2 seconds")
        assert.deepStrictEqual(yield* shown, fine)
        assert.deepStrictEqual(lines, [])
      })
    )
  )

  it.effect("where it cannot be called: a line for each reason, and one when it can, by itself", () =>
    inWorld(({ daemon, lines, register, shown }) =>
      Effect.gen(function* () {
        daemon.failure = unreachable("ECONNREFUSED")
        yield* register()
        yield* TestClock.adjust("1 minute")
        assert.deepStrictEqual(yield* shown, cannot("ECONNREFUSED"))
        assert.deepStrictEqual(lines, [warning("ECONNREFUSED")])
        daemon.failure = new DaemonRefused({ status: 500, detail: "not understood", hint: "Look." })
        yield* TestClock.adjust("1 minute")
        assert.deepStrictEqual(yield* shown, cannot("not understood. Look."))
        assert.isAtLeast(daemon.calls, 10)
        // A circuit that is open says nothing new.
        daemon.failure = unreachable()
        yield* TestClock.adjust("1 minute")
        assert.deepStrictEqual(yield* shown, cannot("not understood. Look."))
        daemon.failure = undefined
        yield* TestClock.adjust("12 seconds")
        assert.deepStrictEqual(yield* shown, fine)
        assert.deepStrictEqual(lines, [warning("ECONNREFUSED"), warning("not understood. Look."), WELL])
        const { calls } = daemon
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(daemon.calls, calls, "nothing more to find out")
      })
    )
  )

  it.effect("a registration at the same address finds it as it was; elsewhere it begins anew", () =>
    inWorld(({ daemon, lines, register, registry, shown }) =>
      Effect.gen(function* () {
        yield* register()
        daemon.failure = unreachable("ECONNREFUSED")
        yield* register({ boot_id: "boot-2" })
        assert.deepStrictEqual(yield* shown, fine, "until that has failed")
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(yield* shown, cannot("ECONNREFUSED"))
        yield* registry.disconnect(NODE, "boot-2")
        yield* register({ boot_id: "boot-3" })
        assert.deepStrictEqual(yield* shown, cannot("ECONNREFUSED"))
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(lines, [warning("ECONNREFUSED")], "said already")
        daemon.failure = undefined
        yield* registry.register(registration(NODE, { boot_id: "boot-4", url: "http://other:5585" }))
        assert.deepStrictEqual(yield* shown, uncalled)
      })
    )
  )

  it.effect("one that is gone is not called any more, nor is one that was removed", () =>
    inWorld(({ daemon, register, registry }) =>
      Effect.gen(function* () {
        daemon.failure = unreachable("ECONNREFUSED")
        yield* register()
        yield* TestClock.adjust("5 seconds")
        yield* registry.disconnect(NODE, "n1-boot")
        yield* TestClock.adjust("20 seconds")
        const { calls } = daemon
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(daemon.calls, calls)
        yield* register()
        yield* registry.remove(NODE)
        yield* TestClock.adjust("20 seconds")
        const after = daemon.calls
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(daemon.calls, after)
      })
    )
  )
})

describe("node-protocol, Control plane -> daemon: calls that do not get through", () => {
  it.effect("a node that was fine is called back, and is told of where that fails as well", () =>
    inWorld(({ begin, daemon, lines, register, registry, shown }) =>
      Effect.gen(function* () {
        yield* register()
        yield* begin()
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(lines, [], "it was something that has passed")
        daemon.failure = unreachable("ETIMEDOUT")
        yield* begin()
        yield* begin()
        yield* TestClock.adjust("5 seconds")
        yield* registry.heartbeat(NODE, heartbeat("n1-boot"))
        assert.deepStrictEqual(yield* shown, cannot("ETIMEDOUT"))
        daemon.failure = undefined
        yield* TestClock.adjust("12 seconds")
        assert.deepStrictEqual(yield* shown, fine)
        assert.deepStrictEqual(lines, [warning("ETIMEDOUT"), WELL])
      })
    )
  )

  it.effect("one that refuses its token is made to register again, less often where that does not help", () =>
    inWorld(({ daemon, lines, register, registry, shown }) =>
      Effect.gen(function* () {
        daemon.failure = unreachable(TOKEN_REFUSED)
        for (const [before, after] of [
          ["1 second", "4 seconds"],
          ["1 second", "4 seconds"],
          ["1 second", "4 seconds"],
          ["2 seconds", "8 seconds"],
          ["5 seconds", "16 seconds"]
        ] as const) {
          yield* register()
          yield* TestClock.adjust(before)
          yield* registry.heartbeat(NODE, heartbeat("n1-boot"))
          yield* TestClock.adjust(after)
          const error = yield* Effect.flip(registry.heartbeat(NODE, heartbeat("n1-boot")))
          assert.strictEqual(error._tag, "RegistrationRequired")
        }
        assert.deepStrictEqual(lines, [warning(TOKEN_REFUSED)])
        daemon.failure = undefined
        yield* register()
        assert.deepStrictEqual(yield* shown, fine)
        assert.deepStrictEqual(lines, [warning(TOKEN_REFUSED), WELL])
      })
    )
  )
})
