import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { NodeId, type ServerId } from "../../../src/contract/domain/Id.ts"
import type { ServerStats } from "../../../src/contract/domain/Server.ts"
import type { Daemon } from "../../../src/contract/nodeApi/Daemon.ts"
import { DaemonClient } from "../../../src/controlPlane/nodes/DaemonClient.ts"
import { ServerIndex } from "../../../src/controlPlane/servers/list/ServerIndex.ts"
import { makeStatsOf } from "../../../src/controlPlane/servers/stats.ts"
import { branded } from "../../support/ids.ts"
import { record } from "../../support/samples.ts"
import { FakeDaemon } from "./support/FakeDaemon.ts"

const figures: ServerStats = {
  memory_bytes: 1,
  memory_limit_bytes: 0,
  cpu_absolute: null,
  cpu_absolute_limit: 0,
  network: { rx_bytes: null, tx_bytes: null },
  uptime: 1,
  state: "running",
  disk_bytes: null,
  disk_max: 0,
  overlay_bytes: null
}

/** Servers by the node they are on, and the calls to the nodes. */
const scene = Effect.fnUntraced(function* (
  servers: Readonly<Record<string, string>>,
  nodes: Readonly<Record<string, (calls: Array<string>) => Partial<Daemon>>>
) {
  const calls: Array<string> = []
  const index = Layer.mock(ServerIndex)({
    latest: () => undefined,
    factsOf: () => undefined,
    nameOf: () => undefined,
    isCreating: () => false,
    isWithin: () => true,
    migrationOf: () => undefined,
    storing: () => {},
    all: () => [],
    get: (id) => {
      const node_id = servers[id]
      return node_id === undefined ? undefined : record({ id, node_id })
    }
  })
  const parts = yield* Layer.build(Layer.mergeAll(index, DaemonClient.layer))
  return yield* Effect.gen(function* () {
    const daemons = yield* DaemonClient
    for (const [id, make] of Object.entries(nodes)) {
      yield* daemons.attach(NodeId.make(id), { ...new FakeDaemon(id).daemon, ...make(calls) })
    }
    const statsOf = yield* makeStatsOf
    return {
      calls,
      statsOf: (...ids: ReadonlyArray<string>) =>
        Effect.map(statsOf(branded<ReadonlyArray<ServerId>>(ids)), (found) => Object.fromEntries(found))
    }
  }).pipe(Effect.provide(parts))
})

const answers =
  (node: string): ((calls: Array<string>) => Partial<Daemon>) =>
  (calls) => ({
    statsOfMany: (ids) =>
      Effect.sync(() => {
        calls.push(`${node}: ${ids.join(" ")}`)
        return Object.fromEntries(ids.map((id) => [id, figures]))
      })
  })

describe("spec 3.7: GET /api/stats", () => {
  it.effect("one call to each node has the figures of all its servers", () =>
    Effect.gen(function* () {
      const { calls, statsOf } = yield* scene(
        { a: "n1", b: "n2", c: "n1", d: "away" },
        { n1: answers("n1"), n2: answers("n2") }
      )
      assert.deepStrictEqual(yield* statsOf("a", "b", "c", "d", "deleted"), {
        a: figures,
        b: figures,
        c: figures
      })
      assert.deepStrictEqual(calls, ["n1: a c", "n2: b"])
    }).pipe(Effect.scoped)
  )

  it.effect("a node that hangs holds no others up after the deadline; its servers have no figures", () =>
    Effect.gen(function* () {
      const { statsOf } = yield* scene(
        { a: "n1", b: "n2" },
        { n1: () => ({ statsOfMany: () => Effect.never }), n2: answers("n2") }
      )
      const asked = yield* Effect.forkChild(statsOf("a", "b"), { startImmediately: true })
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual(yield* Fiber.join(asked), { b: figures })
    }).pipe(Effect.scoped)
  )

  it.effect("figures of servers that were not asked for are ignored", () =>
    Effect.gen(function* () {
      const { statsOf } = yield* scene(
        { a: "n1", b: "n2" },
        {
          n1: () => ({ statsOfMany: () => Effect.succeed({ b: figures }) }),
          n2: () => ({ statsOfMany: () => Effect.succeed({}) })
        }
      )
      assert.deepStrictEqual(yield* statsOf("a", "b"), {})
    }).pipe(Effect.scoped)
  )
})
