import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../support/eventually.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "./daemonChild.ts"
import {
  alive,
  newId,
  openDaemon,
  pidIn,
  type Recorder,
  recorder,
  type SpecOptions,
  specOf
} from "./support.ts"

/** Returns the reports of one server: its statuses, crash reasons and installation phases. */
const reportsOf = (notes: Recorder, id: string) =>
  notes.reports
    .filter((report) => report.server_id === id)
    .map((report) =>
      report.type === "status"
        ? report.status
        : report.type === "crash"
          ? report.crash.reason
          : report.install.phase
    )

const waitsForGo = (then: string) => `sh -c 'echo ready; while [ ! -e go ]; do sleep 0.02; done; ${then}'`

describe("spec 9.6: daemon killed", () => {
  it.live(
    "after kill -9 running servers are adopted, ended ones are reported, and cut off installations are repeated",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const first = yield* daemonProcess(dataDir)
        const serverDir = (id: string) => join(dataDir, "servers", id)
        const pidOf = (id: string): number =>
          JSON.parse(readFileSync(join(serverDir(id), "run.json"), "utf8")).pid
        const go = (id: string) => writeFileSync(join(serverDir(id), "files", "go"), "")
        const up = Effect.fnUntraced(function* (options: SpecOptions, status = "running") {
          const id = newId()
          yield* first.ask(`create ${JSON.stringify({ ...options, id })}`)
          yield* until("installed", () => stateOf(dataDir, id).status === "offline")
          yield* first.ask(`power ${id} start 30`)
          yield* until(status, () => stateOf(dataDir, id).status === status)
          return id
        })

        const second = yield* Effect.flip(openDaemon(dataDir, recorder()))
        assert.include(String(second), "is in use by process")

        const survivor = yield* up({})
        const crashed = yield* up({
          process: { invocation: waitsForGo("exit 9") },
          definition: { run: "manual" }
        })
        const later = yield* up({ process: { invocation: waitsForGo("exit 9") } })
        const online = yield* up(
          {
            process: { invocation: "sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo ready; sleep 300'" }
          },
          "starting"
        )
        const stopping = yield* up({
          process: {
            invocation: `sh -c 'trap "" TERM; echo ready; while :; do sleep 0.05; done'`,
            stop_command: "^SIGTERM"
          }
        })
        const reused = yield* up({ definition: { run: "manual" } })
        const broken = yield* up({})
        const started = [survivor, crashed, later, online, stopping, reused, broken]
        yield* until("no report is queued", () =>
          started.every((id) => stateOf(dataDir, id).reports.length === 0)
        )
        const cutOff = newId()
        const install = {
          script: `echo $$ > ${dataDir}/pid; [ -e ${dataDir}/go ] || exec sleep 300; echo done > result`
        }
        yield* first.ask(
          `create ${JSON.stringify({ id: cutOff, install, definition: { software: "slow" } })}`
        )
        yield* until("script runs", () => pidIn(join(dataDir, "pid")) > 0)
        const scriptPid = pidIn(join(dataDir, "pid"))
        yield* first.ask(`power ${stopping} stop 1`)
        yield* first.kill

        for (const id of [crashed, online]) go(id)
        yield* until("ended", () => readFileSync(join(serverDir(crashed), "exit"), "utf8") === "9\n")
        yield* until("online", () =>
          readFileSync(join(serverDir(online), "console.log"), "utf8").includes("ready")
        )
        writeFileSync(join(dataDir, "go"), "")
        const brokenPid = pidOf(broken)
        writeFileSync(join(serverDir(broken), "server.json"), "{ broken")
        const record = JSON.parse(readFileSync(join(serverDir(reused), "run.json"), "utf8"))
        process.kill(-record.pid, "SIGKILL")
        yield* until("dead", () => !alive(record.pid))
        writeFileSync(
          join(serverDir(reused), "run.json"),
          `${JSON.stringify({ ...record, pid: process.pid })}\n`
        )

        const notes = recorder()
        const { daemon } = yield* openDaemon(dataDir, notes)
        const all = [...started, cutOff]
        yield* Effect.addFinalizer(() => Effect.forEach(all, (id) => Effect.ignore(daemon.remove(id))))
        const reported = (id: string) => reportsOf(notes, id)
        const ends = (id: string) => until(`${id} is offline`, () => reported(id).at(-1) === "offline")
        yield* until("registered", () => notes.registrations.length > 0)

        assert.deepInclude(
          notes.registrations[0]?.servers.find((server) => server.id === survivor),
          { status: "running", unsent_reports: 0 }
        )
        yield* daemon.commands(survivor, ["again"])
        yield* until("echo", () =>
          readFileSync(join(serverDir(survivor), "console.log"), "utf8").includes("got again")
        )
        yield* daemon.power(survivor, "stop", 30)
        yield* ends(survivor)
        assert.deepStrictEqual(reported(survivor), ["stopping", "offline"])

        yield* ends(crashed)
        assert.deepStrictEqual(reported(crashed), ["exit code 9", "offline"], "crashed meanwhile")
        assert.strictEqual(yield* daemon.status(later), "running")
        go(later)
        yield* ends(later)
        assert.deepStrictEqual(reported(later), ["exit code 9", "offline"], "crashed after the adoption")
        yield* until("running", () => reported(online).at(-1) === "running")
        yield* ends(stopping)
        assert.notInclude(reported(stopping), "signal: killed", "a stop in progress is no crash")
        yield* ends(reused)
        assert.deepStrictEqual(
          reported(reused),
          ["offline"],
          "another process with the same pid: it ended with its machine"
        )
        assert.isFalse(alive(brokenPid), "processes of missing servers are killed")
        assert.isUndefined(notes.registrations[0]?.servers.find((server) => server.id === broken))
        assert.isTrue(
          readdirSync(join(dataDir, "servers")).some((name) => name.startsWith(`.corrupt-${broken}`))
        )
        yield* ends(cutOff)
        assert.include(reported(cutOff), "ready", "an interrupted installation is repeated")
        assert.isFalse(alive(scriptPid))
        assert.strictEqual(readFileSync(join(serverDir(cutOff), "files", "result"), "utf8"), "done\n")
        assert.deepStrictEqual(
          readdirSync(join(dataDir, "base")).filter((name) => name.startsWith(".aside")),
          []
        )
      }).pipe(Effect.scoped)
  )

  it.live.runIf(process.geteuid?.() === 0)(
    "a start logs one warning that lists the servers still running as root (needs root)",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const up = Effect.fnUntraced(function* (daemon: Effect.Success<ReturnType<typeof daemonProcess>>) {
          const id = newId()
          yield* daemon.ask(`create ${JSON.stringify({ id })}`)
          yield* until("installed", () => stateOf(dataDir, id).status === "offline")
          yield* daemon.ask(`power ${id} start 30`)
          yield* until("running", () => stateOf(dataDir, id).status === "running")
          return id
        })
        // A daemon of a version without a uid per server.
        const older = yield* daemonProcess(dataDir)
        const [one, two] = [yield* up(older), yield* up(older)]
        yield* older.kill
        const first = 56_100 + (process.pid % 3000)
        const uids = { first, last: first + 9 }
        const isolation = { mode: "auto", uids, claimsDir: join(dataDir, "claims") } as const
        const newer = yield* daemonProcess(
          dataDir,
          "",
          "",
          "test-node",
          JSON.stringify({ ...isolation, hidden: [] })
        )
        const three = yield* up(newer)
        yield* newer.kill

        const start = Effect.gen(function* () {
          const log: Array<string> = []
          const opened = yield* openDaemon(dataDir, { ...recorder(), log }, { isolation })
          return { ...opened, warnings: log.filter((line) => line.includes("run as root")) }
        })
        const { close, daemon, warnings } = yield* start
        assert.strictEqual(warnings.length, 1)
        for (const id of [one, two]) assert.include(warnings[0], id)
        assert.notInclude(warnings[0], three)
        assert.match(warnings[0] ?? "", /Restart these servers/)
        yield* daemon.power(one, "restart", 30)
        yield* daemon.power(two, "kill", 0)
        yield* until("restarted", () => stateOf(dataDir, one).uid !== undefined)
        yield* until("running", () => stateOf(dataDir, one).status === "running")
        yield* until("killed", () => stateOf(dataDir, two).status === "offline")
        yield* close
        const last = yield* start
        assert.deepStrictEqual(last.warnings, [])
        for (const id of [one, two, three]) yield* last.daemon.remove(id)
      }).pipe(Effect.scoped)
  )

  it.live("the next daemon sends the queued reports; sequence numbers grow", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const first = yield* daemonProcess(dataDir, "away")
      const id = newId()
      yield* first.ask(`create ${JSON.stringify({ id })}`)
      yield* until("installed", () => stateOf(dataDir, id).status === "offline")
      yield* first.ask(`power ${id} start 30`)
      yield* until("running", () => stateOf(dataDir, id).status === "running")
      yield* first.kill
      const notes = recorder()
      const { daemon } = yield* openDaemon(dataDir, notes)
      yield* until("reported", () => reportsOf(notes, id).at(-1) === "running")
      assert.deepStrictEqual(reportsOf(notes, id), [
        "installing",
        "installing",
        "ready",
        "offline",
        "starting",
        "running"
      ])
      assert.strictEqual(notes.registrations[0]?.servers[0]?.unsent_reports, 6)
      yield* daemon.power(id, "kill", 0)
      yield* until("offline", () => reportsOf(notes, id).at(-1) === "offline")
      const [last = 0, ...before] = notes.reports.map((report) => report.sequence).toReversed()
      assert.deepStrictEqual(before, [6, 5, 4, 3, 2, 1])
      assert.isAbove(last, 7, "the next number is above any that the first daemon may have sent")
      yield* daemon.remove(id)
    }).pipe(Effect.scoped)
  )
})

