import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import { DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import { until } from "../../../support/eventually.ts"
import { definition } from "../../../support/samples.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const created = ["status installing", "status offline"]
const up = ["status starting", "status running"]
const moved = ["status stopping", "status offline", "status installing", "status offline", ...up]

/** Two nodes, and a running server with files on the first. */
const makeRunning = Effect.fnUntraced(function* (options: { readonly otherPorts?: number } = {}) {
  const harness = yield* makeHarness({ otherPorts: 100, ...options })
  const plane = yield* harness.start()
  const { id } = yield* plane.servers.create(request({ start: true, node_id: "n1" }))
  yield* plane.becomes(id, "running")
  yield* plane.settled
  harness.daemon.files.set(id, "a castle")
  return { ...harness, ...plane, id }
})

describe("drain with move", () => {
  it.live("a running server is stopped, migrated with its files and started; the source keeps nothing", () =>
    Effect.gen(function* () {
      const {
        becomes,
        daemon,
        drainWithMove,
        events,
        id,
        moveRepo,
        moves,
        nodes,
        other,
        records,
        settled,
        store
      } = yield* makeRunning()
      yield* drainWithMove("n1")
      yield* until(
        "the node is empty",
        Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
      )
      yield* becomes(id, "running")
      yield* settled
      const [record] = yield* records
      assert.strictEqual(record?.node_id, "n2")
      assert.deepStrictEqual(yield* events(id), [...created, ...up, ...moved])
      assert.strictEqual(other.files.get(id), "a castle")
      yield* until(
        "the old node has no copy",
        Effect.map(store.read(moveRepo.deletions), (left) => left.length === 0)
      )
      assert.strictEqual(daemon.instances.size, 0)
      assert.deepStrictEqual([...nodes.held.keys()], [id])
      assert.strictEqual(nodes.held.get(id)?.node_id, "n2")
      assert.isAbove(record?.last_sequence ?? 0, 6)
      assert.deepStrictEqual(yield* store.read(moveRepo.all), [])
    }).pipe(runHarness)
  )

  it.live("an offline server is migrated and stays offline; a server that is not saved is not migrated", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, events, id, moves, records, servers } = yield* makeRunning()
      const lobby = yield* servers.create(request({ blueprint_id: "lobby", start: true, node_id: "n1" }))
      yield* becomes(lobby.id, "running")
      yield* servers.power(id, "stop", 30)
      yield* becomes(id, "offline")
      yield* drainWithMove("n1")
      yield* until(
        "the server has moved",
        Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
      )
      assert.strictEqual((yield* moves.progress("n1"))?.running_out, 1)
      assert.deepStrictEqual((yield* events(id)).slice(-3), [
        "status offline",
        "status installing",
        "status offline"
      ])
      const byId = new Map((yield* records).map((record) => [record.id, record]))
      assert.strictEqual(byId.get(id)?.node_id, "n2")
      assert.strictEqual(byId.get(lobby.id)?.node_id, "n1")
    }).pipe(runHarness)
  )

  it.live(
    "spec 3.14: an offline server starts at its destination if its rule is `always`, unless a caller stopped it",
    () =>
      Effect.gen(function* () {
        const { definitions, start } = yield* makeHarness({ otherPorts: 100 })
        definitions.always = definition({ blueprint_id: "always", run: "always" })
        const { becomes, drainWithMove, moves, records, servers, settled } = yield* start()
        const on = { blueprint_id: "always", node_id: "n1" } as const
        const quiet = yield* servers.create(request(on))
        const stopped = yield* servers.create(request({ ...on, start: true }))
        yield* becomes(stopped.id, "running")
        yield* servers.power(stopped.id, "stop", 30)
        for (const { id } of [quiet, stopped]) yield* becomes(id, "offline")
        yield* drainWithMove("n1")
        yield* becomes(quiet.id, "running")
        yield* until(
          "both have moved",
          Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
        )
        yield* becomes(stopped.id, "offline")
        assert.deepStrictEqual(
          new Set((yield* records).map(({ node_id }) => node_id as string)),
          new Set(["n2"])
        )
        yield* settled
        assert.strictEqual(yield* servers.status(stopped.id), "offline")
      }).pipe(runHarness)
  )

  it.live("a server that is starting at its destination migrates on, and starts there", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, id, nodes, other, records, settled } = yield* makeRunning()
      yield* drainWithMove("n1")
      yield* until(
        "the server has moved",
        Effect.map(records, ([record]) => record?.node_id === "n2")
      )
      yield* becomes(id, "running")
      other.move(ServerId.make(id), "offline")
      other.move(ServerId.make(id), "starting")
      yield* becomes(id, "starting")
      nodes.drained.clear()
      yield* drainWithMove("n2")
      yield* until(
        "the server has moved back",
        Effect.map(records, ([record]) => record?.node_id === "n1")
      )
      yield* becomes(id, "running")
      yield* settled
    }).pipe(runHarness)
  )

  it.live("the reason why a server stays is shown, and the other servers are migrated", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, id, moves, servers, stop } = yield* makeRunning({ otherPorts: 1 })
      const tied = yield* servers.create(request({ blueprint_id: "tied", node_id: "n1" }))
      const mounted = yield* servers.create(request({ blueprint_id: "mounted", node_id: "n1" }))
      const homeless = yield* servers.create(request({ node_id: "n1" }))
      for (const one of [tied, mounted, homeless]) yield* becomes(one.id, "offline")
      yield* drainWithMove("n1")
      yield* until(
        "one has moved, the others cannot",
        Effect.map(
          moves.progress("n1"),
          (progress) => progress?.left === 3 && progress.servers.every((one) => one.state === "blocked")
        )
      )
      const reasons = new Map(
        (yield* moves.progress("n1"))?.servers.map((one) => [one.server_id, one.reason])
      )
      assert.isFalse(reasons.has(id))
      assert.match(reasons.get(tied.id) ?? "", /rw.*common/)
      assert.match(reasons.get(mounted.id) ?? "", /rw.*\/srv\/maps/)
      assert.match(reasons.get(homeless.id) ?? "", /no nodes available/)
      yield* moves.end("n1")
      assert.isUndefined(yield* moves.progress("n1"))
      yield* stop
    }).pipe(runHarness)
  )

  it.live("while the node is away, no server is migrated, and each server shows that reason", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, id, moves, nodes, stop } = yield* makeRunning()
      yield* nodes.publish("n1", "lost")
      yield* becomes(id, "unknown")
      yield* drainWithMove("n1")
      assert.deepStrictEqual((yield* moves.progress("n1"))?.servers, [
        { server_id: id, state: "blocked", reason: "node n1 is not connected" }
      ])
      yield* stop
    }).pipe(runHarness)
  )

  it.live(
    "a server that is missing on its node is installed again instead of migrated, also after a database outage",
    () =>
      Effect.gen(function* () {
        const { daemon, database, drainWithMove, events, id, journal, moves, servers } = yield* makeRunning()
        daemon.instances.delete(id)
        yield* journal.follow("publish", (entries) =>
          Effect.sync(() => {
            database.away ||= entries.some(
              ({ change }) => change.topic === "server:move" && change.payload === null
            )
          })
        )
        yield* drainWithMove("n1")
        yield* until(
          "the move has ended, and the database is away",
          Effect.sync(() => database.away)
        )
        yield* moves.end("n1").pipe(Effect.flip)
        database.away = false
        yield* until(
          "it is made again",
          Effect.map(events(id), (all) => all.filter((event) => event === "status installing").length === 2)
        )
        yield* until(
          "it is there",
          Effect.map(servers.status(id), (status) => status === "offline" || status === "running")
        )
      }).pipe(runHarness)
  )

  it.live("a server placed on the node by name during the drain stays", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, id, moves, records, servers } = yield* makeRunning()
      yield* drainWithMove("n1")
      const asked = Date.now()
      yield* until(
        "the clock has gone on",
        Effect.sync(() => Date.now() > asked)
      )
      const named = yield* servers.create(request({ node_id: "n1" }))
      yield* until(
        "the first has moved",
        Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
      )
      yield* becomes(id, "running")
      const byId = new Map((yield* records).map((record) => [record.id, record.node_id]))
      assert.strictEqual(byId.get(named.id), "n1")
      assert.strictEqual(byId.get(id), "n2")
    }).pipe(runHarness)
  )

  it.live("a second call migrates the servers that stayed", () =>
    Effect.gen(function* () {
      const { becomes, daemon, drainWithMove, events, id, moves, other, records, settled } =
        yield* makeRunning()
      other.installs = "failed"
      const [before] = yield* records
      yield* drainWithMove("n1")
      yield* until(
        "it has come back",
        Effect.map(moves.progress("n1"), (progress) => progress?.servers[0]?.state === "blocked")
      )
      assert.strictEqual((yield* moves.progress("n1"))?.servers[0]?.reason, "exit code 1")
      yield* becomes(id, "running")
      yield* settled
      const [back] = yield* records
      assert.deepStrictEqual(back?.allocations, before?.allocations)
      assert.strictEqual(back?.node_id, "n1")
      assert.strictEqual(daemon.files.get(id), "a castle")
      assert.deepStrictEqual(yield* events(id), [...created, ...up, ...moved])
      yield* until(
        "the other node has nothing of it",
        Effect.sync(() => !other.instances.has(id))
      )
      other.installs = "ready"
      yield* drainWithMove("n1")
      yield* until(
        "it has moved",
        Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
      )
      yield* becomes(id, "running")
      assert.strictEqual(other.files.get(id), "a castle")
    }).pipe(runHarness)
  )

  it.live.each(["lost", "given-up"] as const)(
    "if the target is %s, the server returns to the source and runs",
    (kind) =>
      Effect.gen(function* () {
        const { becomes, daemon, drainWithMove, events, id, moves, nodes, other, records, settled } =
          yield* makeRunning()
        other.installs = "manual"
        yield* drainWithMove("n1")
        yield* becomes(id, "installing")
        yield* settled
        yield* nodes.publish("n2", kind)
        yield* becomes(id, "running")
        assert.strictEqual((yield* records)[0]?.node_id, "n1")
        assert.strictEqual(daemon.files.get(id), "a castle")
        assert.match((yield* moves.progress("n1"))?.servers[0]?.reason ?? "", /node n2 is lost/)
        // Whether it is unknown for a moment depends on the order of two fibers.
        const seen = (yield* events(id)).slice(4).filter((event) => event !== "status unknown")
        assert.deepStrictEqual(seen, [
          "status stopping",
          "status offline",
          "status installing",
          "status offline",
          ...up
        ])
      }).pipe(runHarness)
  )

  it.live("what the target reports about definitions says nothing about the files on the source", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, id, lifecycle, other, records, settled } = yield* makeRunning()
      const server_id = ServerId.make(id)
      yield* lifecycle.redefine(server_id, () =>
        Effect.succeed({ definition: definition({ env: { A: "1" } }) })
      )
      const [before] = yield* records
      other.installs = "manual"
      yield* drainWithMove("n1")
      yield* becomes(id, "installing")
      yield* settled
      const uses = before?.redefinition?.defined_at ?? 0
      other.queueReport(server_id, { type: "install-status", install: { phase: "installing" }, uses })
      other.finishInstall(id, "failed")
      yield* until(
        "it has come back",
        Effect.map(records, ([record]) => record?.node_id === "n1")
      )
      assert.deepStrictEqual((yield* records)[0]?.redefinition?.used, before?.redefinition?.used)
      assert.isDefined(before?.redefinition?.used)
    }).pipe(runHarness)
  )

  it.live("the source may register at any moment during the migration, and keeps the files", () =>
    Effect.gen(function* () {
      const { becomes, daemon, drainWithMove, id, other, plane, settled } = yield* makeRunning()
      other.installs = "manual"
      yield* drainWithMove("n1")
      yield* becomes(id, "installing")
      yield* settled
      daemon.boot += 1
      const answer = yield* plane.register(daemon.registration)
      assert.deepStrictEqual(answer.delete, [])
      assert.strictEqual(daemon.files.get(id), "a castle")
      other.finishInstall(id, "ready")
      yield* becomes(id, "running")
      yield* until(
        "the old copy goes",
        Effect.sync(() => !daemon.instances.has(id))
      )
    }).pipe(runHarness)
  )

  it.live("the migration waits while the source is away: nothing is deleted or given up", () =>
    Effect.gen(function* () {
      const { becomes, daemon, drainWithMove, id, moves, other, settled } = yield* makeRunning()
      daemon.fault("files", ...Array.from({ length: 20 }, () => "request-lost" as const))
      yield* drainWithMove("n1")
      yield* until(
        "the node is empty",
        Effect.map(moves.progress("n1"), (progress) => progress?.left === 0)
      )
      yield* becomes(id, "running")
      yield* settled
      assert.strictEqual(other.files.get(id), "a castle")
    }).pipe(runHarness)
  )

  it.live("if the source no longer has the files, the server returns to it and is checked there", () =>
    Effect.gen(function* () {
      const { becomes, daemon, drainWithMove, events, id, moves, records, settled } = yield* makeRunning()
      daemon.fault(
        "files",
        new DaemonRefused({ status: 404, detail: `server not found: ${id}`, hint: "none" })
      )
      daemon.fault("hold", ...Array.from({ length: 3 }, () => "request-lost" as const))
      yield* drainWithMove("n1")
      yield* until(
        "it has gone back",
        Effect.map(moves.progress("n1"), (progress) => progress?.servers[0]?.state === "blocked")
      )
      yield* becomes(id, "running")
      yield* settled
      assert.strictEqual((yield* records)[0]?.node_id, "n1")
      assert.match(
        (yield* moves.progress("n1"))?.servers[0]?.reason ?? "",
        /does not have its files any more/
      )
      assert.deepStrictEqual((yield* events(id)).slice(-4), ["status installing", "status offline", ...up])
    }).pipe(runHarness)
  )

  it.live("a migration that has not begun can be cancelled", () =>
    Effect.gen(function* () {
      const { becomes, drainWithMove, moves, nodes, other, records, servers } = yield* makeRunning()
      other.installs = "manual"
      const more = yield* Effect.forEach([1, 2, 3], () => servers.create(request({ node_id: "n1" })))
      for (const { id } of more) yield* becomes(id, "offline")
      yield* drainWithMove("n1")
      yield* until(
        "two are on their way",
        Effect.sync(() => other.instances.size === 2)
      )
      yield* moves.end("n1")
      nodes.drained.delete(NodeId.make("n1"))
      for (const id of other.instances.keys()) other.finishInstall(id, "ready")
      yield* until(
        "two have moved",
        Effect.map(
          records,
          (all) => all.filter((one) => one.node_id === "n2" && one.install.phase === "ready").length === 2
        )
      )
      assert.strictEqual((yield* records).filter((one) => one.node_id === "n1").length, 2)
    }).pipe(runHarness)
  )
})

