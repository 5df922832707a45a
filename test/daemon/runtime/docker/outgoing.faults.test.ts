import { execFileSync, spawn } from "node:child_process"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Allocations } from "../../../../src/contract/domain/Allocation.ts"
import { outgoingAddress } from "../../../../src/daemon/runtime/docker/networks.ts"
import { engineNote, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { until } from "../../../support/eventually.ts"
import { bench, consoleOf, newNode } from "./support.ts"

/** A second machine: a network namespace behind a veth pair, on which this machine has two addresses. */
const outside = Effect.gen(function* () {
  const name = `must${process.pid}`
  const net = 10 + (process.pid % 200)
  const [ours, other, theirs] = [1, 2, 9].map((host) => `10.213.${net}.${host}`)
  const ip = (...args: ReadonlyArray<string>) => execFileSync("ip", args)
  yield* Effect.acquireRelease(
    Effect.sync(() => ip("netns", "add", name)),
    () => Effect.sync(() => ip("netns", "del", name))
  )
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      ip("link", "add", `${name}a`, "type", "veth", "peer", "name", `${name}b`, "netns", name)
      for (const address of [ours, other]) ip("addr", "add", `${address}/24`, "dev", `${name}a`)
      ip("link", "set", `${name}a`, "up")
      ip("-n", name, "addr", "add", `${theirs}/24`, "dev", `${name}b`)
      ip("-n", name, "link", "set", `${name}b`, "up")
    }),
    () => Effect.sync(() => ip("link", "del", `${name}a`))
  )
  /** Prints the address of each client. */
  const listener = `
    require("node:net").createServer((socket) => socket.end(socket.remoteAddress + "\\n"))
      .listen(7000, "${theirs}", () => console.log("listens"))`
  let output = ""
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn("ip", ["netns", "exec", name, process.execPath, "-e", listener])
      child.stdout.on("data", (bytes) => {
        output += String(bytes)
      })
      return child
    }),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  yield* until("the listener outside listens", () => output.includes("listens"))
  return { ours: ours ?? "", other: other ?? "", theirs: theirs ?? "" }
})

const allocated = (ip: string, force_outgoing_ip = true): Allocations => ({
  force_outgoing_ip,
  alias: "",
  default: { ip, port: 20_000 + Math.floor(Math.random() * 10_000) },
  mappings: {}
})

describe.runIf(withEngine)(`Docker runtime: force_outgoing_ip${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect("connections of a server come from its allocated address", () =>
      Effect.gen(function* () {
        const { docker } = yield* TestEngine
        const { other, ours, theirs } = yield* outside
        const { close, node, runtime, start } = yield* bench()
        const ask = `while ! nc -w 3 ${theirs} 7000; do :; done; echo asked; read -r l`
        const seen = Effect.fnUntraced(function* (allocations: Allocations) {
          const { launch, run } = yield* start(ask, { allocations })
          yield* until("it was answered", () => consoleOf(launch).includes("asked"))
          return { address: consoleOf(launch).split("\n")[0], launch, run }
        })
        const networks = Effect.promise(() =>
          docker.listNetworks({ filters: { label: [`muster.node=${node}`, "muster.outgoing"] } })
        )
        const [first, again, second, free] = [
          yield* seen(allocated(other)),
          yield* seen(allocated(other)),
          yield* seen(allocated(ours)),
          yield* seen(allocated(other, false))
        ]
        assert.deepStrictEqual(
          [first, again, second, free].map(({ address }) => address),
          [other, other, ours, ours]
        )
        assert.deepStrictEqual(
          (yield* networks).map(({ Labels }) => Labels?.["muster.outgoing"]).toSorted(),
          [ours, other].toSorted()
        )
        // A network in use is kept, an unused one removed.
        yield* second.run.kill
        yield* first.run.kill
        yield* Effect.repeat(networks, { until: (left) => left.length === 1 })
        assert.strictEqual((yield* networks)[0]?.Labels?.["muster.outgoing"], other)
        for (const { run } of [again, free]) yield* run.kill
        assert.strictEqual((yield* runtime.alive).size, 0)
        yield* close
        assert.deepStrictEqual(yield* networks, [])
      }).pipe(Effect.scoped)
    )

    it.effect("a foreign network is neither used nor removed", () =>
      Effect.gen(function* () {
        const { docker } = yield* TestEngine
        const labels = { "muster.node": newNode(), "muster.outgoing": "10.213.0.1" }
        const theirs = yield* Effect.acquireRelease(
          Effect.promise(() => docker.createNetwork({ Name: labels["muster.node"], Labels: labels })),
          (network) => Effect.promise(() => network.remove())
        )
        const { close } = yield* bench()
        yield* close
        assert.strictEqual((yield* Effect.promise(() => theirs.inspect())).Name, labels["muster.node"])
      }).pipe(Effect.scoped)
    )

    it.effect("an address that cannot be used is an error, and nothing of the server remains", () =>
      Effect.gen(function* () {
        const { launchOf, runtime } = yield* bench()
        for (const [ip, why] of [
          ["127.0.0.1", "a loopback address"],
          ["::1", "only IPv4"]
        ] as const) {
          const launch = yield* launchOf("true", { allocations: allocated(ip) })
          const refused = yield* Effect.flip(runtime.start(launch))
          assert.include(refused.message, `traffic cannot leave from ${ip}: `)
          assert.include(refused.message, why)
        }
        assert.strictEqual((yield* runtime.alive).size, 0)
        assert.isUndefined(outgoingAddress(allocated("10.0.0.1", false)))
        assert.isUndefined(outgoingAddress(undefined))
      }).pipe(Effect.scoped)
    )
  })
})