describe("spec 9.2", () => {
  it.live("servers that the control plane has deleted are removed", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const notes = recorder()
      const { daemon } = yield* openDaemon(dataDir, notes)
      const spec = specOf()
      yield* daemon.create(spec)
      yield* until("installed", () => notes.reports.length === 4)
      yield* daemon.power(spec.id, "start", 30)
      yield* until("running", () => notes.reports.length === 6)
      const { pid } = JSON.parse(readFileSync(join(dataDir, "servers", spec.id, "run.json"), "utf8"))
      notes.remove = [spec.id]
      notes.forgotten = true
      yield* until("registered again", () => notes.registrations.length === 2)
      yield* until("gone", () => readdirSync(join(dataDir, "servers")).length === 0)
      assert.isFalse(alive(pid))
    }).pipe(Effect.scoped)
  )

  it.live("while the control plane is away the daemon works on; queued reports are then sent in order", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const notes = recorder()
      const { daemon } = yield* openDaemon(dataDir, notes)
      const spec = specOf()
      yield* until("registered", () => notes.registrations.length === 1)
      notes.away = true
      yield* daemon.create(spec)
      yield* until("installed", () => stateOf(dataDir, spec.id).status === "offline")
      yield* daemon.power(spec.id, "start", 30)
      yield* until("running", () => stateOf(dataDir, spec.id).status === "running")
      yield* daemon.power(spec.id, "stop", 30)
      yield* until("offline", () => stateOf(dataDir, spec.id).status === "offline")
      assert.deepStrictEqual(notes.reports, [])
      notes.away = false
      notes.forgotten = true
      yield* until("reported", () => notes.reports.length === 8)
      assert.deepStrictEqual(
        notes.reports.map((report) => report.sequence),
        [1, 2, 3, 4, 5, 6, 7, 8]
      )
      assert.isAtLeast(notes.registrations.length, 2)
      yield* until("no report is queued", () => stateOf(dataDir, spec.id).reports.length === 0)
      yield* daemon.remove(spec.id)
    }).pipe(Effect.scoped)
  )
})

