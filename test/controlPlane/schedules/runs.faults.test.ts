import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import { DaemonRefused } from "../../../src/contract/nodeApi/Daemon.ts"
import type { Principal } from "../../../src/controlPlane/http/Principal.ts"
import { branded } from "../../support/ids.ts"
import { FakeTasks } from "../operations/FakeTasks.ts"
import { makeHarness, request, runHarness as runAny } from "../servers/support/harness.ts"
import { admin, as, byWallClock, ended, type Plane, passUntil, runsOf, schedule } from "./support.ts"

const runHarness = <A, E>(effect: Parameters<typeof runAny<A, E>>[0]) => byWallClock(() => runAny(effect))

const begin = Date.parse("2026-11-28T03:00:00Z")

const withServer = Effect.fnUntraced(function* (options: Parameters<typeof makeHarness>[0] = {}) {
  yield* TestClock.setTime(begin)
  const harness = yield* makeHarness(options)
  const plane = yield* harness.start()
  const { id } = yield* plane.servers.create(request({ labels: { team: "a" } }))
  yield* passUntil("the server is installed", isStatus(plane, id, "offline"))
  return { ...harness, plane, server: id }
})

const isStatus = (plane: Plane, id: string, status: string) =>
  plane.servers.status(id).pipe(
    Effect.map((now) => now === status),
    Effect.orElseSucceed(() => false)
  )

const started = Effect.fnUntraced(function* (plane: Plane, id: string) {
  yield* plane.servers.power(id, "start")
  yield* passUntil("the server runs", isStatus(plane, id, "running"))
})

const create = (plane: Plane, change: Parameters<typeof schedule>[0], principal: Principal = admin) =>
  plane.schedules.create(schedule(change)).pipe(as(principal))

