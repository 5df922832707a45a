import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { NodeId, ServerId } from "../../../src/contract/domain/Id.ts"
import type {
  OperationKind,
  OperationRecord,
  OperationState
} from "../../../src/contract/domain/Operation.ts"
import { CurrentPrincipal, type Principal } from "../../../src/controlPlane/http/Principal.ts"
import { until } from "../../support/eventually.ts"
import { makeHarness, request, runHarness } from "../servers/support/harness.ts"
import { FakeTasks } from "./FakeTasks.ts"

type Harness = Effect.Success<ReturnType<typeof makeHarness>>
type Plane = Effect.Success<ReturnType<Harness["start"]>>

const admin: Principal = { key_id: "env", name: "admin", scope: "AppAdmin" }
const as = (principal: Principal) => Effect.provideService(CurrentPrincipal, principal)

/** Waits until an operation has a state, and returns it. */
const reaches = (plane: Plane, id: string, state: OperationState) =>
  Effect.andThen(
    until(
      `operation ${id} is ${state}`,
      Effect.map(Effect.orDie(plane.operations.find(id)), (found) => found.state === state)
    ),
    Effect.orDie(plane.operations.find(id))
  )

const begin = (
  plane: Plane,
  server_id: string,
  principal: Principal = admin,
  kind: OperationKind = "files.change"
) =>
  Effect.gen(function* () {
    const server = (yield* plane.records).find(({ id }) => id === server_id)
    if (server === undefined) return assert.fail(`no server: ${server_id}`)
    return (yield* plane.operations.begin(kind, server, { changes: [] })).id
  }).pipe(as(principal))

const withServer = Effect.fnUntraced(function* (options: Parameters<typeof makeHarness>[0] = {}) {
  const tasks = new FakeTasks()
  const harness = yield* makeHarness({ ...options, runners: tasks.layer })
  const plane = yield* harness.start()
  const { id } = yield* plane.servers.create(request({ labels: { team: "a" } }))
  yield* plane.becomes(id, "offline")
  return { ...harness, plane, tasks, server: id }
})

/** The states of an operation in the journal. */
const published = (plane: Plane, id: string) =>
  Effect.map(plane.changes, (changes) =>
    changes.flatMap((change) =>
      change.topic === "server:operation" && change.payload.operation.id === id
        ? [change.payload.operation.state]
        : []
    )
  )

/** Waits until an operation says why it waits; unset: that it does not. */
const waitsFor = (plane: Plane, id: string, why: string | undefined) =>
  until(
    `${id} waits: ${why}`,
    Effect.map(Effect.orDie(plane.operations.find(id)), ({ progress }) => progress?.waiting === why)
  )

