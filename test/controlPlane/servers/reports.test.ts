import { assert, describe, it } from "@effect/vitest"
import { Array as Arr, Effect, Fiber, Metric, Stream } from "effect"
import * as fc from "fast-check"
import { NodeId, ServerId } from "../../../src/contract/domain/Id.ts"
import { isPublic } from "../../../src/contract/domain/Journal.ts"
import { MOST_REPORTS, type Report } from "../../../src/contract/domain/NodeMessages.ts"
import { ServerStatus } from "../../../src/contract/domain/ServerStatus.ts"
import { storeCommits } from "../../../src/shared/observability/metrics.ts"
import { until } from "../../support/eventually.ts"
import { crash } from "./support/FakeDaemon.ts"
import { makeHarness, request, runHarness } from "./support/harness.ts"

const commits = Effect.map(Metric.value(storeCommits), ({ count }) => Number(count))

/** A server without a creation. */
const unknownServer = "srv_01ARZ3NDEKTSV4RRFFQ69G5FAV"
const runs = { sequence: 99, type: "status", status: "running", transient: false } as const

/** A test setup with one installed server, whose daemon sends no reports. */
const makeInstalled = Effect.fnUntraced(function* (blueprint_id: string) {
  const harness = yield* makeHarness()
  const plane = yield* harness.start()
  const { id } = yield* plane.servers.create(request({ blueprint_id }))
  yield* plane.becomes(id, "offline")
  yield* plane.settled
  let sequence = harness.daemon.sequences.get(id) ?? 0
  const report = (message: { readonly status: ServerStatus; readonly transient?: boolean } | "crash") => {
    sequence += 1
    const body: Report =
      message === "crash"
        ? { server_id: id, sequence, type: "crash", crash }
        : { server_id: id, sequence, type: "status", transient: false, ...message }
    return plane.lifecycle.reports("n1", [body])
  }
  return { ...harness, ...plane, id, report, repeat: () => sequence }
})