describe("spec 13.5: runs", () => {
  it.effect("a schedule runs its steps at its time, once, and has its next time", () =>
    runHarness(
      Effect.gen(function* () {
        const { daemon, plane, server } = yield* withServer()
        yield* started(plane, server)
        const { id, next_at } = yield* create(plane, {
          server_id: server,
          steps: [
            { command: ["say hello"] },
            { wait: 30 },
            { power: "stop" },
            { wait_for: "offline", timeout: 60 },
            { power: "start" },
            { wait_for: "running", timeout: 60 }
          ]
        })
        assert.strictEqual(next_at, "2026-11-28T04:00:00.000Z")
        const calls = daemon.calls.length
        yield* TestClock.adjust("59 minutes")
        assert.deepStrictEqual(yield* runsOf(plane, id), [])
        yield* TestClock.adjust("1 minute")
        const run = yield* ended(plane, id)
        assert.deepInclude(run, { state: "done", due_at: "2026-11-28T04:00:00.000Z" })
        assert.deepStrictEqual(run.servers, { [server]: { state: "done", step: 6 } })
        assert.deepStrictEqual(
          daemon.calls.slice(calls).map((call) => call.split(" ")[0]),
          ["commands", "power", "power"]
        )
        const { last_run, next_at: next } = yield* plane.schedules.get(id).pipe(as(admin))
        assert.strictEqual(next, "2026-11-29T04:00:00.000Z")
        assert.deepInclude(last_run, { id: run.id, state: "done" })
      })
    )
  )

  it.effect("a warning writes its line at each time, and ends at once if the server does not run", () =>
    runHarness(
      Effect.gen(function* () {
        const { daemon, plane, server } = yield* withServer()
        yield* started(plane, server)
        const { id } = yield* create(plane, {
          server_id: server,
          steps: [{ warn: { line: "say {{left}}", at: [10, 120, 60] } }]
        })
        yield* plane.schedules.run(id).pipe(as(admin))
        const began = yield* Clock.currentTimeMillis
        yield* ended(plane, id)
        assert.isAtLeast((yield* Clock.currentTimeMillis) - began, 120_000)
        assert.deepStrictEqual(daemon.lines, ["say 2 minutes", "say 1 minute", "say 10 seconds"])
        yield* plane.servers.power(server, "stop")
        yield* passUntil("it is stopped", isStatus(plane, server, "offline"))
        const again = yield* plane.schedules.run(id).pipe(as(admin))
        const over = yield* ended(plane, id)
        assert.deepStrictEqual([over.id, over.state], [again.id, "done"])
        assert.lengthOf(daemon.lines, 3)
      })
    )
  )

  it.effect(
    "a chain that has stopped the server and fails starts it again; on_failure: continue goes on",
    () =>
      runHarness(
        Effect.gen(function* () {
          const { plane, server } = yield* withServer()
          yield* started(plane, server)
          const steps = [
            { power: "stop" },
            { wait_for: "offline", timeout: 60 },
            { command: ["say nobody hears this"] },
            { wait: 1 }
          ] as const
          const { id } = yield* create(plane, { server_id: server, steps })
          yield* plane.schedules.run(id).pipe(as(admin))
          const failed = yield* ended(plane, id)
          const reason = `step 3: server is offline: ${server}`
          assert.deepInclude(failed, { state: "failed", reason: `server ${server}: ${reason}` })
          assert.deepStrictEqual(failed.servers, { [server]: { state: "failed", step: 3, reason } })
          yield* passUntil("it runs again", isStatus(plane, server, "running"))
          yield* plane.schedules.patch(id, { on_failure: "continue" }).pipe(as(admin))
          yield* plane.schedules.run(id).pipe(as(admin))
          const continued = yield* ended(plane, id)
          assert.deepStrictEqual(continued.servers, { [server]: { state: "failed", step: 4, reason } })
          yield* passUntil("it runs again", isStatus(plane, server, "running"))
          const events = (yield* plane.changes).flatMap((change) =>
            change.topic === "server:schedule" ? [[change.payload.run_id, change.payload.state]] : []
          )
          assert.deepStrictEqual(events, [
            [failed.id, "failed"],
            [continued.id, "failed"]
          ])
        })
      )
  )

  it.effect("a backup step waits for its end; a chain whose backup fails leaves a running server", () =>
    Effect.suspend(() => {
      const tasks = new FakeTasks()
      return runHarness(
        Effect.gen(function* () {
          const { plane, server } = yield* withServer({ runners: tasks.layer })
          const steps = [
            { power: "stop" },
            { wait_for: "offline", timeout: 60 },
            { backup: { name: "nightly" } },
            { power: "start" }
          ] as const
          for (const end of ["done", "failed"] as const) {
            yield* started(plane, server)
            const { id } = yield* create(plane, { server_id: server, cron: "0 0 1 1 *", steps })
            yield* plane.schedules.run(id).pipe(as(admin))
            const before = tasks.tasks.size
            yield* passUntil(
              "the backup has begun",
              Effect.sync(() => tasks.tasks.size > before)
            )
            const [operation = ""] = [...tasks.tasks.keys()].slice(-1)
            yield* TestClock.adjust("10 minutes")
            assert.deepInclude((yield* runsOf(plane, id))[0], {
              state: "running",
              servers: { [server]: { state: "running", step: 3 } }
            })
            tasks.change(operation, { end })
            const run = yield* ended(plane, id)
            const made = (yield* plane.changes).flatMap((change) =>
              change.topic === "server:backup" ? [change.payload.schedule] : []
            )
            assert.deepStrictEqual(made.at(-1), { id, name: "nightly" })
            assert.strictEqual(run.state, end)
            if (end === "failed")
              assert.match(run.reason ?? "", /step 3: backup \w{12} failed: no room on the disk$/)
            yield* passUntil("it runs again", isStatus(plane, server, "running"))
          }
          yield* plane.servers.power(server, "stop")
          yield* passUntil("it is offline", isStatus(plane, server, "offline"))
          const { id } = yield* create(plane, {
            server_id: server,
            steps: [{ backup: { background: true } }]
          })
          yield* plane.schedules.run(id).pipe(as(admin))
          assert.strictEqual((yield* ended(plane, id)).state, "done")
        })
      )
    })
  )

  it.effect("a step that an operation of the server refuses waits for its end, and the run says so", () =>
    Effect.suspend(() => {
      const tasks = new FakeTasks()
      return runHarness(
        Effect.gen(function* () {
          const { plane: first, server, start } = yield* withServer({ runners: tasks.layer })
          const run = Effect.fnUntraced(function* (change: Parameters<typeof schedule>[0]) {
            const { id } = yield* create(first, { server_id: server, cron: "0 0 1 1 *", ...change })
            yield* first.schedules.run(id).pipe(as(admin))
            return id
          })
          const begun = (count: number) =>
            passUntil(
              `${count} backups have begun`,
              Effect.sync(() => tasks.tasks.size === count)
            )
          const waits = Effect.fnUntraced(function* (plane: Plane, id: string, reason: string | undefined) {
            const now = Effect.map(runsOf(plane, id), ([one]) => one?.servers[server])
            yield* passUntil(
              reason === undefined ? "it goes on" : "it waits",
              Effect.map(now, (one) => one?.state === "running" && one.reason === reason)
            )
          })
          const node = yield* run({ name: "node", steps: [{ backup: {} }] })
          yield* begun(1)
          const [operation = ""] = tasks.tasks.keys()
          const offsite = yield* run({
            name: "offsite",
            steps: [{ backup: { background: true } }, { wait: 60 }]
          })
          const upgrade = yield* run({ name: "upgrade", steps: [{ upgrade: {} }] })
          const reason = `step 1 waits: operation ${operation} (backup.create) works on the server: ${server}`
          for (const id of [offsite, upgrade]) yield* waits(first, id, reason)
          assert.deepInclude((yield* runsOf(first, offsite))[0], { reason: `server ${server}: ${reason}` })
          yield* first.stop
          const plane = yield* start()
          yield* TestClock.adjust("10 minutes")
          for (const id of [offsite, upgrade]) yield* waits(plane, id, reason)
          tasks.change(operation, { end: "done" })
          assert.strictEqual((yield* ended(plane, node)).state, "done")
          yield* begun(2)
          yield* waits(plane, offsite, undefined)
          assert.strictEqual((yield* ended(plane, offsite)).state, "done")
          tasks.change([...tasks.tasks.keys()][1] ?? "", { end: "done" })
          assert.strictEqual((yield* ended(plane, upgrade)).state, "done")
        })
      )
    })
  )

  it.effect(
    "a start that the node refuses during a restore waits for its end; other refusals fail at once",
    () =>
      Effect.suspend(() => {
        const tasks = new FakeTasks()
        return runHarness(
          Effect.gen(function* () {
            const { daemon, plane, server } = yield* withServer({ runners: tasks.layer })
            const refusal = new DaemonRefused({
              status: 409,
              detail: "the server is being restored",
              hint: ""
            })
            const { id } = yield* create(plane, { server_id: server, steps: [{ power: "start" }] })
            daemon.fault("power", refusal)
            yield* plane.schedules.run(id).pipe(as(admin))
            assert.deepInclude((yield* ended(plane, id)).servers[server], {
              ...{ state: "failed", reason: "step 1: the server is being restored" }
            })
            const [record] = yield* plane.records
            if (record === undefined) return assert.fail("no server")
            const { id: operation } = yield* plane.operations.begin("backup.restore", record, {})
            daemon.fault("power", refusal)
            yield* plane.schedules.run(id).pipe(as(admin))
            yield* passUntil(
              "it waits",
              Effect.map(runsOf(plane, id), ([run]) => /restore\) works on/.test(run?.reason ?? ""))
            )
            tasks.change(operation, { end: "done" })
            assert.strictEqual((yield* ended(plane, id)).state, "done")
          })
        )
      })
  )

  it.effect(
    "a server that its node starts again is awaited before the condition and a command, for a while",
    () =>
      runHarness(
        Effect.gen(function* () {
          const { daemon, plane, server } = yield* withServer()
          const isWaiting = Effect.map(plane.records, ([record]) => record?.run?.waiting === true)
          /** The service has restarted: the node starts the server in its turn. */
          const queued = Effect.gen(function* () {
            daemon.move(branded(server), "offline")
            daemon.queueReport(branded(server), {
              ...{ type: "status", status: "offline", transient: false, run: { waiting: true } }
            })
            yield* passUntil("it is queued", isWaiting)
          })
          yield* started(plane, server)
          const { id } = yield* create(plane, {
            ...{ server_id: server, cron: "0 0 1 1 *", only_if: { status: "running" } },
            steps: [{ wait: 60 }, { command: ["say back"] }]
          })
          const now = Effect.map(runsOf(plane, id), ([run]) => run?.servers[server])
          yield* queued
          yield* plane.schedules.run(id).pipe(as(admin))
          yield* TestClock.adjust("30 seconds")
          assert.strictEqual((yield* now)?.state, "queued")
          daemon.move(branded(server), "starting")
          yield* passUntil("it starts", isStatus(plane, server, "starting"))
          assert.strictEqual((yield* now)?.state, "queued")
          daemon.move(branded(server), "running")
          yield* passUntil(
            "it is at its first step",
            Effect.map(now, (one) => one?.state === "running")
          )
          yield* queued
          yield* TestClock.adjust("80 seconds")
          assert.deepStrictEqual(yield* now, { state: "running", step: 2 })
          daemon.move(branded(server), "running")
          assert.strictEqual((yield* ended(plane, id)).state, "done")
          assert.deepStrictEqual(daemon.lines, ["say back"])
          yield* queued
          yield* plane.schedules.run(id).pipe(as(admin))
          assert.deepInclude((yield* ended(plane, id)).servers[server], { reason: "it is offline" })
        })
      )
  )

  it.effect("300 servers by a selector: at most max_parallel at a time, the condition skips others", () =>
    runHarness(
      Effect.gen(function* () {
        yield* TestClock.setTime(begin)
        const harness = yield* makeHarness({ ports: 400 })
        const plane = yield* harness.start()
        for (let n = 0; n < 300; n++) yield* plane.servers.create(request({ labels: { team: "a" } }))
        yield* passUntil(
          "all are installed",
          Effect.map(plane.records, (records) => records.every(({ status }) => status === "offline"))
        )
        const ids = (yield* plane.records).map(({ id }) => id)
        const others = ids.slice(0, 10)
        for (const id of others) yield* plane.servers.power(id, "start")
        for (const id of others) yield* passUntil(`${id} runs`, isStatus(plane, id, "running"))
        const { id } = yield* create(plane, {
          selector: { labels: { team: "a" } },
          only_if: { status: "offline" },
          max_parallel: 50,
          steps: [{ power: "start" }, { wait_for: "running", timeout: 60 }]
        })
        yield* plane.schedules.run(id).pipe(as(admin))
        const run = yield* ended(plane, id)
        const states = Object.entries(run.servers).map(([, { state }]) => state)
        assert.strictEqual(run.state, "done")
        assert.strictEqual(states.filter((state) => state === "done").length, 290)
        assert.strictEqual(states.filter((state) => state === "skipped").length, 10)
        assert.strictEqual(run.servers[others[0] ?? ""]?.reason, "it is running")
      })
    )
  )

  it.effect("stagger delays the begin of each server", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane } = yield* withServer()
        yield* plane.servers.create(request({ labels: { team: "a" } }))
        yield* plane.servers.create(request({ labels: { team: "a" } }))
        yield* passUntil(
          "all are installed",
          Effect.map(plane.records, (records) => records.every(({ status }) => status === "offline"))
        )
        const { id } = yield* create(plane, {
          selector: { labels: { team: "a" } },
          stagger: 60,
          steps: [{ wait: 1 }]
        })
        yield* plane.schedules.run(id).pipe(as(admin))
        const run = yield* ended(plane, id)
        const took = Date.parse(run.finished_at ?? "") - Date.parse(run.started_at ?? "")
        assert.isAtLeast(took, 121_000)
        assert.isBelow(took, 180_000)
      })
    )
  )
})