describe("spec 11.4: the work of operations", () => {
  it.live("an operation runs, reports its progress, and is done; each state is an event", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer()
        const live: Array<number> = []
        plane.live.receive((news) => {
          for (const one of news)
            if (one.topic === "operation") live.push(one.payload.operation.progress?.done ?? -1)
        })
        const id = yield* begin(plane, server)
        yield* reaches(plane, id, "running")
        yield* until(
          "the task has begun",
          Effect.sync(() => tasks.tasks.has(id))
        )
        tasks.change(id, { done: 2 })
        yield* until(
          "progress is published",
          Effect.sync(() => live.length > 0)
        )
        yield* until(
          "progress is stored",
          Effect.map(Effect.orDie(plane.operations.find(id)), ({ progress }) => progress !== null)
        )
        tasks.change(id, { done: 4, end: "done" })
        const { finished_at, progress, request } = yield* reaches(plane, id, "done")
        assert.deepStrictEqual(progress, { done: 4, total: 4, unit: "files" })
        assert.isNull(request)
        assert.isNotNull(finished_at)
        assert.deepStrictEqual(yield* published(plane, id), ["queued", "running", "done"])
      })
    )
  )

  it.live("a task that cannot be done fails with the reason; a mistake of the runner fails, too", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer()
        for (const [end, reason] of [
          ["failed", "no room on the disk"],
          ["defect", "an internal error; the log of the service has the cause"]
        ] as const) {
          const id = yield* begin(plane, server)
          yield* until(
            "the task has begun",
            Effect.sync(() => tasks.tasks.has(id))
          )
          tasks.change(id, { end })
          assert.strictEqual((yield* reaches(plane, id, "failed")).reason, reason)
          assert.strictEqual(tasks.tasks.get(id)?.begun, 1)
        }
      })
    )
  )

  it.live("three of a node run at a time here, two of a server; backups do not wait for files", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server: slow, tasks } = yield* withServer()
        const { id: other } = yield* plane.servers.create(request())
        yield* plane.becomes(other, "offline")
        const [first = "", second = "", ...queued] = yield* Effect.replicateEffect(begin(plane, slow), 4)
        for (const id of [first, second]) yield* reaches(plane, id, "running")
        const [begun, next] = [yield* begin(plane, other), yield* begin(plane, other)]
        yield* reaches(plane, begun, "running")
        for (const server of [other, slow])
          yield* reaches(plane, yield* begin(plane, server, admin, "backup.create"), "running")
        const states = yield* Effect.forEach([...queued, next], (id) =>
          Effect.map(plane.operations.find(id), ({ state }) => state)
        )
        assert.deepStrictEqual(states, ["queued", "queued", "queued"])
        // The other server waits for the node, and the third of the first server only for its turn.
        tasks.change(first, { end: "done" })
        yield* reaches(plane, next, "running")
        assert.isFalse(queued.some((id) => tasks.tasks.has(id)))
        tasks.change(second, { end: "done" })
        yield* reaches(plane, queued[0] ?? "", "running")
        assert.isFalse(tasks.tasks.has(queued[1] ?? ""))
      }).pipe(as(admin))
    )
  )

  it.live("two of a server run at a time; the next one runs in order, or is cancelled before", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer()
        const ids = [yield* begin(plane, server), yield* begin(plane, server)]
        for (const id of ids) yield* reaches(plane, id, "running")
        const third = yield* begin(plane, server)
        const fourth = yield* begin(plane, server)
        yield* waitsFor(plane, fourth, "2 other operations of its server are underway")
        const cancelled = yield* plane.operations.cancel(third).pipe(as(admin))
        assert.deepStrictEqual(
          [cancelled.state, cancelled.reason],
          ["cancelled", "a caller has cancelled it"]
        )
        tasks.change(ids[0] ?? "", { end: "done" })
        yield* reaches(plane, fourth, "running")
        yield* waitsFor(plane, fourth, undefined)
        assert.isFalse(tasks.tasks.has(third))
        assert.deepStrictEqual(yield* published(plane, third), ["queued", "cancelled"])
      })
    )
  )

  it.live("a server that leaves its node while its operation waits is worked on where it is then", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer({ otherPorts: 100 })
        const ids = [yield* begin(plane, server), yield* begin(plane, server)]
        for (const id of ids) yield* reaches(plane, id, "running")
        const waiting = yield* begin(plane, server)
        yield* waitsFor(plane, waiting, "2 other operations of its server are underway")
        yield* plane.drainWithMove("n1")
        yield* until(
          "the server has moved",
          Effect.map(plane.records, ([record]) => record?.node_id === "n2")
        )
        for (const id of ids) tasks.change(id, { end: "done" })
        yield* reaches(plane, waiting, "running")
        assert.deepStrictEqual(tasks.tasks.get(waiting)?.nodes, ["n2"])
      })
    )
  )

  it.live("cancelling interrupts the runner and calls the node; a node that is away is called again", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer()
        const id = yield* begin(plane, server)
        yield* until(
          "the task has begun",
          Effect.sync(() => tasks.tasks.has(id))
        )
        tasks.isAway = true
        assert.strictEqual((yield* plane.operations.cancel(id).pipe(as(admin))).state, "running")
        yield* until(
          "no call follows the task",
          Effect.sync(() => tasks.following === 0)
        )
        assert.deepStrictEqual(tasks.cancelled, [])
        tasks.isAway = false
        yield* reaches(plane, id, "cancelled")
        assert.deepStrictEqual(tasks.cancelled, [id])
        const again = yield* Effect.result(plane.operations.cancel(id).pipe(as(admin)))
        assert.strictEqual(again._tag, "Failure")
      })
    )
  )

  it.live("a later control plane continues with the same id, and cancels what was to be cancelled", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, start, tasks } = yield* withServer()
        const [kept, cancelled] = [yield* begin(plane, server), yield* begin(plane, server)]
        for (const id of [kept, cancelled])
          yield* until(
            "the task has begun",
            Effect.sync(() => tasks.tasks.has(id))
          )
        tasks.isAway = true
        yield* plane.operations.cancel(cancelled).pipe(as(admin))
        yield* plane.stop
        assert.strictEqual(tasks.following, 0)
        tasks.isAway = false
        const next = yield* start()
        yield* until(
          "the task is followed",
          Effect.sync(() => tasks.following === 1)
        )
        tasks.change(kept, { end: "done" })
        yield* reaches(next, kept, "done")
        yield* reaches(next, cancelled, "cancelled")
        assert.strictEqual(tasks.tasks.get(kept)?.begun, 1)
      })
    )
  )

  it.live("an operation waits for a node that is away, and fails after the longest time", () =>
    runHarness(
      Effect.gen(function* () {
        const { nodes, plane, server, tasks } = yield* withServer({ operationNodeTimeout: "1 second" })
        const id = yield* begin(plane, server)
        yield* until(
          "the task has begun",
          Effect.sync(() => tasks.tasks.has(id))
        )
        tasks.setAway(true)
        yield* until(
          "no call follows the task",
          Effect.sync(() => tasks.following === 0)
        )
        yield* waitsFor(plane, id, "node n1 is not connected")
        tasks.setAway(false)
        yield* until(
          "the task is followed",
          Effect.sync(() => tasks.following === 1)
        )
        assert.strictEqual(tasks.tasks.get(id)?.begun, 1)
        yield* nodes.publish("n1", "lost")
        tasks.setAway(true)
        const { reason } = yield* reaches(plane, id, "failed")
        assert.match(reason ?? "", /^node n1 has not been connected for/)
      })
    )
  )

  it.live("so does one that waits for another node than that of its server", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer({ operationNodeTimeout: "1 second" })
        tasks.away = NodeId.make("n9")
        tasks.setAway(true)
        const { reason } = yield* reaches(plane, yield* begin(plane, server), "failed")
        assert.match(reason ?? "", /^node n9 has not been connected for/)
      })
    )
  )
})

