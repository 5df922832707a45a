import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { until } from "../support/eventually.ts"
import { harness, type SpecOptions } from "./support.ts"

/** Runs until a line of its input ends it: `exit N` or `signal NAME`. */
const endsOnCommand = `sh -c 'echo ready; while read -r how what; do case $how in exit) exit $what;; signal) kill -$what $$;; esac; done'`

describe("spec 3.18: crash", () => {
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

  it.live("a program that is not in PATH is refused with the PATH that was searched, and is no crash", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed, statuses } = yield* harness()
      const refused = Effect.fnUntraced(function* (options: SpecOptions) {
        const id = yield* installed(options)
        const error = yield* Effect.flip(daemon.power(id, "start", 30))
        if (error._tag !== "DaemonRefused") return assert.fail(error._tag)
        assert.strictEqual(error.status, 422)
        yield* until("its reports", () => statuses(id).length === 3)
        assert.deepStrictEqual(statuses(id), ["offline", "starting", "offline"])
        assert.deepStrictEqual(crashes(id), [])
        const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
        assert.deepStrictEqual(items, [`[cannot be started: ${error.detail}. ${error.hint}]`])
        return error.detail
      })
      const inherited = yield* refused({ process: { invocation: "no-such-program --x" } })
      assert.match(inherited, /^the program no-such-program is not in PATH \(\/.*\/bin.*\)$/)
      const own = yield* refused({
        process: { invocation: "cat x" },
        definition: { env: { PATH: "/nowhere:/it's" } }
      })
      assert.strictEqual(own, "the program cat is not in PATH (/nowhere:/it's)")
      const file = yield* refused({ process: { invocation: "./no-file" } })
      assert.strictEqual(file, "there is no program ./no-file")
    }).pipe(Effect.scoped)
  )

  it.live("a start that times out without output names `terminal: true` in console and log", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const { daemon, installed, lastStatus, notes } = yield* harness({}, undefined, log)
      const run = Effect.fnUntraced(function* (invocation: string) {
        const id = yield* installed({ process: { invocation, start_timeout: 0.5 } })
        yield* daemon.power(id, "start", 30)
        yield* until("its crash", () =>
          notes.reports.some(({ server_id, type }) => server_id === id && type === "crash")
        )
        yield* until("offline", () => lastStatus(id) === "offline")
        return (yield* daemon.logs(id, { page: 1, per_page: 10 })).items
      })
      const late = "ended: start timed out after 0.5 s"
      const line = `${late}: it printed nothing; a program may hold back its output while that is no terminal: set \`terminal: true\` in the software`
      assert.deepStrictEqual(yield* run("sleep 300"), [`[${line}]`])
      assert.isTrue(log.some((entry) => entry.includes(line)))
      assert.deepStrictEqual(yield* run("sh -c 'echo loading; exec sleep 300'"), ["loading", `[${late}]`])
    }).pipe(Effect.scoped)
  )

  it.live("a crashed server is restarted as often as its restart rule allows", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const { crashes, daemon, installed, notes, statuses } = yield* harness({}, undefined, log)
      const spec = {
        process: { invocation: "sh -c 'echo ready; exit 7'" },
        definition: { restart: { on_crash: true, delay: 0, max_per_hour: 2 } }
      }
      const id = yield* installed(spec)
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
      const cycles = Array.from({ length: 3 }, () => ["ready", "[ended: exit code 7]"]).flat()
      assert.deepStrictEqual(items, [...cycles, line])
      assert.include(log, `Warn the server is ${why} server_id=${id}`)
    }).pipe(Effect.scoped)
  )
})