describe("spec 3.5: reports", () => {
  it.live("a repeated report changes nothing", () =>
    Effect.gen(function* () {
      const { id, lifecycle, report, repeat, changes } = yield* makeInstalled("survival")
      yield* report({ status: "starting" })
      yield* report({ status: "running" })
      const before = yield* changes
      for (const sequence of [repeat(), repeat() - 1, 1]) {
        yield* lifecycle.reports("n1", [
          {
            server_id: id,
            sequence,
            type: "status",
            status: "paused",
            transient: false
          }
        ])
        yield* lifecycle.reports("n1", [{ server_id: id, sequence, type: "crash", crash }])
      }
      assert.deepStrictEqual(yield* changes, before)
    }).pipe(runHarness)
  )

  it.live("a report about a server of another node or without a record changes and deletes nothing", () =>
    Effect.gen(function* () {
      const { changes, daemon, id, lifecycle } = yield* makeInstalled("survival")
      const before = yield* changes
      assert.strictEqual((yield* lifecycle.reports("n2", [{ server_id: id, ...runs }])).size, 1)
      assert.strictEqual((yield* lifecycle.reports("n1", [{ server_id: unknownServer, ...runs }])).size, 1)
      assert.deepStrictEqual(yield* changes, before)
      assert.notInclude(daemon.calls, `remove ${unknownServer}`)
    }).pipe(runHarness)
  )

  it.live("a node that reports on a deleted server is asked again to delete it", () =>
    Effect.gen(function* () {
      const { daemon, id, lifecycle, servers } = yield* makeInstalled("survival")
      daemon.fault("remove", "request-lost", "request-lost", "request-lost")
      yield* servers.remove(id, { force: true })
      assert.strictEqual((yield* lifecycle.reports("n1", [{ server_id: id, ...runs }])).size, 0)
      yield* until(
        "it is gone",
        Effect.sync(() => !daemon.instances.has(id))
      )
      assert.strictEqual(daemon.lost.size, 0)
    }).pipe(runHarness)
  )

  it.live(
    "the first report on an unknown server requires a registration; after the next one the node sets the files aside",
    () =>
      Effect.gen(function* () {
        const { daemon, plane, repo, store, id } = yield* makeInstalled("survival")
        daemon.files.set(id, "a castle")
        yield* store.write(repo.remove(id))
        const report = Effect.map(
          Effect.suspend(() =>
            plane.reports("n1", daemon.boot_id, [
              { server_id: unknownServer, ...runs },
              { server_id: unknownServer, ...runs, sequence: 100 }
            ])
          ),
          (failures) => failures.map((failure) => failure?._tag)
        )
        const required = ["RegistrationRequired", "RegistrationRequired"] as const
        assert.deepStrictEqual(yield* report, [...required])
        assert.deepStrictEqual(yield* report, [undefined, undefined])
        daemon.move(id, "running")
        yield* until(
          "its files are kept",
          Effect.sync(() => daemon.lost.get(id) === "a castle" && daemon.unsent.length === 0)
        )
        assert.isFalse(daemon.instances.has(id))
        daemon.boot += 1
        yield* plane.register(daemon.registration)
        assert.deepStrictEqual(yield* report, [...required])
      }).pipe(runHarness)
  )

  it.live("a crash publishes a crash event, then offline; a saved server stays", () =>
    Effect.gen(function* () {
      const { id, report, events, servers } = yield* makeInstalled("survival")
      yield* report({ status: "starting" })
      yield* report("crash")
      assert.strictEqual(yield* servers.status(id), "starting")
      yield* report({ status: "offline" })
      assert.deepStrictEqual((yield* events(id)).slice(-3), ["status starting", "crash", "status offline"])
    }).pipe(runHarness)
  )

  it.live("a server that is not saved ends once: crash, status offline, deleted", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, nodes, becomes, isGone, events, settled } = yield* makeInstalled("lobby")
      yield* servers.power(id, "start", 30)
      yield* becomes(id, "running")
      daemon.crash(id)
      yield* until("the record is gone", isGone(id))
      yield* settled
      assert.deepStrictEqual((yield* events(id)).slice(-4), [
        "status running",
        "crash",
        "status offline",
        "deleted"
      ])
      assert.strictEqual(nodes.held.size, 0)
      yield* until(
        "its files are gone",
        Effect.sync(() => daemon.instances.size === 0)
      )
    }).pipe(runHarness)
  )

  it.live(
    "a restart does not end a wait for running; a final stop, or a restart that cannot start, does",
    () =>
      Effect.gen(function* () {
        const { id, report, servers } = yield* makeInstalled("survival")
        const becomes = Effect.fnUntraced(function* (status: ServerStatus, transient = false) {
          yield* report({ status, transient })
          yield* until(
            `the list shows ${status}`,
            Effect.map(servers.status(id), (shown) => shown === status)
          )
          yield* Effect.yieldNow
        })
        const waiting = () => Effect.forkChild(servers.waitFor(id, "running"), { startImmediately: true })
        yield* becomes("starting")
        const restarted = yield* waiting()
        for (const status of ["stopping", "offline", "starting"] as const) yield* becomes(status, true)
        assert.isUndefined(restarted.pollUnsafe())
        yield* becomes("running")
        yield* Fiber.join(restarted)
        yield* becomes("stopping")
        const stopped = yield* waiting()
        yield* becomes("offline")
        assert.match(
          (yield* Effect.flip(Fiber.join(stopped))).detail,
          /it was stopped, or could not be started$/
        )
        yield* becomes("starting")
        const failed = yield* waiting()
        yield* becomes("stopping")
        yield* becomes("offline", true)
        assert.isUndefined(failed.pollUnsafe())
        yield* becomes("offline")
        assert.match(
          (yield* Effect.flip(Fiber.join(failed))).detail,
          /it was stopped, or could not be started$/
        )
      }).pipe(runHarness)
  )

  it.live("a server that is not saved survives a restart of its process", () =>
    Effect.gen(function* () {
      const { id, report, servers } = yield* makeInstalled("lobby")
      for (const status of ["starting", "running", "stopping"] as const) yield* report({ status })
      yield* report({ status: "offline", transient: true })
      assert.strictEqual(yield* servers.status(id), "offline")
      yield* report({ status: "starting" })
      yield* report({ status: "offline" })
      assert.strictEqual((yield* Effect.flip(servers.status(id))).code, "404")
    }).pipe(runHarness)
  )

  it.live(
    "reports of one message are applied in order, each once, in one write with those of other servers",
    () =>
      Effect.gen(function* () {
        const { id, daemon, events, journal, plane, servers, changes, becomes, settled } =
          yield* makeInstalled("survival")
        const other = (yield* servers.create(request({ blueprint_id: "survival" }))).id
        yield* becomes(other, "offline")
        yield* settled
        const sequence = (server: string) => (daemon.sequences.get(ServerId.make(server)) ?? 0) + 1
        const status = (server_id: string, at: number, status: ServerStatus) =>
          ({
            server_id,
            sequence: sequence(server_id) + at,
            type: "status",
            status,
            transient: false
          }) as const
        const reports = [
          status(id, 0, "starting"),
          status(other, 0, "starting"),
          status(id, 1, "running"),
          { server_id: id, sequence: sequence(id) + 2, type: "crash", crash } as const,
          status(id, 3, "offline"),
          { server_id: unknownServer, ...runs }
        ]
        const before = (yield* Stream.runCollect(journal.after(0))).length
        const failures = yield* plane.reports("n1", daemon.boot_id, reports)
        assert.deepStrictEqual(
          failures.map((failure) => failure?._tag),
          [undefined, undefined, undefined, undefined, undefined, "RegistrationRequired"]
        )
        const entries = (yield* Stream.runCollect(journal.after(0))).slice(before)
        assert.strictEqual(new Set(entries.map(({ at }) => at)).size, 1, "one commit")
        assert.deepStrictEqual((yield* events(id)).slice(-4), [
          "status starting",
          "status running",
          "crash",
          "status offline"
        ])
        assert.strictEqual(yield* servers.status(other), "starting")
        const after = yield* changes
        yield* plane.reports("n1", daemon.boot_id, reports)
        assert.deepStrictEqual(yield* changes, after, "a repeated message changes nothing")
      }).pipe(runHarness)
  )

  it.live("reports of many messages do not share one write, which would hold up all others", () =>
    Effect.gen(function* () {
      const { id, lifecycle, repeat } = yield* makeInstalled("survival")
      const last = repeat()
      const message = (first: number) =>
        Array.from(
          { length: MOST_REPORTS },
          (_, at): Report => ({ ...runs, server_id: ServerId.make(id), sequence: first + at })
        )
      const before = yield* commits
      yield* Effect.forEach(
        Array.from({ length: 20 }, (_, at) => at),
        (at) => lifecycle.reports("n1", message(last + 1 + at * MOST_REPORTS)),
        { concurrency: "unbounded", discard: true }
      )
      assert.isAtLeast((yield* commits) - before, 4)
      const [record] = yield* lifecycle.sequences(NodeId.make("n1"), [ServerId.make(id)])
      assert.deepStrictEqual(record, [id, last + 20 * MOST_REPORTS])
    }).pipe(runHarness)
  )

  it.live("a report that cannot be stored is not acknowledged", () =>
    Effect.gen(function* () {
      const { id, plane, daemon, database, servers } = yield* makeInstalled("survival")
      database.away = true
      const report: Report = {
        server_id: id,
        sequence: 99,
        type: "status",
        status: "running",
        transient: false
      }
      const error = yield* Effect.flip(plane.reports("n1", daemon.boot_id, [report]))
      assert.strictEqual(error._tag, "ControlPlaneUnavailable")
      database.away = false
      yield* plane.reports("n1", daemon.boot_id, [report])
      assert.strictEqual(yield* servers.status(id), "running")
    }).pipe(runHarness)
  )

  it.live("a report of an older boot is refused", () =>
    Effect.gen(function* () {
      const { id, plane, servers } = yield* makeInstalled("survival")
      const report: Report = {
        server_id: id,
        sequence: 99,
        type: "status",
        status: "running",
        transient: false
      }
      assert.strictEqual(
        (yield* Effect.flip(plane.reports("n1", "boot-0", [report])))._tag,
        "RegistrationRequired"
      )
      assert.strictEqual(yield* servers.status(id), "offline")
    }).pipe(runHarness)
  )
})