describe("spec 11.4: replicas", () => {
  it.live("the next leader continues what the first one began; any replica begins, cancels and waits", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, start, tasks } = yield* withServer({ database: "postgres" })
        const second = yield* start({ connect: false })
        const first = yield* begin(second, server)
        yield* until(
          "the leader has begun the task",
          Effect.sync(() => tasks.tasks.has(first))
        )
        const found = yield* second.operations.find(first).pipe(as(admin))
        const waiting = yield* Effect.forkChild(second.operations.ended(found))
        yield* plane.stop
        yield* until(
          "the other replica follows the task",
          Effect.sync(() => tasks.following === 1)
        )
        const other = yield* begin(second, server)
        yield* reaches(second, other, "running")
        yield* second.operations.cancel(other).pipe(as(admin))
        yield* reaches(second, other, "cancelled")
        tasks.change(first, { end: "done" })
        assert.strictEqual((yield* Fiber.join(waiting))?.state, "done")
        assert.strictEqual(tasks.tasks.get(first)?.begun, 1)
        assert.deepStrictEqual(yield* published(second, first), ["queued", "running", "done"])
      })
    )
  )
})

describe("spec 11.4: an operation ends with its server and its key", () => {
  it.live("a deleted server cancels its operations, queued and running", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        const ids = [yield* begin(plane, server), yield* begin(plane, server), yield* begin(plane, server)]
        yield* reaches(plane, ids[1] ?? "", "running")
        yield* plane.servers.remove(server, { force: true })
        for (const id of ids)
          assert.strictEqual((yield* reaches(plane, id, "cancelled")).reason, "its server was deleted")
      })
    )
  )

  it.live("a revoked key, and a key that no longer reads the server, cancel what they began", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server, tasks } = yield* withServer()
        const { record } = yield* plane.keys.create({ name: "a", scope: "Operator", labels: { team: "a" } })
        const holder = { key_id: record.id, name: "a", scope: "Operator" } as const
        const limited = yield* begin(plane, server, holder)
        yield* reaches(plane, limited, "running")
        yield* plane.servers.patch(server, { labels: { team: "b" } })
        const left = yield* reaches(plane, limited, "cancelled")
        assert.strictEqual(left.reason, "the key that began it no longer reads the server")
        yield* plane.servers.patch(server, { labels: { team: "a" } })
        const revoked = yield* begin(plane, server, holder)
        yield* reaches(plane, revoked, "running")
        yield* plane.keys.revoke(record.id)
        const ended = yield* reaches(plane, revoked, "cancelled")
        assert.strictEqual(ended.reason, "the key that began it is no longer valid")
        assert.deepStrictEqual(tasks.cancelled, [limited, revoked])
      })
    )
  )
})

