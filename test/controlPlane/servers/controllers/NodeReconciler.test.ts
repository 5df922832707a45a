import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import { until } from "../../../support/eventually.ts"
import { idsOf, makeHarness, request, runHarness } from "../support/harness.ts"

/** A server without a creation. */
const unknownServer = {
  id: "srv_01ARZ3NDEKTSV4RRFFQ69G5FAV",
  status: "running",
  install: { phase: "ready" }
} as const

/** A test setup with one running server of each kind. */
const makeRunning = Effect.fnUntraced(function* () {
  const harness = yield* makeHarness()
  const plane = yield* harness.start()
  const saved = (yield* plane.servers.create(request({ start: true }))).id
  const unsaved = (yield* plane.servers.create(request({ blueprint_id: "lobby", start: true }))).id
  yield* plane.becomes(saved, "running")
  yield* plane.becomes(unsaved, "running")
  yield* plane.settled
  return { ...harness, ...plane, saved, unsaved }
})

describe("spec 9.6: node gone for 30 s", () => {
  it.live(
    "the servers of a lost node are unknown, and take the status that the node reports on its return",
    () =>
      Effect.gen(function* () {
        const { saved, unsaved, nodes, daemon, plane, becomes, events, settled } = yield* makeRunning()
        yield* nodes.publish("n1", "lost")
        yield* becomes(saved, "unknown")
        yield* becomes(unsaved, "unknown")
        daemon.boot += 1
        yield* plane.register(daemon.registration)
        yield* settled
        for (const id of [saved, unsaved]) {
          assert.deepStrictEqual((yield* events(id)).slice(-3), [
            "status running",
            "status unknown",
            "status running"
          ])
        }
      }).pipe(runHarness)
  )

  it.live("a node that resumes its heartbeats without registering is asked for its snapshot", () =>
    Effect.gen(function* () {
      const { saved, unsaved, nodes, becomes, settled, servers } = yield* makeRunning()
      yield* nodes.publish("n1", "lost")
      yield* becomes(saved, "unknown")
      yield* nodes.publish("n1", "connected")
      yield* becomes(saved, "running")
      yield* becomes(unsaved, "running")
      yield* settled
      assert.strictEqual((yield* servers.counts).get("running"), 2)
    }).pipe(runHarness)
  )

  it.live(
    "a call that has failed is repeated once the node is reachable again, before its back-off ends",
    () =>
      Effect.gen(function* () {
        const { daemon, nodes, start } = yield* makeHarness({ retryFrom: "1 hour" })
        daemon.fault("power", "request-lost")
        const plane = yield* start()
        const { id } = yield* plane.servers.create(request({ start: true }))
        yield* until("the call was made", () => daemon.faults.get("power")?.length === 0)
        yield* nodes.announce("n1", "reachable")
        yield* plane.becomes(id, "running")
      }).pipe(runHarness)
  )

  it.live("changes during the absence arrive in the reports of the node, in order", () =>
    Effect.gen(function* () {
      const { saved, unsaved, nodes, daemon, plane, becomes, isGone, events, settled } = yield* makeRunning()
      daemon.gate.closeUnsafe()
      yield* nodes.publish("n1", "lost")
      yield* becomes(saved, "unknown")
      yield* becomes(unsaved, "unknown")
      daemon.crash(saved)
      daemon.crash(unsaved)
      daemon.boot += 1
      yield* plane.register(daemon.registration)
      daemon.gate.openUnsafe()
      yield* becomes(saved, "offline")
      yield* until("the server that is not saved is gone", isGone(unsaved))
      yield* settled
      const published = ["status unknown", "crash", "status offline"]
      assert.deepStrictEqual((yield* events(saved)).slice(-3), published)
      assert.deepStrictEqual((yield* events(unsaved)).slice(-4), [...published, "deleted"])
    }).pipe(runHarness)
  )

  it.live("while the database is away, the status unknown is written later", () =>
    Effect.gen(function* () {
      const { saved, nodes, database, becomes, servers } = yield* makeRunning()
      database.away = true
      yield* nodes.publish("n1", "lost")
      for (let n = 0; n < 50; n++) yield* Effect.yieldNow
      assert.strictEqual(yield* servers.status(saved), "running")
      database.away = false
      yield* becomes(saved, "unknown")
    }).pipe(runHarness)
  )
})

