import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, References, Stream } from "effect"
import { TestClock } from "effect/testing"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import type { Registration } from "../../../../src/contract/domain/NodeMessages.ts"
import { type DaemonError, DaemonRefused, NodeUnreachable } from "../../../../src/contract/nodeApi/Daemon.ts"
import { DaemonClient } from "../../../../src/controlPlane/nodes/DaemonClient.ts"
import { NodeRegistry } from "../../../../src/controlPlane/nodes/NodeRegistry.ts"
import { makeReachabilityProbe } from "../../../../src/controlPlane/nodes/remote/reachabilityProbe.ts"
import { TOKEN_REFUSED } from "../../../../src/controlPlane/nodes/remote/remoteCall.ts"
import { registration } from "../../../support/samples.ts"
import { FakeDaemon } from "../../servers/support/FakeDaemon.ts"
import { memoryNodes } from "../support/fleet.ts"

const NODE = NodeId.make("n1")
const unreachable = (reason?: string) =>
  new NodeUnreachable({ node_id: NODE, ...(reason === undefined ? {} : { reason }) })

/** A node whose daemon succeeds or fails as configured. */
const makeSetup = Effect.fnUntraced(function* (lines: ReadonlyArray<string>) {
  const registry = yield* NodeRegistry
  const daemons = yield* DaemonClient
  const fake = new FakeDaemon(NODE)
  const daemon = { failure: undefined as DaemonError | undefined, calls: 0 }
  const system = Effect.suspend(() => {
    daemon.calls += 1
    return daemon.failure === undefined ? fake.daemon.system : Effect.fail(daemon.failure)
  })
  yield* daemons.elsewhere(() => ({ ...fake.daemon, system }))
  const probe = yield* makeReachabilityProbe
  const begin = (restart = false) =>
    Effect.andThen(
      Effect.sync(() => probe.begin(NODE, { restart })),
      TestClock.adjust(0)
    )
  return {
    daemon,
    registry,
    begin,
    probe,
    /** Processes a heartbeat: returns why the node is unreachable, or that it must register. */
    heard: Effect.match(probe.onHeartbeat(NODE), {
      onFailure: (error) => error._tag,
      onSuccess: (why) => why
    }),
    /** Log lines above debug level. */
    lines,
    register: (fields: Partial<Registration> = {}) =>
      Effect.tap(registry.register(registration(NODE, fields)), () => begin(true)),
    /** Whether the node is connected, and why it is unreachable. */
    shown: Effect.map(registry.get(NODE), ({ connected, unreachable }) => [connected, unreachable])
  }
})
type Setup = Effect.Success<ReturnType<typeof makeSetup>>

