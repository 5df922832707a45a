import { describe, expect, it } from "@effect/vitest"
import { revisionOf } from "../../../../src/contract/domain/compareDefinitions.ts"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import type { RolloutCounts, RolloutRecord, RolloutServer } from "../../../../src/contract/domain/Rollout.ts"
import type { ServerRecord } from "../../../../src/contract/domain/Server.ts"
import {
  advance,
  type Facts,
  isApplied,
  onFailure,
  serverStep
} from "../../../../src/controlPlane/servers/rollouts/rolloutRules.ts"
import { definition, record } from "../../../support/samples.ts"

const NOW = Date.parse("2026-01-01T00:00:00.000Z")
const at = new Date(NOW).toISOString()

const rollout = (
  change: Partial<RolloutRecord> = {},
  settings: Partial<RolloutRecord["settings"]> = {}
): RolloutRecord => ({
  id: "r1",
  state: "running",
  settings: { max_parallel: 2, restart: "now", on_failure: "pause", ...settings },
  total: 10,
  done: 0,
  rolled_back: 0,
  canary_left: 0,
  rolling_back: false,
  reason: null,
  created_at: at,
  finished_at: null,
  created_by: null,
  origin: { selector: { blueprint_id: "kept" }, revisions: [] },
  ...change
})

const counts = (change: Partial<RolloutCounts>): RolloutCounts => ({
  queued: 0,
  changing: 0,
  waiting: 0,
  done: 0,
  failed: 0,
  ...change
})

const before = definition()
const after = definition({ version: "1.21.12" })
const server = (change: Partial<RolloutServer> = {}): RolloutServer => ({
  rollout_id: "r1",
  server_id: ServerId.make("a"),
  position: 0,
  phase: "changing",
  attempt: 0,
  target: revisionOf(after),
  earlier: revisionOf(before),
  was_up: true,
  stopped: false,
  notified_at: null,
  restarted_at: null,
  crash_before: null,
  reason: null,
  ...change
})

/** A server whose node has the new definition; `used`: process and files have the earlier one. */
const defined = (change: Partial<ServerRecord>, used = false): ServerRecord => ({
  ...record(),
  definition: after,
  redefinition: { defined_at: NOW, delivered: true, ...(used ? { used: before } : {}) },
  ...change
})

const facts = (record: ServerRecord | undefined, change: Partial<Facts> = {}): Facts => ({
  record,
  revision: record === undefined ? undefined : revisionOf(record.definition),
  crash: undefined,
  isMigrating: false,
  away: undefined,
  isTooLong: false,
  now: NOW,
  ...change
})

const crash = {
  id: "c2",
  server_id: "a",
  blueprint_id: "survival",
  node_id: "n1",
  version: "1.21.12",
  reason: "exit code 1",
  exit_code: 1,
  out_of_memory: false,
  started_at: null,
  crashed_at: at,
  uptime_seconds: null,
  restart: null
}

const step = (one: ServerRecord | undefined, of: Partial<RolloutServer> = {}, more: Partial<Facts> = {}) => {
  const next = serverStep(rollout(), server(of), facts(one, more))
  return next.do === "fail" ? `fail: ${next.reason}` : next.do
}
const stepWhenStopped = (one: ServerRecord) =>
  serverStep(rollout({}, { restart: "when_stopped" }), server(), facts(one)).do

describe("spec 3.13: the next servers", () => {
  it("at most max_parallel servers are under way; one that waits for its next start does not count", () => {
    expect(advance(rollout(), counts({ queued: 8, changing: 1, waiting: 5 }), at).begins).toBe(1)
    expect(advance(rollout(), counts({ queued: 8, changing: 2 }), at).begins).toBe(0)
    expect(advance(rollout(), counts({ queued: 1 }), at).begins).toBe(1)
  })

  it("a rollout is done once no server is left, and failed if one has failed", () => {
    expect(advance(rollout(), counts({ changing: 1 }), at).rollout.state).toBe("running")
    expect(advance(rollout(), counts({ waiting: 1 }), at).rollout.state).toBe("running")
    expect(advance(rollout(), counts({ done: 3 }), at).rollout).toMatchObject({
      state: "done",
      finished_at: at
    })
    expect(advance(rollout(), counts({ done: 3, failed: 1 }), at).rollout.state).toBe("failed")
    const back = rollout({ rolling_back: true })
    expect(advance(back, counts({ done: 3 }), at).rollout.state).toBe("rolled_back")
    expect(advance(back, counts({ done: 3, failed: 1 }), at).rollout.state).toBe("failed")
  })

  it("with canary, the rollout pauses after n servers", () => {
    const planned = rollout({ state: "planned", canary_left: 3 }, { canary: 3 })
    const first = advance(planned, counts({ queued: 8 }), at)
    expect(first).toMatchObject({ begins: 2, rollout: { state: "canary", canary_left: 1 } })
    const second = advance(first.rollout, counts({ queued: 6, changing: 1, done: 1 }), at)
    expect(second).toMatchObject({ begins: 1, rollout: { state: "canary", canary_left: 0 } })
    const third = advance(second.rollout, counts({ queued: 5, changing: 1, done: 2 }), at)
    expect(third).toEqual({ begins: 0, rollout: second.rollout })
    expect(advance(third.rollout, counts({ queued: 5, done: 3 }), at)).toMatchObject({
      begins: 0,
      rollout: { state: "paused", reason: "the canary is done: resume the rollout to continue" }
    })
  })

  it("a rollout that is paused or over begins nothing", () => {
    for (const state of ["paused", "done", "aborted"] as const) {
      const one = rollout({ state })
      expect(advance(one, counts({ queued: 8 }), at)).toEqual({ rollout: one, begins: 0 })
    }
  })

  it("a failure pauses the rollout, turns it back, or changes nothing", () => {
    const failed = { server_id: ServerId.make("a"), reason: "crashed: exit code 1" }
    const reason = "server a failed: crashed: exit code 1"
    expect(onFailure(rollout(), failed)).toMatchObject({ state: "paused", reason })
    const continues = rollout({}, { on_failure: "continue" })
    expect(onFailure(continues, failed)).toBe(continues)
    const back = onFailure(rollout({ state: "canary" }, { on_failure: "rollback" }), failed)
    expect(back).toMatchObject({ state: "running", rolling_back: true, reason })
    expect(onFailure(back, failed)).toBe(back)
  })
})