describe("spec 9.6: node gone for node_lost_after", () => {
  it.live("servers that are not saved are given up, and deleted when the node returns", () =>
    Effect.gen(function* () {
      const { audited, saved, unsaved, nodes, daemon, plane, becomes, isGone, events, settled } =
        yield* makeRunning()
      yield* nodes.publish("n1", "lost")
      yield* becomes(saved, "unknown")
      yield* nodes.publish("n1", "given-up")
      yield* until("it is given up", isGone(unsaved))
      assert.deepStrictEqual((yield* events(unsaved)).slice(-2), ["status unknown", "deleted"])
      assert.deepStrictEqual(yield* audited(unsaved), [
        ["server.delete", "service", "it is not saved, and its node was away for too long"]
      ])
      assert.deepStrictEqual([...nodes.held.keys()], [saved])
      daemon.boot += 1
      const answer = yield* plane.register(daemon.registration)
      assert.deepStrictEqual([answer.delete, answer.unknown], [[unsaved], []])
      yield* becomes(saved, "running")
      yield* settled
    }).pipe(runHarness)
  )

  it.live("a late notice of the loss has no effect on a node that has returned", () =>
    Effect.gen(function* () {
      const { nodes, saved, unsaved, servers, events } = yield* makeRunning()
      yield* nodes.announce("n1", "lost")
      yield* nodes.announce("n1", "given-up")
      for (let n = 0; n < 100; n++) yield* Effect.yieldNow
      assert.strictEqual(yield* servers.status(saved), "running")
      assert.strictEqual((yield* events(unsaved)).at(-1), "status running")
    }).pipe(runHarness)
  )
})

describe("spec 9.2: registration", () => {
  it.live("a server without a record or with a record on another node is unknown, not deleted", () =>
    Effect.gen(function* () {
      const { daemon, plane, saved, unsaved } = yield* makeRunning()
      const registration = { ...daemon.registration, boot_id: "other" }
      const answer = yield* plane.register({
        ...registration,
        servers: [...registration.servers, { ...unknownServer, unsent_reports: 0 }]
      })
      assert.deepStrictEqual([answer.delete, answer.unknown], [[], [{ id: unknownServer.id }]])
      const elsewhere = yield* plane.register({ ...registration, id: "n2" })
      assert.deepStrictEqual(elsewhere.delete, [])
      // In any order. A node does not learn where they are.
      assert.sameDeepMembers(
        [...(elsewhere.unknown ?? [])],
        [saved, unsaved].map((id) => ({ id }))
      )
    }).pipe(runHarness)
  )

  it.live("a server whose record is gone keeps its files and frees its ports", () =>
    Effect.gen(function* () {
      const { daemon, nodes, repo, saved, start, stop, store, unsaved } = yield* makeRunning()
      daemon.files.set(saved, "a castle")
      daemon.files.set(unsaved, "a hut")
      // The state of a database that is older than the servers.
      yield* store.write(Effect.andThen(repo.remove(saved), repo.remove(unsaved)))
      yield* stop
      const { events, records, servers, settled } = yield* start()
      yield* settled
      assert.deepStrictEqual([...daemon.lost], [[saved, "a castle"]])
      assert.strictEqual(daemon.instances.size, 0)
      assert.deepStrictEqual(yield* records, [])
      assert.strictEqual(nodes.held.size, 0)
      assert.notInclude(yield* events(saved), "deleted")
      yield* servers.create(request())
    }).pipe(runHarness)
  )

  it.live("a server held for a migration without a record is released and runs", () =>
    Effect.gen(function* () {
      const { becomes, daemon, events, plane, saved, settled } = yield* makeRunning()
      const instance = daemon.instances.get(saved)
      assert.isDefined(instance)
      // The migration began after the present records.
      daemon.held.add(saved)
      instance.status = "offline"
      daemon.boot += 1
      yield* plane.register(daemon.registration)
      yield* until(
        "it is let go",
        Effect.sync(() => !daemon.held.has(saved))
      )
      yield* becomes(saved, "running")
      yield* settled
      assert.deepStrictEqual((yield* events(saved)).slice(-4), [
        "status running",
        "status offline",
        "status starting",
        "status running"
      ])
      assert.strictEqual(instance.status, "running")
    }).pipe(runHarness)
  )

  it.live("a deleted server is to be deleted whatever the snapshot contains", () =>
    Effect.gen(function* () {
      const { daemon, events, isGone, nodes, plane, saved, servers, settled, unsaved } = yield* makeRunning()
      const before = { ...daemon.registration, boot_id: "other" }
      // One deletion is confirmed, the other is not.
      yield* servers.remove(saved, { force: false })
      daemon.fault("remove", "request-lost")
      yield* nodes.publish("n1", "lost")
      yield* servers.remove(unsaved, { force: true })
      yield* until("it is gone", isGone(unsaved))
      const answer = yield* plane.register(before)
      assert.deepStrictEqual(new Set(answer.delete), new Set([saved, unsaved]))
      assert.deepStrictEqual(answer.unknown, [])
      yield* until(
        "the node has none",
        Effect.sync(() => daemon.instances.size === 0)
      )
      yield* settled
      assert.strictEqual(daemon.lost.size, 0)
      assert.strictEqual((yield* events(saved)).at(-1), "deleted")
    }).pipe(runHarness)
  )

  it.live(
    "the copy at the source of a migration is deleted with the migration, not with the registration",
    () =>
      Effect.gen(function* () {
        const { daemon, moveRepo, plane, saved, store } = yield* makeRunning()
        const has = { id: saved, status: "offline", install: { phase: "ready" }, unsent_reports: 0 } as const
        yield* store.write(moveRepo.addDeletion({ server_id: saved, node_id: NodeId.make("n2") }))
        const answer = yield* plane.register({ ...daemon.registration, id: "n2", servers: [has] })
        assert.deepStrictEqual([answer.delete, answer.unknown], [[], []])
      }).pipe(runHarness)
  )

  it.live("a saved server that is missing on its node is installed again; any other is deleted", () =>
    Effect.gen(function* () {
      const { daemon, plane, saved, unsaved, becomes, isGone, events, settled, nodes } = yield* makeRunning()
      daemon.instances.clear()
      daemon.boot += 1
      yield* plane.register(daemon.registration)
      yield* until("the server that is not saved is gone", isGone(unsaved))
      yield* becomes(saved, "offline")
      yield* settled
      assert.deepStrictEqual((yield* events(saved)).slice(-3), [
        "status running",
        "status installing",
        "status offline"
      ])
      assert.deepStrictEqual((yield* events(unsaved)).slice(-2), ["status offline", "deleted"])
      assert.deepStrictEqual([...nodes.held.keys()], [saved])
    }).pipe(runHarness)
  )

  it.live(
    "a snapshot without unsent reports overrides the record; with unsent reports, the record waits for them",
    () =>
      Effect.gen(function* () {
        const { daemon, plane, saved, servers } = yield* makeRunning()
        const view = { id: saved, status: "paused", install: { phase: "ready" } } as const
        const rest = daemon.registration.servers.filter((server) => server.id !== saved)
        const register = (unsent_reports: number) =>
          plane.register({
            ...daemon.registration,
            boot_id: `boot-x${unsent_reports}`,
            servers: [...rest, { ...view, unsent_reports }]
          })
        yield* register(1)
        assert.strictEqual(yield* servers.status(saved), "running")
        yield* register(0)
        assert.strictEqual(yield* servers.status(saved), "paused")
      }).pipe(runHarness)
  )
})

