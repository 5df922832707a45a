import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpClient, HttpClientError, HttpClientResponse } from "effect/http"
import { CircuitBreaker } from "effect/persistence"
import { TestClock } from "effect/testing"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { DaemonClient } from "../../../../src/controlPlane/nodes/DaemonClient.ts"
import { NodeRegistry } from "../../../../src/controlPlane/nodes/NodeRegistry.ts"
import { RemoteDaemons } from "../../../../src/controlPlane/nodes/remote/RemoteDaemons.ts"
import { plain } from "../../../support/ids.ts"
import { registration } from "../../../support/samples.ts"
import { heartbeat, memoryNodes } from "../support/fleet.ts"

const NODE = "n1"

/** The server at the address of every node. */
const makeWire = () => {
  const wire = { isCut: false, calls: [] as Array<string> }
  const http = HttpClient.make((request, url) =>
    Effect.suspend(() => {
      wire.calls.push(url.pathname)
      if (wire.isCut) {
        const cause = Object.assign(new Error("connect"), { code: "ETIMEDOUT" })
        const reason = new HttpClientError.TransportError({ request, cause })
        return Effect.fail(new HttpClientError.HttpClientError({ reason }))
      }
      const body = url.pathname.endsWith("/status")
        ? { status: "running" }
        : { version: "1.0.0", system: registration(NODE).system }
      return Effect.succeed(HttpClientResponse.fromWeb(request, Response.json(body)))
    })
  )
  return { wire, layer: Layer.succeed(HttpClient.HttpClient, http) }
}

const remotes = (http: Layer.Layer<HttpClient.HttpClient>) =>
  RemoteDaemons.layerNoDeps().pipe(
    Layer.provide(http),
    Layer.provide(
      CircuitBreaker.layer({ tripPolicy: CircuitBreaker.consecutive(5), openDuration: "5 seconds" })
    ),
    Layer.provide(CircuitBreaker.layerStoreMemory()),
    Layer.provideMerge(memoryNodes())
  )

describe("spec 9.4: an idle node", () => {
  it.effect(
    "an idle node is called about every 30 s while its heartbeats arrive, unless other calls succeed",
    () => {
      const { layer, wire } = makeWire()
      return Effect.gen(function* () {
        const daemons = plain(yield* DaemonClient)
        const registry = plain(yield* NodeRegistry)
        const daemon = plain(yield* RemoteDaemons)
        yield* registry.register(registration(NODE))
        yield* daemon.registered(NODE)
        /** A heartbeat every 10 s. */
        const beats = Effect.fnUntraced(function* (
          count: number,
          beside: Effect.Effect<unknown> = Effect.void
        ) {
          let why: string | undefined
          for (let beat = 0; beat < count; beat++) {
            yield* TestClock.adjust("10 seconds")
            yield* registry.heartbeat(NODE, heartbeat(`${NODE}-boot`))
            why = yield* daemon.onHeartbeat(NODE)
            yield* beside
          }
          return why
        })
        yield* TestClock.adjust(0)
        const probes = () => wire.calls.filter((path) => path === "/api/system").length
        assert.strictEqual(probes(), 1)
        const status = Effect.flatMap(daemons.of(NODE), (it) => it.status(ServerId.make("srv_1")))
        assert.isUndefined(yield* beats(30, Effect.orDie(status)))
        assert.strictEqual(probes(), 1)
        assert.isUndefined(yield* beats(30))
        assert.isAtLeast(probes(), 6)
        assert.isAtMost(probes(), 11)
        wire.isCut = true
        const why =
          "http://n1:5585: ETIMEDOUT. Check that the daemon runs, MUSTER_NODE_URL of the node, and the firewall"
        assert.strictEqual(yield* beats(6), why)
        assert.strictEqual((yield* registry.get(NODE)).unreachable, why)
        assert.isTrue(registry.isConnected(NODE), "its heartbeats arrive")
        wire.isCut = false
        assert.isUndefined(yield* beats(3))
        assert.isTrue((yield* registry.get(NODE)).connected)
      }).pipe(Effect.provide(remotes(layer)))
    }
  )
})