describe("spec 3.13: the steps of a server", () => {
  it("a server that is up gets the definition, is restarted, and is done once it runs", () => {
    expect(step(record({ status: "running" }))).toBe("define")
    expect(step(defined({ status: "running" }, true))).toBe("restart")
    const restarted = { restarted_at: NOW }
    for (const status of ["running", "stopping"] as const)
      expect(step(defined({ status }, true), restarted)).toBe("wait")
    expect(step(defined({ status: "starting" }), restarted)).toBe("wait")
    expect(step(defined({ status: "running" }), restarted)).toBe("done")
  })

  it("with notify, a server that runs gets the line, and its restart follows after notify_seconds", () => {
    const of = (one: ServerRecord, notified_at: number | null, notify_seconds?: number) => {
      const seconds = notify_seconds === undefined ? {} : { notify_seconds }
      return serverStep(rollout({}, { notify: "say bye", ...seconds }), server({ notified_at }), facts(one))
        .do
    }
    const running = defined({ status: "running" }, true)
    expect(of(running, null)).toBe("notify")
    expect(of(running, NOW - 9999)).toBe("wait")
    expect(of(running, NOW - 10_000)).toBe("restart")
    expect(of(running, NOW - 59_999, 60)).toBe("wait")
    expect(of(running, NOW, 0)).toBe("restart")
    // No console is read.
    for (const status of ["starting", "paused"] as const)
      expect(of(defined({ status }, true), null)).toBe("restart")
    expect(of(defined({ status: "offline" }, true), null)).toBe("wait")
  })

  it("a server that is offline is not started", () => {
    expect(step(record(), { was_up: false })).toBe("define")
    expect(step(defined({ status: "installing" }, true), { was_up: false })).toBe("wait")
    expect(step(defined({}), { was_up: false })).toBe("done")
  })

  it("changes that need no restart restart nothing", () => {
    const used = definition({ version: "1.21.12", restart: { on_crash: true, max_per_hour: 1 } })
    const redefinition = { defined_at: NOW, delivered: true, used }
    const one = defined({ status: "running", redefinition })
    expect(isApplied(one)).toBe(true)
    expect(step(one)).toBe("done")
  })

  it("when_stopped: a server that is up waits for its next start", () => {
    expect(stepWhenStopped(defined({ status: "running" }, true))).toBe("release")
    expect(stepWhenStopped(defined({ status: "starting" }))).toBe("watch")
    expect(stepWhenStopped(defined({}))).toBe("done")
  })

  it("a server that is down and was up is started", () => {
    expect(step(defined({}))).toBe("start")
    expect(step(defined({}), { restarted_at: NOW })).toBe("start")
    expect(step(defined({ start_pending: true }))).toBe("watch")
  })

  it("a stop by a caller is no failure", () => {
    expect(step(defined({}), { restarted_at: NOW, stopped: true })).toBe("done")
  })

  it.each([
    ["crashed: exit code 1", defined({}), { restarted_at: NOW, crash_before: "c1" }, { crash }],
    ["not running within 300 s", defined({ status: "starting" }), { restarted_at: NOW - 400_000 }, {}],
    [
      "installation failed: exit code 3",
      defined({ install: { phase: "failed", failure_reason: "exit code 3" } }),
      {},
      {}
    ],
    ["node n1 is not connected", record({ status: "unknown" }), {}, { isTooLong: true }],
    [
      "its node has not accepted the definition",
      defined({ redefinition: { defined_at: NOW, delivered: false, used: before } }),
      {},
      { isTooLong: true }
    ]
  ] as const)("a server fails: %s", (reason, one, of, more) => {
    expect(step(one, of, more)).toBe(`fail: ${reason}`)
  })

  it("a crash before the restart, and a failed installation before the change, do not count", () => {
    expect(step(defined({ status: "starting" }), { restarted_at: NOW, crash_before: "c2" }, { crash })).toBe(
      "wait"
    )
    expect(step(defined({ status: "running" }, true), {}, { crash })).toBe("restart")
    const install = { phase: "failed", finished_at: new Date(NOW - 1).toISOString() } as const
    expect(step(defined({ install }, true), { was_up: false })).toBe("wait")
  })

  it("a deleted server is done, unless its crash has deleted it", () => {
    expect(step(undefined)).toBe("done")
    expect(step(undefined, { restarted_at: NOW, crash_before: "c1" }, { crash })).toBe(
      "fail: crashed: exit code 1; it was deleted, because it is not saved"
    )
  })

  it("a definition that a caller has changed since stays", () => {
    expect(step(record({ status: "running", definition: definition({ version: "2" }) }))).toBe("done")
  })

  it("a server waits for its migration and its node, and its start is timed again", () => {
    expect(step(record({ status: "running" }), {}, { isMigrating: true, isTooLong: true })).toBe("wait")
    expect(step(record({ status: "unknown" }))).toBe("wait")
    expect(step(defined({ status: "unknown" }), { restarted_at: NOW - 400_000 })).toBe("forget")
    expect(step(defined({ status: "starting" }), {})).toBe("watch")
  })
})