const message = fc.oneof(
  fc.constant("crash" as const),
  fc.record({ status: fc.constantFrom(...ServerStatus.literals), transient: fc.boolean() })
)

describe("design, The journal: no event without its change, no change without its event", () => {
  it.live(
    "for any reports in any messages, journal and record agree, and each status event is a change of status",
    () =>
      Effect.gen(function* () {
        const harness = yield* makeHarness()
        const plane = yield* harness.start()
        const check = Effect.fnUntraced(function* (
          blueprint_id: string,
          messages: ReadonlyArray<typeof message extends fc.Arbitrary<infer M> ? M : never>,
          together: number
        ) {
          const { id } = yield* plane.servers.create(request({ blueprint_id }))
          yield* plane.becomes(id, "offline")
          yield* plane.settled
          let sequence = harness.daemon.sequences.get(id) ?? 0
          let model = "offline" as ServerStatus | "gone"
          let crashes = 0
          const reports: Array<Report> = []
          for (const sent of messages) {
            sequence += 1
            if (sent === "crash") {
              if (model !== "gone") crashes += 1
              reports.push({ server_id: id, sequence, type: "crash", crash })
            } else {
              const ends = sent.status === "offline" && !sent.transient
              if (model !== "gone" && sent.status !== "unknown") {
                model = ends && blueprint_id === "lobby" ? "gone" : sent.status
              }
              reports.push({ server_id: id, sequence, type: "status", ...sent })
            }
          }
          for (const some of Arr.chunksOf(reports, together)) yield* plane.lifecycle.reports("n1", some)
          const rows = yield* plane.records
          const row = rows.find((candidate) => candidate.id === id)
          assert.strictEqual(row?.status ?? "gone", model)
          assert.strictEqual(row?.last_sequence ?? sequence, sequence)
          const own = (yield* Stream.runCollect(plane.journal.after(0)))
            .map((entry) => entry.change)
            .filter((change) => isPublic(change) && change.server_id === id)
          const statuses = own.flatMap((change) => (change.topic === "status" ? [change.payload] : []))
          assert.isTrue(statuses.every((status, at) => status !== statuses[at - 1]))
          assert.strictEqual(own.filter((change) => change.topic === "crash").length, crashes)
          assert.strictEqual(
            own.filter((change) => change.topic === "deleted").length,
            model === "gone" ? 1 : 0
          )
          if (model === "gone") assert.strictEqual(own.at(-1)?.topic, "deleted")
          else assert.strictEqual(statuses.at(-1), model)
          yield* Effect.ignore(plane.servers.remove(id, { force: true }))
        })
        const services = yield* Effect.context<never>()
        const property = fc.asyncProperty(
          fc.constantFrom("survival", "lobby"),
          fc.array(message, { maxLength: 12 }),
          fc.integer({ min: 1, max: 5 }),
          (blueprint_id, messages, together) =>
            Effect.runPromiseWith(services)(check(blueprint_id, messages, together))
        )
        yield* Effect.tryPromise(() => fc.assert(property, { numRuns: 40 }))
        assert.strictEqual(harness.nodes.held.size, 0)
      }).pipe(runHarness)
  )
})
