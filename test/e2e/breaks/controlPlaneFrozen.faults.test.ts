import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { subscriber } from "../../support/balancer.ts"
import { readDatabase, readDatabaseAt } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { during, restartable } from "../../support/faults/index.ts"
import { journalProblems } from "../../support/invariants.ts"
import { alone, connectedNode, nodeIs } from "../../support/nodes.ts"
import { statementsOn } from "../../support/postgresDatabase.ts"
import { replicaSet } from "../../support/replicaSet.ts"
import { adminKey, startService } from "../../support/Service.ts"
import { makeSimulatedNode } from "../../support/SimulatedNode.ts"
import { becomes, create, running } from "../../support/servers.ts"
import { assertSameEvents } from "./load.ts"
import { heartbeatsArrive, nodeChangesIn } from "./nodes.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false })
  }
}

describe("spec 9.6: a frozen control plane", () => {
  it.live(
    "frozen for longer than node_lost_after: no node is lost, no server given up",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const control = yield* restartable(
          "the control plane",
          startService({
            env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3", MUSTER_NODE_LOST_AFTER: "4" }
          })
        )
        const api = yield* control.current
        yield* connectedNode(api, "n1", {
          env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28700-28709" }
        })
        const stream = yield* subscribe(api)
        const passing = yield* running(api, "passing")
        yield* during(control.frozen, Effect.sleep("6 seconds"))
        yield* heartbeatsArrive(api, "n1", 5)
        assert.include(api.output(), "this process was paused for")
        yield* nodeIs(api, "n1", true)
        yield* becomes(api, passing, "running")
        assert.deepStrictEqual(stream.of(passing), ["installing", "offline", "starting", "running"])
        const { journal } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(nodeChangesIn(journal), ["n1 connected"])
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "if the leader freezes, another replica becomes leader, and the resumed process undoes nothing",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet({
          ...env,
          MUSTER_NODE_HEARTBEAT_TIMEOUT: "3",
          MUSTER_NODE_LOST_AFTER: "600"
        })
        const first = yield* restartable("the replica with the duties", set.start())
        const [one, other] = [yield* first.current, yield* set.start()]
        // A balancer sends messages of nodes here while the first replica does not respond.
        const node = Effect.fnUntraced(function* (id: string, ports: string) {
          const { key } = yield* set.key(id, "Node")
          const made = yield* makeSimulatedNode({
            id,
            key,
            control: [other.url],
            ports,
            heartbeat: "250 millis"
          })
          for (const api of [one, other]) yield* nodeIs(api, id, true)
          return made
        })
        const active = yield* node("living", "31000-31099")
        const dying = yield* node("dying", "31100-31199")
        const streams = yield* Effect.forEach([one, other], ({ url }) =>
          subscriber("sse", adminKey, Effect.succeed(url))
        )
        const began = performance.now()
        const ids = yield* during(
          first.frozen,
          Effect.gen(function* () {
            yield* dying.kill
            const made = yield* Effect.forEach([1, 2, 3, 4], () =>
              create(other, "kept", { node_id: "living" })
            )
            for (const id of made) yield* becomes(other, id, "offline")
            const installed = performance.now()
            yield* nodeIs(other, "dying", false)
            yield* Effect.logInfo(
              `leadership taken over: servers installed after ${Math.round(installed - began)} ms, a node that died is out after ${Math.round(performance.now() - began)} ms`
            )
            return made
          })
        )
        // By now the replica has processed the changes, and could have declared the nodes lost.
        for (const id of ids) yield* becomes(one, id, "offline")
        const beats = Effect.map(
          statementsOn(set.url, "SELECT beats::int AS beats FROM node_heartbeats WHERE node_id = 'living'"),
          ([rows]) => Number(rows?.[0]?.beats)
        )
        const before = yield* beats
        yield* eventually(beats, (now) => now > before + 16)
        const { journal, records } = yield* readDatabaseAt(set.url)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.deepStrictEqual(nodeChangesIn(journal), ["living connected", "dying connected", "dying lost"])
        assert.strictEqual(active.registrations(), 1)
        yield* assertSameEvents(journal, streams)
        for (const api of [one, other]) {
          const id = yield* create(api, "kept", { node_id: "living" })
          yield* becomes(api, id, "offline")
        }
      }).pipe(Effect.scoped),
    60_000
  )
})
