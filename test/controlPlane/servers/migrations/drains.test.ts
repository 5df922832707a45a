import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { isUnderway } from "../../../../src/contract/domain/Drain.ts"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { until } from "../../../support/eventually.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

/** Two nodes, and servers of these blueprints on the first, which run; "": the usual blueprint. */
const makeScene = Effect.fnUntraced(function* (
  blueprints: ReadonlyArray<string>,
  options: { readonly otherPorts?: number } = {}
) {
  const harness = yield* makeHarness({ otherPorts: 100, ...options })
  const plane = yield* harness.start()
  const ids = yield* Effect.forEach(blueprints, (blueprint_id) =>
    Effect.map(
      plane.servers.create(
        request({ ...(blueprint_id === "" ? {} : { blueprint_id }), start: true, node_id: "n1" })
      ),
      ({ id }) => id
    )
  )
  for (const id of ids) yield* plane.becomes(id, "running")
  yield* plane.settled
  const lines = (id: string) => harness.daemon.calls.filter((call) => call === `commands ${id}`).length
  const status = (id: string) =>
    Effect.map(plane.records, (all) => all.find((one) => one.id === id)?.status ?? "gone")
  return { ...harness, ...plane, ids, lines, status }
})

const inMillis = (millis: number) => new Date(Date.now() + millis).toISOString()

describe("docs/nodes.md, Drain a node", () => {
  it.live("a dry run names destinations, and the reasons of those that stay once; it changes nothing", () =>
    Effect.gen(function* () {
      const { drainWithMove, ids, moves, nodes, records } = yield* makeScene(
        ["", "", "tied", "tied", "", "", "lobby"],
        { otherPorts: 2 }
      )
      const held = [...nodes.held]
      const before = yield* records
      const plan = yield* moves.plan("n1")
      assert.deepStrictEqual(
        plan.migrations.map(({ server_id, to }) => [server_id, to]),
        ids.slice(0, 2).map((id) => [id, "n2"])
      )
      assert.strictEqual(plan.migrations_total, 2)
      assert.strictEqual(plan.running_out, 1)
      const [tied, full] = plan.blocked
      assert.match(tied?.reason ?? "", /rw/)
      assert.deepStrictEqual([tied?.total, tied?.server_ids], [2, ids.slice(2, 4)])
      assert.match(full?.reason ?? "", /no nodes available/)
      assert.deepStrictEqual([full?.total, full?.server_ids], [2, ids.slice(4, 6)])
      assert.deepStrictEqual([...nodes.held], held)
      assert.deepStrictEqual(yield* records, before)
      yield* drainWithMove("n1")
      yield* until(
        "the drain has done what the plan says",
        Effect.map(
          moves.progress("n1"),
          (progress) => progress?.left === 4 && progress.servers.every((one) => one.state === "blocked")
        )
      )
    }).pipe(runHarness)
  )

  it.live("parallel bounds the servers that leave at a time; the progress has the choices", () =>
    Effect.gen(function* () {
      const { drainWithMove, moves, other } = yield* makeScene(["", "", "", ""])
      other.installs = "manual"
      const deadline_at = inMillis(3_600_000)
      yield* drainWithMove("n1", { parallel: 3, deadline_at })
      yield* until(
        "three are on their way",
        Effect.sync(() => other.instances.size === 3)
      )
      const progress = yield* moves.progress("n1")
      assert.deepInclude(progress, { parallel: 3, deadline_at, left: 4 })
      assert.strictEqual(progress?.servers.filter(({ state }) => state === "waiting").length, 1)
      for (const id of other.instances.keys()) other.finishInstall(id, "ready")
      yield* until(
        "the fourth follows",
        Effect.sync(() => other.instances.size === 4)
      )
    }).pipe(runHarness)
  )

  it.live(
    "a running server gets the line once before it is stopped; the end of the drain lets it run on",
    () =>
      Effect.gen(function* () {
        const { drainWithMove, ids, lines, moveRepo, moves, other, status, store } = yield* makeScene([
          "",
          ""
        ])
        const [first = "", second = ""] = ids
        yield* drainWithMove("n1", { notify: "say bye", notify_seconds: 3600 })
        yield* until(
          "both have the line",
          Effect.sync(() => lines(first) === 1 && lines(second) === 1)
        )
        yield* until(
          "the progress shows it",
          Effect.map(moves.progress("n1"), (progress) =>
            (progress?.servers ?? []).every(
              ({ reason, state }) => state === "stopping" && /line at/.test(reason ?? "")
            )
          )
        )
        yield* moves.end("n1")
        yield* until(
          "the migrations are cancelled",
          Effect.map(store.read(moveRepo.all), (all) => all.length === 0)
        )
        yield* drainWithMove("n1", { notify: "say bye", notify_seconds: 0 })
        yield* until(
          "both have left",
          Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
        )
        assert.deepStrictEqual([lines(first), lines(second)], [2, 2])
        for (const id of ids) {
          yield* until(
            "it runs on",
            Effect.map(status(id), (now) => now === "running")
          )
          assert.strictEqual(other.instances.get(id)?.status, "running")
        }
      }).pipe(runHarness)
  )

  it.live("at the deadline the rest leaves at once, and what cannot leave or is not saved is stopped", () =>
    Effect.gen(function* () {
      const { drainWithMove, ids, lines, moveRepo, other, servers, status, store } = yield* makeScene([
        "",
        "",
        "tied",
        "lobby"
      ])
      const [, , tied = "", lobby = ""] = ids
      other.installs = "manual"
      yield* drainWithMove("n1", {
        parallel: 1,
        deadline_at: inMillis(500),
        notify: "say bye",
        notify_seconds: 0
      })
      yield* until(
        "those that stay are stopped",
        Effect.map(
          Effect.all([status(tied), status(lobby)]),
          ([one, two]) => one === "offline" && two === "gone"
        )
      )
      assert.deepStrictEqual([lines(tied), lines(lobby)], [1, 1])
      yield* until(
        "both others leave at a time",
        Effect.map(store.read(moveRepo.all), (all) => all.filter(isUnderway).length === 2)
      )
      yield* servers.power(tied, "start", 30)
      yield* until(
        "it is stopped again",
        Effect.map(status(tied), (now) => now === "offline")
      )
    }).pipe(runHarness)
  )

  it.live("the next leader keeps the deadline", () =>
    Effect.gen(function* () {
      const { daemon, drainWithMove, ids, lines, start, stop } = yield* makeScene(["tied"])
      const [id = ""] = ids
      yield* drainWithMove("n1", { deadline_at: inMillis(300), notify: "say bye", notify_seconds: 0 })
      yield* stop
      assert.strictEqual(daemon.instances.get(ServerId.make(id))?.status, "running")
      const next = yield* start()
      yield* next.becomes(id, "offline")
      assert.isAtLeast(lines(id), 1)
    }).pipe(runHarness)
  )
})
