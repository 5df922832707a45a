import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { PowerAction } from "../../../src/contract/domain/NodeMessages.ts"
import { byTurn, type RunRule } from "../../../src/contract/domain/RunRule.ts"
import type { ServerStatus } from "../../../src/contract/domain/ServerStatus.ts"
import { powerDecision } from "../../../src/daemon/instances/powerDecision.ts"
import { endLine, processEnded } from "../../../src/daemon/instances/processEnded.ts"
import { stopMethod } from "../../../src/daemon/runtime/exitReason.ts"
import {
  type InstanceState,
  newInstanceState,
  pendingRestart
} from "../../../src/daemon/state/InstanceState.ts"
import { specOf } from "../support.ts"

const state = (more: Partial<InstanceState>): InstanceState => ({
  ...newInstanceState(specOf()),
  work: "none",
  install: { phase: "ready" },
  ...more
})
const run = { token: "t", started_at: 0, log_offset: 0, timed_out: false }

describe("spec 3.5: end of a process", () => {
  it("an end by the OOM killer has its own reason", () => {
    const after = processEnded(state({ status: "running", run }), { code: 137, out_of_memory: true }, 0)
    const crash = after.reports.find((report) => report.type === "crash")
    assert.deepStrictEqual(crash?.type === "crash" && crash.crash, {
      reason: "out of memory",
      exit_code: 137,
      timestamp: "1970-01-01T00:00:00.000Z"
    })
  })

  it("the console says how a server ended", () => {
    const line = (more: Partial<InstanceState>, code: number, stopTimedOut = false, silent = false) =>
      endLine(
        state({ status: "running", run, ...more }),
        { code, out_of_memory: false },
        { stopTimedOut, silent }
      )
    const intent = (type: "stop" | "kill" | "restart") => ({ type, deadline: 31_000, asked_at: 1000 })
    assert.strictEqual(line({}, 1), "ended: exit code 1")
    assert.strictEqual(line({}, 139), "ended: signal: segmentation fault")
    assert.strictEqual(
      endLine(
        state({ status: "running", run }),
        { code: 137, out_of_memory: true },
        { stopTimedOut: false, silent: false }
      ),
      "ended: out of memory"
    )
    assert.strictEqual(line({ intent: intent("stop") }, 0), "stopped as requested: exit code 0")
    assert.strictEqual(line({ intent: intent("restart") }, 143), "stopped as requested: signal: terminated")
    assert.strictEqual(line({ intent: intent("stop") }, 137, true), "killed after 30 s: it had not stopped")
    assert.strictEqual(line({ intent: intent("kill") }, 137), "killed as requested")
    const late = { ...run, timed_out: true }
    assert.strictEqual(line({ run: late }, 137), "ended: start timed out after 20 s")
    assert.include(line({ run: late }, 137, false, true) ?? "", "terminal: true")
    const never = { code: 127, out_of_memory: false, never_began: true } as const
    assert.isUndefined(
      endLine(state({ status: "starting", run }), never, { stopTimedOut: false, silent: false })
    )
  })

  it("restarts within the hour are counted, older ones are not", () => {
    const spec = specOf({ definition: { restart: { on_crash: true, max_per_hour: 2 } } })
    const ended = (restarts: ReadonlyArray<number>) =>
      processEnded(
        state({ spec, status: "running", run, restarts }),
        { code: 1, out_of_memory: false },
        4_000_000
      )
    assert.isTrue(ended([1, 2, 3_900_000]).start_again)
    assert.isFalse(ended([3_800_000, 3_900_000]).start_again)
    // The clock was set back by hours in between.
    assert.isTrue(ended([3_900_000, 11_000_000, 11_100_000]).start_again)
    const ephemeral = specOf({ definition: { restart: { on_crash: true, max_per_hour: 2 }, save: false } })
    const gone = processEnded(
      state({ spec: ephemeral, status: "running", run }),
      { code: 1, out_of_memory: false },
      0
    )
    assert.isFalse(gone.start_again)
  })

  it("the delay of a restart doubles with each crash, up to max_delay, until the server was up for reset_after", () => {
    const restart = { on_crash: true, delay: 5, max_delay: 30, max_per_hour: 100, reset_after: 600 }
    const spec = specOf({ definition: { restart } })
    const crashed = (attempt: number, seconds: number) =>
      processEnded(
        state({ spec, status: "running", run, backoff: { attempt } }),
        { code: 1, out_of_memory: false },
        seconds * 1000
      ).backoff
    assert.deepStrictEqual(crashed(0, 10), { attempt: 1, next_at: 15_000 })
    assert.deepStrictEqual(crashed(1, 10), { attempt: 2, next_at: 20_000 })
    assert.deepStrictEqual(crashed(2, 10), { attempt: 3, next_at: 30_000 })
    assert.deepStrictEqual(crashed(3, 10), { attempt: 4, next_at: 40_000 })
    assert.deepStrictEqual(crashed(2000, 10), { attempt: 2001, next_at: 40_000 })
    assert.deepStrictEqual(crashed(4, 599), { attempt: 5, next_at: 629_000 })
    assert.deepStrictEqual(crashed(4, 600), { attempt: 1, next_at: 605_000 })
  })

  it("definitions without a delay have the default one", () => {
    const spec = specOf({ definition: { restart: { on_crash: true, max_per_hour: 1 } } })
    const after = processEnded(
      state({ spec, status: "running", run }),
      { code: 1, out_of_memory: false },
      1000
    )
    assert.strictEqual(pendingRestart(after), 6000)
    assert.deepInclude(after.reports.at(-1), {
      transient: true,
      restart: { attempt: 1, next_at: "1970-01-01T00:00:06.000Z" }
    })
  })

  it("a stop cancels a pending restart, a start replaces it", () => {
    const waiting = state({ status: "offline", start_again: true, backoff: { attempt: 1, next_at: 5 } })
    assert.deepStrictEqual(powerDecision(waiting, "stop"), { do: "cancel" })
    assert.deepStrictEqual(powerDecision(waiting, "kill"), { do: "cancel" })
    assert.deepStrictEqual(powerDecision(waiting, "start"), { do: "start" })
  })

  it("a used-up restart limit is reported only for a crash after restarts", () => {
    const definition = { restart: { on_crash: true, max_per_hour: 1 } }
    const up = { status: "running", run, restarts: [5] } as const
    const exit = { code: 0, out_of_memory: false }
    const why = (more: Partial<InstanceState> = {}, given: Parameters<typeof specOf>[0] = { definition }) =>
      processEnded(state({ spec: specOf(given), ...up, ...more }), exit, 10).backoff?.given_up
    assert.strictEqual(
      why(),
      "it crashed (exit code 0) after 1 restart within the hour, and restart.max_per_hour is 1"
    )
    assert.isUndefined(why({ restarts: [] }))
    assert.isUndefined(why({ intent: { type: "kill", deadline: 0 } }))
    assert.isUndefined(why({}, { definition, process: { clean_exit: "stop" } }))
    assert.isUndefined(why({}, { definition: { ...definition, save: false } }))
    assert.isUndefined(why({}, {}))
  })

  it("every end is offline, with at most one crash and growing sequence numbers", () => {
    const intents = fc.option(fc.constantFrom("stop", "kill", "restart", "reset"), { nil: null })
    fc.assert(
      fc.property(
        fc.constantFrom("starting", "running", "stopping", "paused"),
        intents,
        fc.nat(255),
        fc.boolean(),
        (status, type, code, timed_out) => {
          const intent = type === null ? null : { type, deadline: 0 }
          const before = state({ status, intent, run: { ...run, timed_out }, sequence: 7 })
          const after = processEnded(before, { code, out_of_memory: false }, 0)
          assert.deepInclude(after, { status: "offline", intent: null, run: null })
          assert.deepStrictEqual(
            after.reports.map((report) => report.sequence),
            after.reports.map((_, index) => 8 + index)
          )
          const crashed = after.reports.some((report) => report.type === "crash")
          assert.strictEqual(crashed, intent === null && status !== "stopping")
        }
      )
    )
  })
})

