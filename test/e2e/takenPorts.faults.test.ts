import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { options, removed } from "../controlPlane/http/support/http.ts"
import { definitions } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { restartable, tcpProxy } from "../support/faults/index.ts"
import { Muster } from "../support/Muster.ts"
import { alone, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { portHeld } from "../support/ports.ts"
import { endLeftovers } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, installed, logsHave, power, powered, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { portDefinitions, serviceOn, shown } from "./takenPortsScene.ts"

const few = [26_372, 26_373, 26_374, 26_375]

describe("spec 9.6: daemon killed after the replacement of a port", () => {
  it.live(
    "the server starts with the ports of its record, also if the former port is free again",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(portDefinitions)
        const api = yield* startService({ env: { ...alone, ...env } })
        const proxy = yield* tcpProxy(Number(new URL(api.url).port))
        const { key } = yield* nodeKey(api, "n1")
        const dataDir = join(yield* temporaryFolder, "n1")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const node = yield* restartable(
          "the daemon",
          startNode({
            control: proxy.through(api.url),
            key,
            id: "n1",
            dataDir,
            env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:26377-26389" }
          })
        )
        yield* nodeIs(api, "n1", true)
        const id = yield* installed(api, "kept")
        const recorded = Effect.map(
          expectStatus(api, 200, "GET", `/api/servers/${id}`),
          ({ json }) => json.allocations.default
        )
        const before = yield* recorded
        yield* Effect.gen(function* () {
          yield* portHeld(before.ip, before.port, "TCP")
          // The answer of the control plane is lost.
          yield* proxy.cutAt((chunk) => chunk.includes('"allocations"'))
          const answer = yield* power(api, id, "start")
          assert.strictEqual(answer.status, 409, answer.text)
          assert.isTrue(proxy.hasCut())
        }).pipe(Effect.scoped)
        const after = yield* recorded
        assert.notStrictEqual(after.port, before.port)
        yield* node.killed.inject
        yield* node.killed.heal
        yield* eventually(power(api, id, "start"), ({ status }) => status === 200)
        yield* logsHave(api, id, `address ${after.ip} ${after.port} `)
        assert.deepStrictEqual(yield* recorded, after)
      }).pipe(Effect.scoped),
    60_000
  )
})

layer(serviceOn(`127.0.0.1:${few.join(",")}`), options)("few ports", (it) => {
  describe("spec 2.5: a port that another program has", () => {
    it.effect("is replaced for a creation with start, also several times", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const free = yield* shown(yield* installed(api, "kept"))
        const { default: main } = free.allocations
        yield* removed(free.id)
        for (const port of few.filter((other) => other !== main.port)) yield* portHeld(main.ip, port, "TCP")
        const id = yield* running(api, "kept")
        assert.deepStrictEqual((yield* shown(id)).allocations.default, main)
        yield* removed(id)
      }).pipe(Effect.scoped)
    )
  })
})

layer(serviceOn("[::1]:26360-26371"), options)("an IPv6 address of the node", (it) => {
  describe("spec 2.5: a port that another program has", () => {
    for (const [protocol, ip] of [
      ["TCP", "::1"],
      ["TCP", "::"],
      ["UDP", "::1"]
    ] as const) {
      it.effect(`is replaced before the start: ${protocol} of ${ip}`, () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept")
          const { port } = (yield* shown(id)).allocations.default
          yield* portHeld(ip, port, protocol)
          yield* powered(api, id, "start")
          const { allocations } = yield* shown(id)
          assert.notStrictEqual(allocations.default.port, port)
          yield* logsHave(api, id, `address ::1 ${allocations.default.port} `)
          yield* removed(id)
        }).pipe(Effect.scoped)
      )
    }
  })
})
