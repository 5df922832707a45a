import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../src/contract/domain/Id.ts"
import { isPublic } from "../../src/contract/domain/Journal.ts"
import { readDatabase } from "../support/database.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { journalProblems } from "../support/invariants.ts"
import { alone, nodeIs, nodeKey } from "../support/nodes.ts"
import { freshSeed, seeded } from "../support/random.ts"
import { startService } from "../support/Service.ts"
import { changes, makeSimulatedNode } from "../support/SimulatedNode.ts"
import { expectStatus, power } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const seed = freshSeed()
const names = ["one", "two", "three"] as const
const messageFaults = { requestLost: 8, responseLost: 8, repeated: 15, reordered: 25, delay: 20 }

interface Listed {
  readonly id: ServerId
  readonly node_id: ServerId
  readonly status: string
}

describe("spec 9.3: at least once and in order for each server", () => {
  it.live(
    `lost, repeated, delayed and reordered messages of nodes that connect and disconnect leave correct records (MUSTER_TEST_SEED=${seed})`,
    () =>
      Effect.gen(function* () {
        const random = seeded(seed)
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "1" } })
        const stream = yield* subscribe(api, "/api/events?cursor=0")
        const nodes = yield* Effect.forEach(names, (id, index) =>
          Effect.flatMap(nodeKey(api, id), ({ key }) =>
            makeSimulatedNode({
              id,
              key,
              control: [api.url],
              ports: `${30_000 + index * 500}-${30_499 + index * 500}`,
              heartbeat: "200 millis",
              random: seeded(seed + index + 1),
              messageFaults
            })
          )
        )
        for (const { id } of nodes) yield* nodeIs(api, id, true)
        const nodeOf = new Map<ServerId, (typeof nodes)[number]>()
        const make = Effect.gen(function* () {
          const answer = yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } })
          if (answer.status !== 202) return // no node is connected
          const node = nodes.find(({ id }) => id === answer.json.node_id)
          if (node !== undefined) nodeOf.set(answer.json.id, node)
        })
        yield* Effect.repeat(make, { until: () => nodeOf.size === 60 })

        /** A change by a server or by a caller. */
        const act = Effect.gen(function* () {
          const ids = [...nodeOf.keys()]
          const id = ids[random.below(ids.length)] ?? ServerId.make("")
          const node = nodeOf.get(id)
          const status = node?.brain.instances.get(id)?.status
          if (node === undefined || status === undefined) return
          if (random.below(3) === 0) yield* power(api, id, random.pick(["start", "stop", "kill"]))
          else if (status === "offline") {
            node.brain.move(id, "starting")
            node.brain.move(id, "running")
          } else if (status === "running") {
            if (random.below(2) === 0) node.brain.crash(id)
            else {
              node.brain.move(id, "stopping")
              node.brain.move(id, "offline", true)
            }
          }
        })
        const actions = Effect.forEach(
          Array.from({ length: 8 }),
          () => Effect.forEach(Array.from({ length: 25 }), () => act, { discard: true }),
          {
            concurrency: "unbounded",
            discard: true
          }
        )
        const nature = Effect.gen(function* () {
          for (let n = 0; n < 4; n++) {
            const node = random.pick([nodes[0], nodes[1], nodes[2]] as const)
            if (node === undefined) continue
            if (random.below(2) === 0) {
              yield* node.cut
              // Long enough to be lost in some cases only.
              if (random.below(2) === 0) yield* nodeIs(api, node.id, false)
              yield* node.heal
            } else {
              yield* node.kill
              if (random.below(2) === 0) yield* nodeIs(api, node.id, false)
              yield* node.restart
            }
            yield* nodeIs(api, node.id, true)
            yield* make
          }
        })
        yield* Effect.all([actions, nature], { concurrency: "unbounded", discard: true })

        yield* eventually(
          Effect.sync(() => nodes.filter((node) => !node.quiet()).map(({ id }) => id)),
          (talking) => talking.length === 0
        )
        const wrong = (listed: ReadonlyArray<Listed>) =>
          listed
            .filter(({ id, status }) => nodeOf.get(id)?.brain.instances.get(id)?.status !== status)
            .map(({ id, status }) => `${id} is ${status}: ${nodeOf.get(id)?.sentReports(id).join()}`)
        yield* eventually(
          Effect.map(expectStatus(api, 200, "GET", "/api/servers?include=status"), ({ json }) => wrong(json)),
          (problems) => problems.length === 0
        )
        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.strictEqual(records.length, nodeOf.size)
        yield* eventually(
          Effect.sync(() => stream.events().at(-1)?.Cursor),
          (cursor) => cursor === journal.filter(({ change }) => isPublic(change)).at(-1)?.cursor
        )
        // Every subscriber received the reports of the nodes, once and in order.
        for (const [id, node] of nodeOf) {
          const published = changes(stream.of(id).filter((status) => status !== "unknown"))
          assert.deepStrictEqual(published, changes(["installing", ...node.sentReports(id)]), id)
        }
      }).pipe(Effect.scoped),
    120_000
  )
})
