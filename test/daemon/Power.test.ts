import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { DaemonError } from "../../src/contract/nodeApi/Daemon.ts"
import { until } from "../support/eventually.ts"
import { readProcs } from "../support/processes.ts"
import { alive, harness, newId, pidIn } from "./support.ts"

const refusal = (error: DaemonError) =>
  error._tag === "DaemonRefused" ? { status: error.status, detail: error.detail } : error._tag

/** Writes the pid of a background child outside the process group, then serves. */
const withStray = (file: string) =>
  `sh -c 'setsid sh -c "echo \\$\\$ > ${file}; exec sleep 300" & (sleep 300 & echo $! > ${file}.2); echo ready; while read -r line; do [ "$line" = stop ] && exit 0; [ "$line" = die ] && exit 4; done'`

describe("spec 3.5: states", () => {
  it.live("a server is installing, offline, starting, running, stopping, offline", () =>
    Effect.gen(function* () {
      const { daemon, installed, lastStatus, statuses } = yield* harness()
      const id = yield* installed()
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
      yield* daemon.power(id, "stop", 30)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.deepStrictEqual(statuses(id), ["offline", "starting", "running", "stopping", "offline"])
    }).pipe(Effect.scoped)
  )

  it.live("a server without an online signal is running once its process exists", () =>
    Effect.gen(function* () {
      const { daemon, running, statuses, lastStatus } = yield* harness()
      const id = yield* running({
        definition: {
          process: { invocation: "sleep 300", stop_command: "^C", start_timeout: 5, clean_exit: "crash" }
        }
      })
      yield* daemon.power(id, "stop", 30)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.deepStrictEqual(statuses(id), ["offline", "starting", "running", "stopping", "offline"])
    }).pipe(Effect.scoped)
  )

  it.live("a restart reports offline as transient", () =>
    Effect.gen(function* () {
      const { daemon, notes, running, statuses } = yield* harness()
      const id = yield* running()
      yield* daemon.power(id, "restart", 30)
      yield* until("running again", () => statuses(id).length === 7)
      assert.deepStrictEqual(statuses(id).slice(3), ["stopping", "offline", "starting", "running"])
      const offlineReports = notes.reports.filter(
        (report) => report.type === "status" && report.status === "offline"
      )
      assert.deepStrictEqual(
        offlineReports.map((report) => report.type === "status" && report.transient),
        [true, true]
      )
    }).pipe(Effect.scoped)
  )

  it.live("pause freezes every process, unpause continues them, and stop works while paused", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, lastStatus, running, statuses } = yield* harness()
      const id = yield* running()
      const { pid } = JSON.parse(readFileSync(join(dataDir, "servers", id, "run.json"), "utf8"))
      // Selects the server's own process; the shim above it waits.
      const state = () => readProcs().find(({ ppid }) => ppid === pid)?.state
      yield* daemon.power(id, "pause", 30)
      yield* daemon.power(id, "pause", 30)
      yield* until("stopped by signal", () => state() === "T")
      assert.strictEqual(yield* daemon.status(id), "paused")
      yield* daemon.power(id, "unpause", 30)
      yield* until("unpaused", () => state() === "S")
      yield* daemon.power(id, "pause", 30)
      yield* daemon.power(id, "stop", 30)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.deepStrictEqual(statuses(id).slice(3), [
        "paused",
        "running",
        "paused",
        "running",
        "stopping",
        "offline"
      ])
    }).pipe(Effect.scoped)
  )

  it.live("an action whose target status is already reached succeeds without effect", () =>
    Effect.gen(function* () {
      const { daemon, installed, lastStatus, statuses } = yield* harness()
      const id = yield* installed()
      for (const action of ["stop", "kill", "stop"] as const) yield* daemon.power(id, action, 30)
      yield* daemon.power(id, "start", 30)
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
      yield* daemon.power(id, "start", 30)
      yield* daemon.power(id, "unpause", 30)
      assert.deepStrictEqual(statuses(id), ["offline", "starting", "running"])
    }).pipe(Effect.scoped)
  )

  it.live("an action in the wrong status is 409; one for an unknown server is 404", () =>
    Effect.gen(function* () {
      const { create, daemon, lastInstall, installed } = yield* harness()
      const failed = yield* create({ install: { script: "exit 3" }, definition: { software: "broken" } })
      yield* until("failed", () => lastInstall(failed)?.phase === "failed")
      const slow = yield* create({ install: { script: "sleep 60" }, definition: { software: "slow" } })
      const idle = yield* installed()
      const of = (call: Effect.Effect<unknown, DaemonError>) => Effect.map(Effect.flip(call), refusal)
      assert.deepStrictEqual(yield* of(daemon.power(failed, "start", 1)), {
        status: 409,
        detail: "the installation failed: install script exited with 3 (node test-node)"
      })
      yield* daemon.power(slow, "restart", 1)
      assert.deepStrictEqual(yield* of(daemon.reinstall(slow)), {
        status: 409,
        detail: "the server is being installed"
      })
      assert.deepStrictEqual(yield* of(daemon.power(idle, "pause", 1)), {
        status: 409,
        detail: "the server is offline"
      })
      assert.deepStrictEqual(yield* of(daemon.commands(idle, ["x"])), {
        status: 409,
        detail: "the server is not running"
      })
      const unknown = newId()
      assert.deepStrictEqual(yield* of(daemon.power(unknown, "start", 1)), {
        status: 404,
        detail: `server not found: ${unknown}`
      })
      yield* daemon.remove(unknown)
    }).pipe(Effect.scoped)
  )

  it.live("a command with blanks around the stop command is a stop", () =>
    Effect.gen(function* () {
      const { crashes, daemon, lastStatus, running, statuses } = yield* harness()
      const invocation = `sh -c 'echo ready; while read x y; do [ "$x" = stop ] && exit 0; done'`
      const id = yield* running({ process: { invocation, stop_command: "stop" } })
      yield* daemon.commands(id, [" stop "])
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.deepStrictEqual(statuses(id).slice(-2), ["stopping", "offline"])
      assert.deepStrictEqual(crashes(id), [])
    }).pipe(Effect.scoped)
  )

  it.live("an ignored stop becomes a kill of every process of the server", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, crashes, lastStatus, running } = yield* harness()
      const pids = join(dataDir, "pids")
      const id = yield* running({
        process: {
          invocation: `sh -c 'trap "" TERM; setsid sleep 300 & echo $! > ${pids}; echo ready; while :; do sleep 1; done'`,
          stop_command: "^SIGTERM"
        }
      })
      yield* daemon.power(id, "stop", 0)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.isFalse(alive(pidIn(pids)))
      assert.deepStrictEqual(crashes(id), [])
    }).pipe(Effect.scoped)
  )

  it.live("children outside the process group have ended before offline is reported", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, lastStatus, running } = yield* harness()
      const pids = join(dataDir, "pids")
      const id = yield* running({ process: { invocation: withStray(pids) } })
      const strays = () => [pids, `${pids}.2`].map(pidIn)
      yield* until("strays run", () => strays().every((pid) => pid > 0 && alive(pid)))
      const [first, second] = strays()
      yield* daemon.power(id, "stop", 30)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.isFalse(alive(first ?? 0) || alive(second ?? 0))
    }).pipe(Effect.scoped)
  )

  it.live("a kill is no crash", () =>
    Effect.gen(function* () {
      const { daemon, crashes, lastStatus, running, statuses } = yield* harness()
      const id = yield* running()
      yield* daemon.power(id, "kill", 30)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.deepStrictEqual(statuses(id), ["offline", "starting", "running", "offline"])
      assert.deepStrictEqual(crashes(id), [])
    }).pipe(Effect.scoped)
  )

  it.live("a config file that cannot be patched refuses the start; the error names file and reason", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed, statuses } = yield* harness()
      const id = yield* installed({
        definition: {
          configs: { "a.json": { parser: "json", find: { "server.port": "{{server.build.default.port}}" } } }
        }
      })
      const file = join(dataDir, "servers", id, "files", "a.json")
      writeFileSync(file, "{ not json")
      const error = yield* Effect.flip(daemon.power(id, "start", 30))
      assert.strictEqual(error._tag === "DaemonRefused" && error.status, 422)
      assert.include(error._tag === "DaemonRefused" ? error.detail : "", "cannot patch a.json")
      assert.deepStrictEqual(statuses(id), ["offline"])
      writeFileSync(file, "{}")
      yield* daemon.power(id, "start", 30)
      assert.deepStrictEqual(JSON.parse(readFileSync(file, "utf8")), { server: { port: 25565 } })
    }).pipe(Effect.scoped)
  )

  it.live("a start that fails on its files again is refused for some seconds, with the reason", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed } = yield* harness()
      const id = yield* installed({
        definition: { configs: { "a.json": { parser: "json", find: { port: 1 } } } }
      })
      const file = join(dataDir, "servers", id, "files", "a.json")
      writeFileSync(file, "{ not json")
      yield* Effect.flip(daemon.power(id, "start", 30))
      yield* Effect.flip(daemon.power(id, "start", 30))
      writeFileSync(file, "{}")
      const error = yield* Effect.flip(daemon.power(id, "start", 30))
      assert.include(error._tag === "DaemonRefused" ? error.detail : "", "cannot patch a.json")
      assert.match(error._tag === "DaemonRefused" ? error.hint : "", /read again in [12] s\.$/)
    }).pipe(Effect.scoped)
  )

  it.live("a placeholder's value never adds words to the command line", () =>
    Effect.gen(function* () {
      const { daemon, lastStatus, running } = yield* harness()
      const id = yield* running({
        process: { invocation: 'printf "%s\\n" ready {{env.EVIL}}', clean_exit: "stop" },
        definition: { env: { EVIL: "a b'; touch /tmp/owned; $(id) `id` \"" } }
      })
      yield* until("ended", () => lastStatus(id) === "offline")
      const page = yield* daemon.logs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(page.items, [
        "ready",
        "a b'; touch /tmp/owned; $(id) `id` \"",
        "[ended: exit code 0]"
      ])
    }).pipe(Effect.scoped)
  )

  it.live("servers get no secret of the service", () =>
    Effect.gen(function* () {
      const { daemon, lastStatus, running } = yield* harness({
        environment: {
          PATH: process.env.PATH,
          APP_ADMIN_API_KEY: "s3cret",
          MUSTER_DATABASE_URL: "s3cret",
          JAVA_HOME: "/j",
          OTHER: "o"
        },
        passEnv: ["JAVA_*", "MUSTER_DATABASE_URL", "APP_ADMIN_API_KEY"]
      })
      const id = yield* running({ process: { invocation: "sh -c 'echo ready; env'", clean_exit: "stop" } })
      yield* until("ended", () => lastStatus(id) === "offline")
      const { items } = yield* daemon.logs(id, { page: 1, per_page: 100 })
      assert.notInclude(items.join("\n"), "s3cret")
      assert.include(items, "JAVA_HOME=/j")
      assert.include(items, "SERVER_PORT=25565")
      assert.isFalse(items.some((line) => line.startsWith("OTHER=")))
    }).pipe(Effect.scoped)
  )

  it.live("a caller of an idle server gets a refusal once the service has stopped", () =>
    Effect.gen(function* () {
      const { close, daemon, installed } = yield* harness()
      const id = yield* installed()
      yield* close
      const refused = yield* daemon.power(id, "start", 30).pipe(Effect.flip, Effect.timeout("2 seconds"))
      assert.deepStrictEqual(refusal(refused), { status: 404, detail: `server not found: ${id}` })
    }).pipe(Effect.scoped)
  )

  it.live("a report is sent again after a defect of the control plane", () =>
    Effect.gen(function* () {
      const { daemon, lastStatus, notes, running } = yield* harness()
      const id = yield* running()
      const { reports } = notes
      let calls = 0
      reports.some = (isSame) => {
        calls += 1
        if (calls === 2) throw new Error("a defect")
        return reports.filter(isSame).length > 0
      }
      yield* daemon.power(id, "stop", 30)
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.isAtLeast(calls, 3)
    }).pipe(Effect.scoped)
  )
})
