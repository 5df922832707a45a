import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { nodeIs } from "../support/nodes.ts"
import { statementsOn } from "../support/postgresDatabase.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { expectStatus, running } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** Counts the writes of runs, also those of transactions that a kill ends. */
const counting = [
  "CREATE SEQUENCE run_writes",
  `CREATE FUNCTION count_run_write() RETURNS trigger LANGUAGE plpgsql AS
   $$ BEGIN PERFORM nextval('run_writes'); RETURN NULL; END $$`,
  ...["schedule_runs", "schedule_run_servers"].map(
    (table) =>
      `CREATE TRIGGER count_writes AFTER INSERT OR UPDATE ON ${table}
       FOR EACH ROW EXECUTE FUNCTION count_run_write()`
  )
]

const SERVERS = 2
const steps = [
  { command: ["first"] },
  { power: "stop" },
  { wait_for: "offline", timeout: 60 },
  { power: "start" },
  { wait_for: "running", timeout: 60 },
  { command: ["last"] }
]
/** The insertion and the begin of a run, its servers, each of them before and after each step, and the ends. */
const WRITES = 2 + SERVERS * (2 + 2 * steps.length) + 1

describe("spec 13.5: the leader is killed at each write of a run", () => {
  it.live(
    "a later leader continues: no run begins twice, no step is left out, and the servers run",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const scope = yield* Effect.scope
        /** The URLs of the replicas that live, which the node calls. */
        const control: Array<string> = []
        const start = Effect.gen(function* () {
          const own = yield* Scope.fork(scope)
          const service = yield* Scope.provide(set.start(), own)
          control.push(service.url)
          const kill = Effect.gen(function* () {
            control.splice(control.indexOf(service.url), 1)
            yield* service.kill("SIGKILL")
            yield* Scope.close(own, Exit.void)
          })
          return { ...service, kill }
        })
        let leader = yield* start
        let other = yield* start
        const { key } = yield* set.key("n1", "Node")
        const node = yield* makeSimulatedNode({
          ...{ id: "n1", key, control, ports: "31500-31599", heartbeat: "1 second" }
        })
        yield* nodeIs(leader, "n1", true)
        const ids = [yield* running(leader, "kept"), yield* running(leader, "kept")]
        yield* statementsOn(set.url, ...counting)
        const { json: schedule } = yield* expectStatus(leader, 201, "POST", "/api/schedules", {
          body: { name: "kills", cron: "0 0 1 1 *", selector: { blueprint_id: "kept" }, steps }
        })
        const path = `/api/schedules/${schedule.id}`
        const written = Effect.map(
          statementsOn(set.url, "SELECT last_value::int AS count FROM run_writes"),
          ([rows]) => Number(rows?.[0]?.count ?? 0)
        )
        const runs: Array<string> = []
        for (let at = 1; at < WRITES; at += 1) {
          yield* statementsOn(set.url, "ALTER SEQUENCE run_writes RESTART")
          const lines = node.brain.lines.length
          const { json: begun } = yield* expectStatus(other, 202, "POST", `${path}/run`)
          yield* eventually(written, (count) => count >= at, "60 seconds")
          yield* leader.kill
          leader = other
          other = yield* start
          const end = yield* eventually(
            Effect.map(expectStatus(leader, 200, "GET", `/api/runs/${begun.id}`), ({ json }) => json),
            ({ state }) => state !== "running",
            "60 seconds"
          )
          const label = `killed after ${at} writes`
          assert.deepStrictEqual(
            [end.state, Object.values(end.servers)],
            ["done", ids.map(() => ({ state: "done", step: steps.length }))],
            label
          )
          const sent = node.brain.lines.slice(lines)
          // A command is written at least once, and twice only if its leader was killed between the write and its record.
          for (const line of ["first", "last"]) {
            const times = sent.filter((one) => one === line).length
            assert.isAtLeast(times, SERVERS, `${label}: ${line}`)
            assert.isAtMost(times, 2 * SERVERS, `${label}: ${line}`)
          }
          for (const id of ids)
            assert.strictEqual(
              (yield* expectStatus(leader, 200, "GET", `/api/servers/${id}/status`)).json.status,
              "running",
              label
            )
          runs.unshift(begun.id)
        }
        const listed = yield* expectStatus(leader, 200, "GET", `${path}/runs?limit=20`)
        assert.deepStrictEqual(
          listed.json.map(({ id }: { readonly id: string }) => id),
          runs.slice(0, 20)
        )
      }).pipe(Effect.scoped),
    600_000
  )

  it.live(
    "with a time each minute, two replicas and a killed leader, each time has one run",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const first = yield* set.start()
        const second = yield* set.start()
        const { key } = yield* set.key("n1", "Node")
        const node = yield* makeSimulatedNode({
          ...{ id: "n1", key, control: [second.url], ports: "31600-31699", heartbeat: "1 second" }
        })
        yield* nodeIs(second, "n1", true)
        yield* running(second, "kept")
        const { json: schedule } = yield* expectStatus(second, 201, "POST", "/api/schedules", {
          body: {
            ...{ name: "minutes", cron: "* * * * *", selector: { blueprint_id: "kept" } },
            steps: [{ command: ["tick"] }]
          }
        })
        const due = Date.parse(schedule.next_at)
        // A second before the time, the leader is lost.
        yield* eventually(
          Effect.sync(() => Date.now() > due - 1_000),
          (isTime) => isTime,
          "70 seconds"
        )
        yield* first.kill("SIGKILL")
        const [run] = yield* eventually(
          Effect.map(
            expectStatus(second, 200, "GET", `/api/schedules/${schedule.id}/runs`),
            ({ json }) => json
          ),
          (runs) => runs.length > 0 && runs.at(-1).state !== "running",
          "60 seconds"
        )
        const all = (yield* expectStatus(second, 200, "GET", `/api/schedules/${schedule.id}/runs`)).json
        const times = all.map(({ due_at }: { readonly due_at: string }) => due_at)
        assert.strictEqual(new Set(times).size, times.length)
        assert.strictEqual(times.at(-1), schedule.next_at)
        assert.strictEqual(run.state, "done")
        assert.lengthOf(node.brain.lines, all.length)
      }).pipe(Effect.scoped),
    180_000
  )
})
