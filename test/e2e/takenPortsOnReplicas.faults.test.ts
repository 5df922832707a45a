import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { definitions } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { nodeIs } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import type { Service } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { create, expectStatus } from "../support/servers.ts"
import { portDefinitions } from "./takenPortsScene.ts"

const SERVERS = 8

interface Listed {
  readonly id: ServerId
  readonly allocations: { readonly mappings: Readonly<Record<string, ReadonlyArray<number>>> }
}

const portsOf = ({ mappings }: Listed["allocations"]) => Object.values(mappings).flat()

const listOf = (api: Service) =>
  Effect.map(
    expectStatus(api, 200, "GET", "/api/servers?include=ports"),
    ({ json }): ReadonlyArray<Listed> => json
  )

describe("spec 2.5: ports are replaced at two replicas", () => {
  it.live(
    "at the same time, and each question twice: no port is given twice, and both replicas show the same",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(portDefinitions)
        const set = yield* replicaSet(env)
        const [first, other] = [yield* set.start(), yield* set.start()]
        const { key } = yield* set.key("n1", "Node")
        const node = yield* makeSimulatedNode({
          id: "n1",
          key,
          control: [first.url, other.url],
          ports: `20000-${20_000 + 5 * SERVERS - 1}`,
          heartbeat: "1 second"
        })
        yield* nodeIs(first, "n1", true)
        yield* nodeIs(other, "n1", true)
        const ids = yield* Effect.forEach(Array.from({ length: SERVERS }), () => create(first, "named"))
        const before = yield* eventually(listOf(other), (servers) => servers.length === SERVERS)
        const question = Effect.fnUntraced(function* (id: string, at: number) {
          const api = at % 2 === 0 ? first : other
          const ports = (yield* expectStatus(first, 200, "GET", `/api/servers/${id}?include=ports`)).json
            .ports
          const ask = expectStatus(api, 200, "POST", `/api/nodes/n1/internal/servers/${id}/ports`, {
            key,
            body: { boot_id: node.brain.boot_id, taken: [ports.query] }
          })
          const answers = yield* Effect.all([ask, ask], { concurrency: "unbounded" })
          const [allocations, repeated] = answers.map(({ json }) => json.allocations)
          assert.deepStrictEqual(repeated, allocations)
          assert.deepStrictEqual(allocations.default, ports.game)
          assert.notInclude(portsOf(allocations), ports.query.port)
          return allocations as Listed["allocations"]
        })
        const answers = yield* Effect.forEach(ids, question, { concurrency: "unbounded" })
        const given = answers.flatMap(portsOf)
        assert.lengthOf(new Set(given), 2 * SERVERS)
        // The ports that another program has are not given again.
        const lost = before
          .flatMap(({ allocations }) => portsOf(allocations))
          .filter((port) => !given.includes(port))
        assert.lengthOf(lost, SERVERS)
        for (const api of [first, other]) {
          const shown = yield* eventually(listOf(api), (servers) =>
            servers.every(({ allocations }) => portsOf(allocations).every((port) => given.includes(port)))
          )
          assert.deepStrictEqual(
            shown.map(({ allocations }) => allocations),
            shown.map(({ id }) => answers[ids.indexOf(id)])
          )
        }
        const more = yield* Effect.forEach(ids, (_, at) => create(at % 2 === 0 ? first : other, "named"))
        const all = yield* eventually(listOf(first), (servers) => servers.length === SERVERS + more.length)
        const used = all.flatMap(({ allocations }) => portsOf(allocations))
        assert.lengthOf(new Set(used), used.length)
        assert.deepStrictEqual(
          lost.filter((port) => used.includes(port)),
          []
        )
      }).pipe(Effect.scoped),
    60_000
  )
})