describe("spec 13.5: overlaps and cancellation", () => {
  it.effect("a time is skipped while the run before runs, or one run waits for it", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        for (const [overlap, states] of [
          ["skip", ["skipped", "skipped", "running"]],
          ["queue", ["skipped", "running", "running"]]
        ] as const) {
          const { id } = yield* create(plane, {
            server_id: server,
            cron: "*/10 * * * *",
            overlap,
            steps: [{ wait: 2000 }]
          })
          yield* TestClock.adjust("10 minutes")
          yield* passUntil(
            "it runs",
            Effect.map(runsOf(plane, id), (runs) => runs.length === 1)
          )
          yield* TestClock.adjust("10 minutes")
          yield* passUntil(
            "its second time",
            Effect.map(runsOf(plane, id), (runs) => runs.length === 2)
          )
          yield* TestClock.adjust("10 minutes")
          yield* passUntil(
            "its third time",
            Effect.map(runsOf(plane, id), (runs) => runs.length === 3)
          )
          const runs = yield* runsOf(plane, id)
          assert.deepStrictEqual(
            runs.map(({ state }) => state),
            [...states]
          )
          if (overlap === "queue") {
            assert.isUndefined(runs[1]?.started_at)
            yield* TestClock.adjust("10 minutes")
            yield* passUntil(
              "the queued run begins",
              Effect.map(
                runsOf(plane, id),
                (all) => all.find((run) => run.id === runs[1]?.id)?.started_at !== undefined
              )
            )
          }
          yield* plane.schedules.patch(id, { enabled: false }).pipe(as(admin))
        }
      })
    )
  )

  it.effect("a cancelled run ends its servers, and starts those that it has stopped", () =>
    runHarness(
      Effect.gen(function* () {
        const { plane, server } = yield* withServer()
        yield* started(plane, server)
        const { id } = yield* create(plane, {
          server_id: server,
          steps: [{ power: "stop" }, { wait: 3600 }]
        })
        const { id: run } = yield* plane.schedules.run(id).pipe(as(admin))
        yield* passUntil("it is stopped", isStatus(plane, server, "offline"))
        const removal = yield* Effect.result(plane.schedules.remove(id).pipe(as(admin)))
        assert.strictEqual(removal._tag, "Failure")
        yield* plane.schedules.cancelRun(run).pipe(as(admin))
        const over = yield* ended(plane, id)
        assert.deepInclude(over, { state: "cancelled", reason: "a caller has cancelled it" })
        assert.strictEqual(over.servers[server]?.state, "cancelled")
        yield* passUntil("it runs again", isStatus(plane, server, "running"))
        const again = yield* Effect.result(plane.schedules.cancelRun(run).pipe(as(admin)))
        assert.strictEqual(again._tag, "Failure")
        yield* plane.schedules.remove(id).pipe(as(admin))
      })
    )
  )
})

