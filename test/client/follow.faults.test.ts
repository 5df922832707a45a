/** MUSTER_TEST_FOLLOW_SECONDS=600 is the full length, and MUSTER_TEST_SEED repeats the choices of a run. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Ref, Stream } from "effect"
import type { Change, Reset } from "../../src/client/index.ts"
import { elapsedMillis } from "../../src/shared/work/elapsed.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { during, restartable, tcpProxy } from "../support/faults/index.ts"
import { nodeIs } from "../support/nodes.ts"
import { freePorts } from "../support/ports.ts"
import { statementsOn } from "../support/postgresDatabase.ts"
import { freshSeed, seeded } from "../support/random.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { adminKey, ended, type RequestOptions, requestTo, type Service } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { expectStatus } from "../support/servers.ts"
import { clientOf } from "./support.ts"

/** Seconds of changes and faults. */
const LENGTH = Number(process.env.MUSTER_TEST_FOLLOW_SECONDS ?? 45)
/** Servers that are created while the follower is cut off: more changes than stay. */
const MISSED = 20
/** Changes that stay in the journal. */
const KEPT = 10

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false })
  }
}

/** The state that a follower keeps, and what it has seen. */
const makeState = () => {
  const statuses = new Map<string, string | undefined>()
  const seen = { changes: 0, resets: 0, last: 0, wrong: [] as Array<string> }
  const apply = (element: Change | Reset) => {
    const inOrder = element.topic === "reset" ? element.cursor >= seen.last : element.cursor > seen.last
    if (!inOrder) seen.wrong.push(`${element.topic} at ${element.cursor} after ${seen.last}`)
    seen.last = element.cursor
    if (element.topic === "reset") {
      seen.resets += 1
      statuses.clear()
      for (const { id, status } of element.servers) statuses.set(id, status)
      return
    }
    seen.changes += 1
    if (element.topic === "status") statuses.set(element.server_id, element.payload)
    if (element.topic === "deleted") statuses.delete(element.server_id)
  }
  return { statuses, seen, apply }
}

const sorted = (statuses: Iterable<readonly [string, string | undefined]>) =>
  [...statuses].toSorted(([one], [other]) => (one < other ? -1 : 1))