describe("during a migration", () => {
  const transferring = Effect.gen(function* () {
    const harness = yield* makeRunning()
    harness.other.installs = "manual"
    yield* harness.drainWithMove("n1")
    yield* harness.becomes(harness.id, "installing")
    yield* harness.settled
    return harness
  })

  it.live("start, restart, pause, reset and reinstall are 409", () =>
    Effect.gen(function* () {
      const { id, servers } = yield* transferring
      for (const action of ["start", "restart", "pause", "unpause"] as const) {
        const error = yield* Effect.flip(servers.power(id, action, 30))
        assert.strictEqual(error.code, "409")
        assert.strictEqual(error.detail, `server is migrating to another node: ${id}`)
      }
      assert.strictEqual((yield* Effect.flip(servers.reset(id))).code, "409")
      assert.strictEqual((yield* Effect.flip(servers.reinstall(id))).code, "409")
    }).pipe(runHarness)
  )

  it.live("a stop is kept: the server is not started on the target", () =>
    Effect.gen(function* () {
      const { becomes, id, other, records, servers, settled } = yield* transferring
      yield* servers.power(id, "stop", 30)
      other.finishInstall(id, "ready")
      yield* becomes(id, "offline")
      yield* settled
      assert.strictEqual(other.instances.get(id)?.status, "offline")
      assert.isFalse((yield* records)[0]?.start_pending)
    }).pipe(runHarness)
  )

  it.live("a deletion removes the server from both nodes", () =>
    Effect.gen(function* () {
      const { daemon, events, id, moveRepo, nodes, other, records, servers, settled, store } =
        yield* transferring
      daemon.fault("remove", "request-lost", "request-lost")
      yield* servers.remove(id, { force: false })
      assert.deepStrictEqual(yield* records, [])
      assert.strictEqual((yield* events(id)).at(-1), "deleted")
      yield* until(
        "both nodes have nothing of it",
        Effect.map(
          store.read(moveRepo.deletions),
          (left) => left.length === 0 && daemon.instances.size === 0 && other.instances.size === 0
        )
      )
      yield* settled
      assert.strictEqual(nodes.held.size, 0)
    }).pipe(runHarness)
  )
})