describe("spec 13.3: times that pass without the service", () => {
  const off = Effect.fnUntraced(function* (missed: "skip" | "run", catch_up: number, days: number) {
    const { plane, server, start } = yield* withServer()
    const { id } = yield* create(plane, { server_id: server, missed, catch_up, steps: [{ wait: 1 }] })
    yield* plane.stop
    yield* TestClock.adjust(`${days} days`)
    yield* TestClock.adjust("80 minutes")
    const next = yield* start()
    const run = yield* ended(next, id)
    const all = yield* runsOf(next, id)
    return { run, all, next: yield* next.schedules.get(id).pipe(as(admin)), plane: next, id }
  })

  it.effect("after three days, one run catches up if its time was less than catch_up ago", () =>
    runHarness(
      Effect.gen(function* () {
        const { all, next, run } = yield* off("run", 3600, 3)
        assert.deepInclude(run, { state: "done", due_at: "2026-12-01T04:00:00.000Z" })
        assert.lengthOf(all, 1)
        assert.strictEqual(next.next_at, "2026-12-02T04:00:00.000Z")
      })
    )
  )

  it.effect("else the last time is missed, with an event", () =>
    runHarness(
      Effect.gen(function* () {
        for (const [missed, catch_up] of [
          ["skip", 3600],
          ["run", 600]
        ] as const) {
          const { all, plane, run } = yield* off(missed, catch_up, 3)
          assert.deepInclude(run, { state: "missed", due_at: "2026-12-01T04:00:00.000Z", servers: {} })
          assert.lengthOf(all, 1)
          const news = (yield* plane.changes).filter(({ topic }) => topic === "server:schedule")
          assert.lengthOf(news, 1)
        }
      })
    )
  )

  it.effect("a clock that is set by two hours runs no time twice, and misses what it has passed", () =>
    byWallClock((shift) =>
      runAny(
        Effect.gen(function* () {
          const { plane, server } = yield* withServer()
          const { id } = yield* create(plane, { server_id: server, cron: "30 * * * *", steps: [{ wait: 1 }] })
          const seen = Effect.map(runsOf(plane, id), (runs) =>
            runs.map(({ due_at, state }) => `${due_at.slice(11, 16)} ${state}`)
          )
          yield* TestClock.adjust("30 minutes")
          yield* ended(plane, id)
          yield* TestClock.adjust("10 minutes")
          shift(2)
          yield* passUntil(
            "the time is missed",
            Effect.map(seen, (all) => all.length === 2)
          )
          assert.deepStrictEqual(yield* seen, ["05:30 missed", "03:30 done"])
          yield* TestClock.adjust("1 hour")
          yield* passUntil(
            "the next time runs",
            Effect.map(seen, ([last]) => last === "06:30 done")
          )
          shift(-2)
          yield* TestClock.adjust("150 minutes")
          assert.deepStrictEqual(yield* seen, ["06:30 done", "05:30 missed", "03:30 done"])
          yield* TestClock.adjust("1 hour")
          yield* passUntil(
            "it runs again",
            Effect.map(seen, ([last]) => last === "07:30 done")
          )
        })
      )
    )
  )
})