const withSetup = <E>(test: (setup: Setup) => Effect.Effect<void, E>) =>
  Effect.suspend(() => {
    const lines: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${message}`))
    return Effect.flatMap(makeSetup(lines), test).pipe(
      Effect.scoped,
      // No node reaches its timeout here.
      Effect.provide(memoryNodes({ heartbeatTimeout: "1 hour" })),
      Effect.provide(Logger.layer([logger])),
      Effect.provideService(References.MinimumLogLevel, "Info")
    )
  })

const at = "http://n1:5585"
const warning = (reason: string) => `Warn node unreachable: it gets no servers: ${at}: ${reason}`
const WELL = "Info node reachable: it gets servers"
const [fine, uncalled] = [
  [true, undefined],
  [false, "it was not called yet"]
]
const cannot = (reason: string) => [false, `${at}: ${reason}`]

describe("spec 9.2: a node is called back", () => {
  it.effect("a node is connected once a call has succeeded, without a log line", () =>
    withSetup(({ begin, daemon, lines, registry, shown }) =>
      Effect.gen(function* () {
        yield* registry.register(registration(NODE))
        assert.deepStrictEqual(yield* shown, uncalled)
        assert.isTrue(registry.isConnected(NODE), "its heartbeats arrive")
        yield* begin(true)
        assert.deepStrictEqual(yield* shown, fine)
        assert.strictEqual(daemon.calls, 1)
        assert.deepStrictEqual(lines, [])
      })
    )
  )

  it.effect("a node that listens a moment after its registration causes no warning", () =>
    withSetup(({ daemon, lines, register, shown }) =>
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

  it.effect("an unreachable node logs one line for each reason, and one once it is reachable", () =>
    withSetup(({ daemon, lines, register, shown }) =>
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
        // An open circuit is not a new reason.
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

  it.effect("each time a node becomes reachable is announced", () =>
    withSetup(({ daemon, register, registry }) =>
      Effect.gen(function* () {
        const seen: Array<string> = []
        yield* registry.changes.pipe(
          Stream.runForEach(({ kind }) => Effect.sync(() => void seen.push(kind))),
          Effect.forkScoped({ startImmediately: true })
        )
        yield* register()
        yield* TestClock.adjust("1 second")
        assert.deepStrictEqual(seen, ["connected", "reachable"])
        daemon.failure = unreachable("ECONNREFUSED")
        yield* register({ boot_id: "boot-2" })
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(seen, ["connected", "reachable", "connected"])
        daemon.failure = undefined
        yield* TestClock.adjust("12 seconds")
        assert.deepStrictEqual(seen, ["connected", "reachable", "connected", "reachable"])
      }).pipe(Effect.scoped)
    )
  )

  it.effect("a registration at the same address keeps the reachability; another address resets it", () =>
    withSetup(({ daemon, lines, register, registry, shown }) =>
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
        assert.deepStrictEqual(lines, [warning("ECONNREFUSED")], "logged before")
        daemon.failure = undefined
        yield* registry.register(registration(NODE, { boot_id: "boot-4", url: "http://other:5585" }))
        assert.deepStrictEqual(yield* shown, uncalled)
      })
    )
  )

  it.effect("a node that is gone or removed is no longer called", () =>
    withSetup(({ daemon, register, registry }) =>
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

describe("spec 9.4: failed calls", () => {
  it.effect("after a failed call, a reachable node is called back, and a second failure is logged", () =>
    withSetup(({ begin, daemon, heard, lines, register, shown }) =>
      Effect.gen(function* () {
        yield* register()
        yield* begin()
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(lines, [], "it was something that has passed")
        daemon.failure = unreachable("ETIMEDOUT")
        yield* begin()
        yield* begin()
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(yield* heard, `${at}: ETIMEDOUT`)
        assert.deepStrictEqual(yield* shown, cannot("ETIMEDOUT"))
        daemon.failure = undefined
        yield* TestClock.adjust("12 seconds")
        assert.deepStrictEqual(yield* shown, fine)
        assert.deepStrictEqual(lines, [warning("ETIMEDOUT"), WELL])
      })
    )
  )

  it.effect("an idle node whose heartbeats arrive is called about every 30 s", () =>
    withSetup(({ daemon, heard, lines, register, shown }) =>
      Effect.gen(function* () {
        /** Heartbeats for that many seconds, one every 5 s. */
        const beats = Effect.fnUntraced(function* (seconds: number) {
          for (let second = 0; second < seconds; second += 5) {
            yield* TestClock.adjust("5 seconds")
            yield* heard
            // Lets the call run that the heartbeat may have begun.
            yield* TestClock.adjust(0)
          }
        })
        yield* register()
        assert.strictEqual(daemon.calls, 1)
        yield* beats(20)
        assert.strictEqual(daemon.calls, 1)
        yield* beats(20)
        assert.strictEqual(daemon.calls, 2)
        yield* beats(300)
        assert.isAtLeast(daemon.calls, 8)
        assert.isAtMost(daemon.calls, 15)
        daemon.failure = unreachable("ETIMEDOUT")
        yield* beats(45)
        assert.deepStrictEqual(yield* shown, cannot("ETIMEDOUT"))
        assert.strictEqual(yield* heard, `${at}: ETIMEDOUT`)
        daemon.failure = undefined
        yield* TestClock.adjust("12 seconds")
        assert.isUndefined(yield* heard)
        assert.deepStrictEqual(lines, [warning("ETIMEDOUT"), WELL])
      })
    )
  )

  it.effect("a node with successful calls is not probed, nor is a node without heartbeats", () =>
    withSetup(({ probe, daemon, heard, register }) =>
      Effect.gen(function* () {
        yield* register()
        for (let minute = 0; minute < 10; minute++) {
          yield* TestClock.adjust("20 seconds")
          yield* probe.answered(NODE)
          yield* heard
        }
        assert.strictEqual(daemon.calls, 1)
        yield* TestClock.adjust("10 minutes")
        assert.strictEqual(daemon.calls, 1)
      })
    )
  )

  it.effect("a node that refuses its token gets the reason, must register again, and stays unreachable", () =>
    withSetup(({ daemon, heard, lines, register, shown }) =>
      Effect.gen(function* () {
        daemon.failure = unreachable(TOKEN_REFUSED)
        const why = `${at}: ${TOKEN_REFUSED}`
        yield* register()
        yield* TestClock.adjust("4 seconds")
        for (let times = 0; times < 3; times++) {
          assert.strictEqual(yield* heard, why)
          assert.strictEqual(yield* heard, "RegistrationRequired")
          assert.strictEqual(yield* heard, "RegistrationRequired", "until it has")
          assert.deepStrictEqual(yield* shown, cannot(TOKEN_REFUSED))
          yield* register()
          assert.deepStrictEqual(yield* shown, cannot(TOKEN_REFUSED))
          assert.strictEqual(yield* heard, why)
          yield* TestClock.adjust("4 seconds")
        }
        assert.deepStrictEqual(lines, [warning(TOKEN_REFUSED)])
        daemon.failure = undefined
        yield* register()
        assert.deepStrictEqual(yield* shown, fine)
        assert.isUndefined(yield* heard)
        assert.deepStrictEqual(lines, [warning(TOKEN_REFUSED), WELL])
      })
    )
  )

  it.effect("the request to register again backs off if it does not help", () =>
    withSetup(({ daemon, heard, register }) =>
      Effect.gen(function* () {
        daemon.failure = unreachable(TOKEN_REFUSED)
        let registrations = 1
        yield* register()
        const minutes = Effect.fnUntraced(function* (count: number) {
          const before = registrations
          for (let second = 0; second < count * 60; second += 5) {
            yield* TestClock.adjust("5 seconds")
            if ((yield* heard) !== "RegistrationRequired") continue
            yield* register()
            registrations += 1
          }
          return registrations - before
        })
        assert.isAtLeast(yield* minutes(1), 3)
        yield* minutes(20)
        assert.isAtMost(yield* minutes(60), 12)
      })
    )
  )

  it.effect("if another node answers at the address, the log names it", () =>
    withSetup(({ daemon, register, registry, shown }) =>
      Effect.gen(function* () {
        yield* registry.register(registration("n2", { url: at }))
        daemon.failure = unreachable(TOKEN_REFUSED)
        yield* register()
        yield* TestClock.adjust("4 seconds")
        assert.deepStrictEqual(yield* shown, cannot(`${TOKEN_REFUSED}; it is now that of node n2`))
      })
    )
  )
})