describe("spec 3.9: power", () => {
  it("actions follow the table: an action without effect does nothing, an invalid one is refused", () => {
    const row = (status: ServerStatus) =>
      PowerAction.literals.map((action) => {
        const decision = powerDecision(state({ status }), action)
        return decision.do === "end" ? decision.as : decision.do
      })
    // start, stop, restart, kill, pause, unpause
    assert.deepStrictEqual(row("offline"), ["start", "nothing", "start", "nothing", "refuse", "refuse"])
    assert.deepStrictEqual(row("installing"), ["refuse", "nothing", "refuse", "nothing", "refuse", "refuse"])
    assert.deepStrictEqual(row("starting"), ["nothing", "stop", "restart", "kill", "refuse", "refuse"])
    assert.deepStrictEqual(row("running"), ["nothing", "stop", "restart", "kill", "pause", "nothing"])
    assert.deepStrictEqual(row("stopping"), ["refuse", "stop", "restart", "kill", "refuse", "refuse"])
    assert.deepStrictEqual(row("paused"), ["unpause", "stop", "restart", "kill", "nothing", "unpause"])
  })

  it("a restart that is underway takes another restart; one that is stopped refuses", () => {
    const stopping = (type: "stop" | "kill" | "restart") =>
      powerDecision(
        state({ status: "stopping", intent: { type, deadline: 31_000, asked_at: 1000 } }),
        "restart"
      )
    assert.deepStrictEqual(stopping("restart"), { do: "end", as: "restart" })
    assert.deepInclude(stopping("stop"), { do: "refuse", detail: "the server is stopping" })
    assert.deepInclude(stopping("kill"), { do: "refuse", detail: "the server is stopping" })
  })

  it("a server starts after a reset, and not after a failed installation", () => {
    const resetting = state({ status: "stopping", intent: { type: "reset", deadline: 31_000 } })
    assert.deepStrictEqual(powerDecision(resetting, "start"), { do: "defer" })
    assert.deepStrictEqual(powerDecision(state({ status: "installing", work: "reset" }), "start"), {
      do: "defer"
    })
    const failed = state({ status: "offline", install: { phase: "failed", failure_reason: "disk full" } })
    assert.deepInclude(powerDecision(failed, "start"), { detail: "the installation failed: disk full" })
  })

  it("a stop command is a line or a signal", () => {
    assert.deepStrictEqual(stopMethod("stop"), { line: "stop" })
    assert.deepStrictEqual(stopMethod("^C"), { signal: "SIGINT" })
    assert.deepStrictEqual(stopMethod("^sigterm"), { signal: "SIGTERM" })
    assert.deepStrictEqual(stopMethod("^quit"), { signal: "SIGQUIT" })
    assert.deepStrictEqual(stopMethod(""), { signal: "SIGTERM" })
  })
})