/** An operation of another server. */
const elsewhere = (n: number, created_by: string | null): OperationRecord => ({
  id: `other${n}`,
  kind: "backup.of-a-later-version",
  server_id: ServerId.make("elsewhere"),
  state: "queued",
  request: null,
  progress: null,
  reason: null,
  cancelling: null,
  created_by,
  created_at: "2026-01-01T00:00:00.000Z",
  finished_at: null
})

describe("spec 11.5: bounds", () => {
  it.live("a server has at most 16 unfinished operations", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 20 }),
          () => Effect.result(begin(plane, server)),
          { concurrency: "unbounded" }
        )
        const refused = outcomes.flatMap((one) => (one._tag === "Failure" ? [one.failure] : []))
        assert.strictEqual(refused.length, 4)
        for (const error of refused) {
          assert.strictEqual(error._tag, "LimitReached")
          assert.match(String("detail" in error && error.detail), /has 16 unfinished operations$/)
        }
      })
    )
  )

  it.live("a key other than AppAdmin has at most 8 of them, and leaves room for others", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        const { record } = yield* plane.keys.create({ scope: "Operator", name: "holder" })
        const holder: Principal = { ...admin, key_id: record.id, scope: "Operator" }
        yield* Effect.forEach(Array.from({ length: 8 }), () => begin(plane, server, holder))
        const error = yield* Effect.flip(begin(plane, server, holder))
        assert.match(String("detail" in error && error.detail), /has 8 unfinished operations of this key$/)
        yield* Effect.forEach(Array.from({ length: 8 }), () => begin(plane, server))
      })
    )
  )

  it.live("a key other than AppAdmin has at most 200 of all servers, and leaves room for others", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        const { record } = yield* plane.keys.create({ scope: "Operator", name: "holder" })
        const holder: Principal = { ...admin, key_id: record.id, scope: "Operator" }
        const all = Array.from({ length: 199 }, (_, n) => elsewhere(n, record.id))
        yield* plane.store.write(
          Effect.forEach(all, (one) => plane.operationRepo.insert(one, { blueprint_id: "" }), {
            discard: true
          })
        )
        yield* begin(plane, server, holder)
        const error = yield* Effect.flip(begin(plane, server, holder))
        assert.strictEqual(error._tag, "LimitReached")
        assert.match(String("detail" in error && error.detail), /this key has 200 unfinished operations/)
        yield* begin(plane, server)
      })
    )
  )

  it.live("there are at most 1,000 unfinished operations", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        const all = Array.from({ length: 1_000 }, (_, n) => elsewhere(n, null))
        yield* plane.store.write(
          Effect.forEach(all, (one) => plane.operationRepo.insert(one, { blueprint_id: "" }), {
            discard: true
          })
        )
        const refused = yield* Effect.result(begin(plane, server))
        assert(refused._tag === "Failure")
        assert.strictEqual(refused.failure._tag, "Unavailable")
        const kept = yield* plane.store.read(plane.operationRepo.find("other1"))
        assert.strictEqual(kept?.state, "queued")
      })
    )
  )
})