describe("drain with move: control plane killed at any moment", () => {
  it.live(
    "the migration continues after the restart: one copy, nothing lost, every change published once",
    () =>
      Effect.gen(function* () {
        let steps = 0
        for (let killAt = 1; ; killAt++) {
          const { daemon, id, drainWithMove, other, nodes, start, stop, moves } = yield* makeRunning()
          const reached = yield* Deferred.make<void>()
          let left = killAt
          const step = Effect.suspend(() => {
            left -= 1
            return left === 0
              ? Effect.andThen(Deferred.succeed(reached, undefined), Effect.never)
              : Effect.void
          })
          daemon.step = step
          other.step = step
          yield* drainWithMove("n1", { notify: "say bye", notify_seconds: 0 })
          const empty = (progress: typeof moves.progress, becomes: Effect.Effect<void>) =>
            until(
              "the node is empty",
              Effect.map(progress("n1"), (now) => now?.left === 0)
            ).pipe(Effect.andThen(becomes))
          const done = yield* Effect.raceFirst(
            Effect.as(
              until(
                "it has moved",
                Effect.sync(
                  () =>
                    !daemon.instances.has(id) &&
                    other.instances.get(id)?.status === "running" &&
                    other.unsent.length === 0
                )
              ),
              true
            ),
            Effect.as(Deferred.await(reached), false)
          )
          yield* stop
          daemon.step = Effect.void
          other.step = Effect.void
          const second = yield* start()
          yield* empty(second.moves.progress, Effect.orDie(second.becomes(id, "running")))
          yield* second.settled
          assert.deepStrictEqual(yield* second.events(id), [...created, ...up, ...moved], `step ${killAt}`)
          assert.strictEqual(other.files.get(id), "a castle")
          assert.include(daemon.calls, `commands ${id}`)
          yield* until(
            "one copy",
            Effect.map(
              second.store.read(second.moveRepo.deletions),
              (rows) => rows.length === 0 && !daemon.instances.has(id)
            )
          )
          assert.deepStrictEqual(
            [...nodes.held].map(([held, { node_id }]) => `${held} ${node_id}`),
            [`${id} n2`]
          )
          yield* second.stop
          if (done) break
          steps = killAt
        }
        assert.isAtLeast(steps, 15)
      }).pipe(runHarness),
    120_000
  )
})