describe("Operations, restart a node or its machine: the rule", () => {
  const rules = fc.constantFrom("unless_stopped" as const, "always" as const, "manual" as const)
  const ended = { code: 137, out_of_memory: false, with_host: true } as const
  const ofRule = (rule: RunRule, save: boolean, more: Partial<InstanceState>) =>
    state({ spec: specOf({ definition: { run: rule, save } }), run, ...more })

  it("a saved server that was up waits for its turn, unless its rule is `manual` or a caller has stopped it", () =>
    fc.assert(
      fc.property(
        rules,
        fc.boolean(),
        fc.constantFrom("starting" as const, "running" as const, "paused" as const),
        fc.constantFrom(null, "stop" as const, "kill" as const, "shutdown" as const),
        (rule, save, status, request) => {
          const intent = request === null ? null : { type: request, deadline: 1 }
          const after = processEnded(ofRule(rule, save, { status, intent }), ended, 0)
          const isStopped = request === "stop" || request === "kill"
          assert.strictEqual(after.waiting === true, save && rule !== "manual" && !isStopped)
          assert.isFalse(after.start_again)
          assert.strictEqual(after.status, "offline")
          assert.isFalse(after.reports.some(({ type }) => type === "crash"))
        }
      )
    ))

  it("a crash while the daemon was away follows the rule of restarts first; a crash loop stays given up", () => {
    const crash = (restarts: ReadonlyArray<number>, on_crash: boolean) => {
      const spec = specOf({ definition: { restart: { on_crash, max_per_hour: 1 } } })
      const before = state({ spec, run, status: "running", restarts })
      return processEnded(before, { code: 1, out_of_memory: false }, 1000, { away: true })
    }
    assert.deepInclude(crash([], true), { start_again: true })
    assert.isUndefined(crash([], true).waiting)
    assert.isUndefined(crash([500], true).waiting)
    assert.isDefined(crash([500], true).backoff?.given_up)
    assert.isTrue(crash([500], false).waiting)
  })

  it("a shutdown never turns a stop by a caller into a start", () =>
    fc.assert(
      fc.property(fc.constantFrom("stop" as const, "kill" as const), (type) => {
        const stopping = state({ status: "stopping", run, intent: { type, deadline: 1 } })
        assert.deepStrictEqual(powerDecision(stopping, "shutdown"), { do: "nothing" })
      })
    ))

  it("a stop cancels the start that a server waits for", () => {
    assert.deepStrictEqual(powerDecision(state({ status: "offline", waiting: true }), "stop"), {
      do: "cancel"
    })
  })

  it("the order is total: by priority, then by age, then by id", () => {
    const queued = fc.record({
      id: fc.constantFrom("a", "b", "c"),
      created_at: fc.constantFrom("2026-01-01", "2026-01-02"),
      definition: fc.record({ save: fc.constant(true), priority: fc.constantFrom(0, 50, 100) })
    })
    fc.assert(
      fc.property(queued, queued, queued, (one, two, three) => {
        const sorted = [one, two, three].sort(byTurn)
        const keys = sorted.map(({ created_at, definition, id }) => [
          100 - definition.priority,
          created_at,
          id
        ])
        assert.deepStrictEqual(
          keys.map(([priority]) => priority),
          keys.map(([priority]) => Number(priority)).toSorted((a, b) => a - b)
        )
        for (const [at, key] of keys.entries()) {
          const next = keys[at + 1]
          if (next !== undefined && key[0] === next[0])
            assert.isTrue(`${key[1]} ${key[2]}` <= `${next[1]} ${next[2]}`)
        }
      })
    )
  })
})