describe("end of the daemon", () => {
  it.live("by default servers keep running and are adopted", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const notes = recorder()
      const first = yield* openDaemon(dataDir, notes)
      const spec = specOf()
      yield* first.daemon.create(spec)
      yield* until("installed", () => notes.reports.length === 4)
      yield* first.daemon.power(spec.id, "start", 30)
      yield* until("running", () => notes.reports.length === 6)
      yield* first.close
      const { pid } = JSON.parse(readFileSync(join(dataDir, "servers", spec.id, "run.json"), "utf8"))
      assert.isTrue(alive(pid))
      const { daemon } = yield* openDaemon(dataDir, notes)
      assert.strictEqual(yield* daemon.status(spec.id), "running")
      yield* daemon.power(spec.id, "stop", 10)
      yield* until("ended", () => !alive(pid))
      yield* daemon.remove(spec.id)
    }).pipe(Effect.scoped)
  )

  it.live("with onShutdown: stop servers are stopped first, and the stop is reported", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const notes = recorder()
      const first = yield* openDaemon(dataDir, notes, { onShutdown: "stop" })
      const spec = specOf()
      yield* first.daemon.create(spec)
      yield* until("installed", () => notes.reports.length === 4)
      yield* first.daemon.power(spec.id, "start", 30)
      yield* until("running", () => notes.reports.length === 6)
      yield* first.close
      assert.deepStrictEqual(
        notes.reports.slice(6).map((report) => report.type === "status" && report.status),
        ["stopping", "offline"]
      )
    }).pipe(Effect.scoped)
  )
})