describe("spec 9.2: repeated registration of a known boot", () => {
  it.live("a snapshot older than a report does not undo the report", () =>
    Effect.gen(function* () {
      const { daemon, plane, saved, becomes, settled, events } = yield* makeRunning()
      const old = daemon.registration
      daemon.move(saved, "offline")
      yield* becomes(saved, "offline")
      yield* settled
      const before = yield* events(saved)
      yield* plane.register(old)
      yield* settled
      assert.deepStrictEqual(yield* events(saved), before)
    }).pipe(runHarness)
  )

  it.live("the node is asked for servers with the status unknown", () =>
    Effect.gen(function* () {
      const { daemon, nodes, plane, saved, becomes, settled } = yield* makeRunning()
      yield* nodes.publish("n1", "lost")
      yield* becomes(saved, "unknown")
      yield* plane.register(daemon.registration)
      yield* becomes(saved, "running")
      yield* settled
    }).pipe(runHarness)
  )
})

describe("spec 2.5: no port leaks", () => {
  it.live("after any mix of creations, failures, removals and losses, only records hold ports", () =>
    Effect.gen(function* () {
      const { daemon, nodes, database, start } = yield* makeHarness({ ports: 12 })
      const plane = yield* start()
      let seed = 7
      const random = (below: number) => {
        seed = (seed * 1103515245 + 12345) % 2147483648
        return Math.floor((seed / 2147483648) * below)
      }
      const someone = Effect.map(idsOf(plane), (ids) => ids[random(ids.length)] ?? ServerId.make("none"))
      for (let step = 0; step < 150; step++) {
        const blueprint_id = ["survival", "lobby", "two-ports"][random(3)] ?? "survival"
        const id = yield* someone
        switch (random(7)) {
          case 0:
            database.away = true
            yield* Effect.ignore(plane.servers.create(request({ blueprint_id })))
            database.away = false
            break
          case 1:
            daemon.fault("create", "request-lost", "answer-lost")
            break
          case 2:
            daemon.fault("remove", "answer-lost")
            yield* Effect.ignore(plane.servers.remove(id, { force: random(2) === 0 }))
            break
          case 3:
            yield* Effect.ignore(plane.servers.remove(id, { force: false }))
            break
          case 4:
            daemon.crash(id)
            break
          default:
            yield* Effect.ignore(plane.servers.create(request({ blueprint_id, start: random(2) === 0 })))
        }
      }
      yield* plane.settled
      const records = yield* plane.records
      const expected = records.map((row) => [row.id, Object.values(row.allocations.mappings).flat()] as const)
      assert.deepStrictEqual(
        [...nodes.held].map(([id, held]) => [id, held.ports] as const).toSorted(),
        expected.toSorted()
      )
      for (const { id } of records) yield* plane.servers.remove(id, { force: true })
      assert.strictEqual(nodes.held.size, 0)
      yield* until(
        "the node has none",
        Effect.sync(() => daemon.instances.size === 0)
      )
    }).pipe(runHarness)
  )
})