describe("the client: a follower during faults", () => {
  it.live(
    `after ${LENGTH} s of changes, restarts of replicas, cut connections and lost changes, its state is that of the list`,
    () =>
      Effect.gen(function* () {
        const random = seeded(freshSeed())
        const { env } = yield* definitions(files)
        const set = yield* replicaSet({ ...env, MUSTER_SHUTDOWN_GRACE: "0" })
        const first = yield* freePorts(2)
        const ports = [first, first + 1] as const
        const replica = (port: number) =>
          restartable(`replica ${port}`, set.start({ MUSTER_PORT: String(port) }))
        const replicas = [yield* replica(ports[0]), yield* replica(ports[1])] as const
        const control = ports.map((port) => `http://127.0.0.1:${port}`)
        for (const [id, range] of [
          ["n1", "30000-34999"],
          ["n2", "35000-39999"]
        ] as const) {
          const { key } = yield* set.key(id, "Node")
          yield* makeSimulatedNode({ id, key, control, ports: range, heartbeat: "1 second" })
          yield* nodeIs(replicas[0].latest(), id, true)
        }

        // The follower reaches the replicas by turns, one for each connection.
        let connections = 0
        const proxy = yield* tcpProxy(() => ports[connections++ % 2] ?? first)
        const muster = yield* clientOf(`http://127.0.0.1:${proxy.port}`, adminKey)
        const { apply, seen, statuses } = makeState()
        const { cursor, servers } = yield* muster.list()
        for (const { id, status } of servers) statuses.set(id, status)
        const following = yield* Effect.forkScoped(
          Stream.runForEach(muster.follow({ from: cursor }), (element) => Effect.sync(() => apply(element)))
        )

        const send = (method: string, path: string, options?: RequestOptions) =>
          Effect.option(
            requestTo(random.pick([control[0] ?? "", control[1] ?? ""]), adminKey)(method, path, options)
          )
        /** Creates, starts, stops or deletes one server. */
        const ids = new Set<string>()
        const create = Effect.gen(function* () {
          const body = {
            blueprint_id: random.pick(["kept", "kept", "passing"]),
            start: random.below(2) === 0
          }
          const answer = yield* send("POST", "/api/servers", { body })
          if (answer._tag === "Some" && answer.value.status === 202) ids.add(answer.value.json.id)
        })
        const change = Effect.suspend(() => {
          const id = [...ids][random.below(ids.size)]
          if (id === undefined || ids.size < 40) return create
          const action = random.pick(["start", "stop", "kill", "delete"])
          if (action !== "delete") return send("POST", `/api/servers/${id}/power`, { body: { action } })
          ids.delete(id)
          return send("DELETE", `/api/servers/${id}`)
        })
        const done = yield* Ref.make(false)
        const work = Effect.repeat(Effect.delay(change, "40 millis"), { until: () => Ref.get(done) })
        const load = yield* Effect.forkScoped(Effect.all([work, work], { concurrency: 2 }))

        /** Deletes changes from the journal that the follower has not received, as the retention does. */
        const lost = during(
          proxy.dropped,
          Effect.gen(function* () {
            yield* Effect.all(Array.from({ length: MISSED }, () => create))
            yield* eventually(
              Effect.map(send("GET", "/metrics"), (answer) =>
                answer._tag === "Some"
                  ? Number(/^muster_journal_newest_cursor (\d+)/m.exec(answer.value.text)?.[1])
                  : 0
              ),
              (newest) => newest > seen.last + 2 * KEPT
            )
            yield* statementsOn(
              set.url,
              `DELETE FROM journal WHERE cursor <= (SELECT max(cursor) - ${KEPT} FROM journal)`
            )
          })
        )
        const restart = (signal: NodeJS.Signals) =>
          Effect.gen(function* () {
            const { killed, latest } = random.pick(replicas)
            const { process } = latest()
            process.kill(signal)
            yield* ended(process)
            yield* killed.inject
            yield* killed.heal
          })
        const faults = {
          cut: during(proxy.dropped, Effect.sleep("500 millis")),
          silent: during(proxy.swallowed, Effect.sleep("2 seconds")),
          killed: restart("SIGKILL"),
          stopped: restart("SIGTERM"),
          lost
        }
        const injected = { cut: 0, silent: 0, killed: 0, stopped: 0, lost: 0 }
        const inject = (fault: keyof typeof faults) =>
          Effect.suspend(() => {
            injected[fault] += 1
            return faults[fault]
          })
        const end = (yield* elapsedMillis) + LENGTH * 1000
        // One of each of these at least.
        yield* inject("lost")
        yield* inject("killed")
        while ((yield* elapsedMillis) < end) {
          yield* inject(random.pick(["cut", "silent", "killed", "stopped", "lost"]))
          yield* Effect.sleep(500 + random.below(2500))
        }
        yield* Ref.set(done, true)
        yield* Fiber.join(load)

        const listed = (api: Pick<Service, "request">) =>
          Effect.map(expectStatus(api, 200, "GET", "/api/servers?include=status"), ({ json }) =>
            sorted(json.map((server: { id: string; status: string }) => [server.id, server.status]))
          )
        const settled = yield* eventually(
          Effect.gen(function* () {
            const [one, other] = yield* Effect.all([
              listed(replicas[0].latest()),
              listed(replicas[1].latest())
            ])
            return { one, other, followed: sorted(statuses) }
          }),
          ({ followed, one, other }) =>
            JSON.stringify(one) === JSON.stringify(other) && JSON.stringify(one) === JSON.stringify(followed),
          "90 seconds"
        )
        assert.isAbove(settled.followed.length, 0)
        assert.isUndefined(following.pollUnsafe())
        assert.deepStrictEqual(seen.wrong, [])
        assert.isAbove(seen.resets, 0)
        yield* Effect.log("the follower", {
          seed: random.seed,
          seconds: LENGTH,
          servers: settled.followed.length,
          connections,
          ...seen,
          ...injected
        })
      }).pipe(Effect.scoped),
    (LENGTH + 240) * 1000
  )
})
