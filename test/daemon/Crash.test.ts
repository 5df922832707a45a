import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { until } from "../support/eventually.ts"
import { harness, loggedTo } from "./support.ts"

/** Runs until a line of its input ends it: `exit N` or `signal NAME`. */
const endsOnCommand = `sh -c 'echo ready; while read -r how what; do case $how in exit) exit $what;; signal) kill -$what $$;; esac; done'`

describe("decisions 3, crash", () => {
  it.live("an end that nothing asked for is reported as a crash, then offline", () =>
    Effect.gen(function* () {
      const { crashes, daemon, lastStatus, notes, running } = yield* harness()
      const ends = [
        ["exit 1", "exit code 1", 1],
        ["exit 0", "exit code 0", 0],
        ["signal KILL", "signal: killed", 137],
        ["signal TERM", "signal: terminated", 143],
        ["signal SEGV", "signal: segmentation fault", 139]
      ] as const
      for (const [how, reason, exit_code] of ends) {
        const id = yield* running({ process: { invocation: endsOnCommand } })
        yield* daemon.commands(id, [how])
        yield* until("offline", () => lastStatus(id) === "offline")
        const [crash, ...more] = crashes(id)
        assert.deepStrictEqual([crash?.reason, crash?.exit_code, more.length], [reason, exit_code, 0])
        assert.match(crash?.timestamp ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
        const order = notes.reports.filter((report) => report.server_id === id).slice(-2)
        assert.deepStrictEqual(
          order.map((report) => report.type),
          ["crash", "status"]
        )
      }
    }).pipe(Effect.scoped)
  )

  it.live("with `clean_exit: stop` exit 0 while running is a stop; while starting it is a crash", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed, lastStatus, running } = yield* harness()
      const clean = yield* running({ process: { invocation: endsOnCommand, clean_exit: "stop" } })
      yield* daemon.commands(clean, ["exit 0"])
      yield* until("offline", () => lastStatus(clean) === "offline")
      assert.deepStrictEqual(crashes(clean), [])
      const early = yield* installed({ process: { invocation: "true", clean_exit: "stop" } })
      yield* daemon.power(early, "start", 30)
      yield* until("crash", () => crashes(early).length === 1)
      assert.deepInclude(crashes(early)[0], { reason: "exit code 0", exit_code: 0 })
    }).pipe(Effect.scoped)
  )

  it.live("a process that ends right after its online signal is reported as running first", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed, lastStatus, statuses } = yield* harness()
      const id = yield* installed({ process: { invocation: "echo ready", clean_exit: "stop" } })
      yield* daemon.power(id, "start", 30)
      yield* until("offline", () => lastStatus(id) === "offline" && statuses(id).length > 1)
      assert.deepStrictEqual(statuses(id), ["offline", "starting", "running", "offline"])
      assert.deepStrictEqual(crashes(id), [])
    }).pipe(Effect.scoped)
  )

  it.live("no online signal in time is the crash `start timed out`", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed, statuses } = yield* harness()
      const id = yield* installed({ process: { invocation: "sleep 300", start_timeout: 0.2 } })
      yield* daemon.power(id, "start", 30)
      yield* until("crash", () => statuses(id).length === 3)
      assert.deepStrictEqual(statuses(id), ["offline", "starting", "offline"])
      assert.deepInclude(crashes(id)[0], { reason: "start timed out", exit_code: 137 })
    }).pipe(Effect.scoped)
  )

  it.live("a missing program is a crash; the shell's error is in the log", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed } = yield* harness()
      const id = yield* installed({ process: { invocation: "no-such-program --x" } })
      yield* daemon.power(id, "start", 30)
      yield* until("crash", () => crashes(id).length === 1)
      assert.deepInclude(crashes(id)[0], { reason: "exit code 127", exit_code: 127 })
      const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
      assert.include(items.join("\n"), "no-such-program")
    }).pipe(Effect.scoped)
  )

  it.live("a crashed server is restarted as often as its restart rule allows", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed, notes, statuses } = yield* harness()
      const log: Array<string> = []
      const spec = {
        process: { invocation: "sh -c 'echo ready; exit 7'" },
        definition: { restart: { on_crash: true, max_per_hour: 2 } }
      }
      const id = yield* loggedTo(log)(installed(spec))
      const seen: Array<string> = []
      yield* Effect.forkScoped(
        Stream.runForEach(yield* daemon.console(id), (line) => Effect.sync(() => seen.push(line)))
      )
      yield* daemon.power(id, "start", 30)
      yield* until("three crashes", () => crashes(id).length === 3 && statuses(id).at(-1) === "offline")
      const cycle = ["starting", "running", "offline"]
      assert.deepStrictEqual(statuses(id), ["offline", ...cycle, ...cycle, ...cycle])
      const offline = notes.reports.filter(
        (report) => report.type === "status" && report.status === "offline"
      )
      assert.deepStrictEqual(
        offline.map((report) => report.type === "status" && report.transient),
        [true, true, true, false]
      )
      const why =
        "not started again: it crashed (exit code 7) after 2 restarts within the hour, and restart.max_per_hour is 2"
      const line = `[${why}. Correct the cause, then start it]`
      yield* until("the console has the line", () => seen.includes(line))
      const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, ["ready", "ready", "ready", line])
      assert.include(log, `Warn the server is ${why} server_id=${id}`)
    }).pipe(Effect.scoped)
  )
})
