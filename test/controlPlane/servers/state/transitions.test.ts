import { describe, expect, it } from "@effect/vitest"
import * as fc from "fast-check"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import type { Report } from "../../../../src/contract/domain/NodeMessages.ts"
import { fits, isUp, ServerStatus } from "../../../../src/contract/domain/ServerStatus.ts"
import {
  changesNothing,
  onMissing,
  onNodeLost,
  onReport,
  onSnapshot,
  type Subject
} from "../../../../src/controlPlane/servers/state/transitions.ts"

const status = fc.constantFrom(...ServerStatus.literals)
const install = fc
  .constantFrom("pending", "installing", "ready", "failed")
  .map((phase) => ({ phase }) as const)
const subject: fc.Arbitrary<Subject> = fc.record({
  status,
  install,
  start_pending: fc.boolean(),
  restart: fc.constantFrom(
    null,
    { attempt: 1, next_at: "2026-01-01T00:00:00.000Z" },
    { given_up: true, reason: "it crashed" }
  ),
  definition: fc.record({ save: fc.boolean() })
})
const server_id = ServerId.make("srv_1")
const base = { server_id, sequence: 1 }
const statusReport = fc.record({
  ...{ server_id: fc.constant(server_id), sequence: fc.constant(1), type: fc.constant("status" as const) },
  status,
  transient: fc.boolean()
})

const saved = (change: Partial<Subject> = {}): Subject => ({
  status: "offline",
  install: { phase: "ready" },
  start_pending: false,
  definition: { save: true },
  ...change
})
const unsaved = (change: Partial<Subject> = {}): Subject => saved({ definition: { save: false }, ...change })
/** Whether a report can be the end of the previous installation. */
const isLate = (before: Subject, report: { readonly status: ServerStatus; readonly transient: boolean }) =>
  before.status === "installing" &&
  before.install.phase === "pending" &&
  report.status === "offline" &&
  report.transient
const at = "2026-01-01T00:00:00.000Z"
const reported = (before: Subject, report: Report) => onReport(before, report, at)
const offline: Report = { ...base, type: "status", status: "offline", transient: false }

describe("spec 3.5: reports", () => {
  it("a status is set exactly if it differs, and the view of the node wins", () =>
    fc.assert(
      fc.property(subject, statusReport, (before, report) => {
        fc.pre(!isLate(before, report))
        const outcome = reported(before, report)
        const expected =
          report.status === before.status || report.status === "unknown" ? undefined : report.status
        expect(outcome.status).toBe(expected)
      })
    ))

  it("only a change outside the transition table is unexpected", () =>
    fc.assert(
      fc.property(subject, statusReport, (before, report) => {
        const { surprising = false, via = before.status } = reported(before, report)
        expect(surprising).toBe(report.status === "unknown" || !fits(via, report.status))
      })
    ))

  it("a start that precedes a requested installation ends the wait for it", () => {
    const started: Report = { ...base, type: "status", status: "starting", transient: false }
    const waits = { status: "installing", install: { phase: "pending" } } as const
    expect(reported(saved(waits), started)).toEqual({ via: "offline", status: "starting" })
    const begun = { status: "installing", install: { phase: "installing" } } as const
    expect(reported(saved(begun), started)).toEqual({ surprising: true, status: "starting" })
  })

  it("a late offline of the previous installation does not end the requested one", () => {
    const late: Report = { ...base, type: "status", status: "offline", transient: true }
    expect(reported(saved({ status: "installing", install: { phase: "pending" } }), late)).toEqual({})
    expect(reported(saved({ status: "installing", install: { phase: "installing" } }), late)).toEqual({
      status: "offline"
    })
  })

  it("only a server that is not saved is deleted, and only when it goes offline for good", () =>
    fc.assert(
      fc.property(subject, statusReport, (before, report) => {
        const ran = isUp(before.status) || before.install.phase === "ready"
        const expected = !before.definition.save && ran && report.status === "offline" && !report.transient
        expect(reported(before, report).destroys !== undefined).toBe(expected)
      })
    ))

  it("a restart whose start is impossible deletes it too, without a second status event", () => {
    expect(reported(unsaved({ status: "stopping" }), { ...offline, transient: true })).toEqual({
      status: "offline",
      transient: true
    })
    expect(reported(unsaved(), offline)).toEqual({
      transient: false,
      destroys: "it is not saved, and its process ended"
    })
  })

  it("a pending start is cleared once the process runs", () => {
    const waiting = saved({ start_pending: true })
    expect(reported(waiting, { ...offline, status: "starting" }).clearsStart).toBe(true)
    expect(reported(saved(), { ...offline, status: "starting" }).clearsStart).toBeUndefined()
  })

  it("the first start after an installation is its last step", () => {
    const instance = { name: "instance", started_at: at, finished_at: at } as const
    const installed = { phase: "ready", steps: [instance] } as const
    const begun = reported(saved({ start_pending: true, install: installed }), {
      ...offline,
      status: "starting"
    }).install
    expect(begun?.steps).toEqual([instance, { name: "start", started_at: at }])
    const starting = saved({ status: "starting", install: begun ?? installed })
    const finished = reported(starting, { ...offline, status: "running" }).install
    expect(finished?.steps?.at(-1)).toEqual({ name: "start", started_at: at, finished_at: at })
    expect(
      reported(saved({ install: installed }), { ...offline, status: "starting" }).install
    ).toBeUndefined()
    const later = saved({ install: finished ?? installed })
    expect(reported(later, { ...offline, status: "starting" }).install).toBeUndefined()
  })

  it("the steps of a node follow those of the creation; a report without steps keeps them", () => {
    const steps = (["place", "commit"] as const).map((name) => ({ name, started_at: at, finished_at: at }))
    const creating = saved({ status: "installing", install: { phase: "pending", steps } })
    const script = { name: "script", started_at: at, progress: 0.5 } as const
    const installing = { phase: "installing", steps: [script] } as const
    const first = reported(creating, { ...base, type: "install-status", install: installing }).install
    expect(first?.steps).toEqual([...steps, { name: "script", started_at: at }])
    const during = saved({ status: "installing", install: first ?? installing })
    const repeated = reported(during, { ...base, type: "install-status", install: installing })
    expect(changesNothing(repeated)).toBe(true)
    const old = { phase: "ready", finished_at: at } as const
    const ready = reported(during, { ...base, type: "install-status", install: old }).install
    expect(ready?.steps).toEqual([...steps, { name: "script", started_at: at, finished_at: at }])
  })

  it("another installation begins without the steps of a node in the earlier one", () => {
    const place = { name: "place", started_at: at, finished_at: at } as const
    const start = { name: "start", started_at: at, finished_at: at } as const
    for (const phase of ["ready", "failed"] as const) {
      const installed = saved({ status: "offline", install: { phase, steps: [place, start] } })
      const install = { phase: "installing", started_at: at } as const
      expect(reported(installed, { ...base, type: "install-status", install }).install?.steps).toEqual([
        place
      ])
    }
  })

  it("the end of an installation changes installing to offline, after success and failure", () => {
    const installing = saved({ status: "installing", install: { phase: "installing" } })
    for (const phase of ["ready", "failed"] as const) {
      const outcome = reported(installing, { ...base, type: "install-status", install: { phase } })
      expect(outcome).toEqual({ status: "offline", install: { phase } })
    }
  })

  it("an installation that ends while the node is lost does not delete a server that is not saved", () => {
    const unknown = unsaved({ status: "unknown", install: { phase: "installing" } })
    expect(reported(unknown, offline).destroys).toBeUndefined()
    const ready = reported(unknown, { ...base, type: "install-status", install: { phase: "ready" } })
    expect(ready).toEqual({ status: "offline", install: { phase: "ready" } })
  })

  it("a repeated install state changes nothing", () =>
    fc.assert(
      fc.property(install, (state) => {
        const before = saved({
          status: state.phase === "ready" || state.phase === "failed" ? "offline" : "installing",
          install: state
        })
        expect(changesNothing(reported(before, { ...base, type: "install-status", install: state }))).toBe(
          true
        )
      })
    ))
})

describe("spec 3.9: stopping and restarting: what a node reports of restarts", () => {
  const restart = { attempt: 2, next_at: "2026-01-01T00:00:00.000Z" } as const
  const report = (
    status: "offline" | "starting",
    reported: Pick<Report & { type: "status" }, "restart"> = {}
  ) => ({ ...base, type: "status", status, transient: true, ...reported }) as const

  it("replaces that of the record; a report without it removes it", () => {
    expect(reported(saved({ status: "running" }), report("offline", { restart }))).toMatchObject({ restart })
    expect(reported(saved({ restart }), report("offline", { restart }))).toEqual({})
    expect(reported(saved({ restart }), report("starting"))).toMatchObject({ restart: null })
    expect(reported(saved({ restart }), report("offline"))).toEqual({ restart: null })
  })

  it("does not count if its time cannot be read", () => {
    for (const next_at of ["soon", "Thu, 01 Jan 2026 00:00:00 GMT", "9999-12-31T00:00:00Z"]) {
      expect(reported(saved(), report("offline", { restart: { attempt: 1, next_at } }))).toEqual({})
    }
  })

  it("is taken from a snapshot as well", () => {
    const view = { status: "offline", install: { phase: "ready" } } as const
    expect(onSnapshot(saved(), { ...view, restart })).toEqual({ restart })
    expect(onSnapshot(saved({ restart }), view)).toEqual({ restart: null })
  })
})

describe("Operations, restart a node or its machine: the record", () => {
  const stopped: Report = {
    ...base,
    type: "status",
    status: "offline",
    transient: false,
    run: { stopped_by: "ops" }
  }

  it("has who stopped the server and whether it waits, as its node reports", () => {
    expect(reported(saved({ status: "stopping" }), stopped)).toEqual({
      status: "offline",
      run: { stopped_by: "ops" }
    })
    expect(reported(saved({ run: { waiting: true } }), { ...offline, status: "starting" })).toEqual({
      status: "starting",
      run: null
    })
    expect(
      onSnapshot(saved(), { status: "offline", install: { phase: "ready" }, run: { waiting: true } })
    ).toEqual({
      run: { waiting: true }
    })
  })

  it("a stop that the node has not been sent survives every report", () =>
    fc.assert(
      fc.property(statusReport, (report) => {
        const run = { stopped_by: "ops", undelivered: true } as const
        const after = reported(saved({ run }), report)
        expect({ ...run, ...after.run }).toMatchObject(run)
        expect(after.run === null).toBe(false)
      })
    ))
})

describe("spec 9.6: snapshots and lost nodes", () => {
  it("a snapshot that equals the record changes nothing", () =>
    fc.assert(
      fc.property(subject, (before) => {
        fc.pre(!(before.start_pending && isUp(before.status)))
        expect(changesNothing(onSnapshot(before, before))).toBe(true)
      })
    ))

  it("an unknown server that has never stopped is not deleted for being offline", () => {
    const view = { status: "offline", install: { phase: "ready" } } as const
    expect(onSnapshot(unsaved({ status: "unknown" }), view)).toEqual({ status: "offline" })
    expect(onSnapshot(unsaved({ status: "running" }), view)).toEqual({
      status: "offline",
      destroys: "it is not saved, and its process ended"
    })
    expect(onSnapshot(saved({ status: "running" }), view)).toEqual({ status: "offline" })
  })

  it("a lost node makes each of its servers unknown, once", () =>
    fc.assert(
      fc.property(subject, (before) => {
        expect(onNodeLost(before)).toEqual(before.status === "unknown" ? {} : { status: "unknown" })
      })
    ))

  it("a saved server that is missing on its node is installed again; any other is deleted", () => {
    expect(onMissing(saved({ status: "running" }))).toEqual({
      status: "installing",
      install: { phase: "pending" }
    })
    expect(onMissing(unsaved({ status: "running" }))).toEqual({
      status: "offline",
      destroys: "it is not saved, and its node does not have it any more"
    })
    expect(
      onMissing(unsaved({ status: "unknown", install: { phase: "installing" } })).destroys
    ).toBeUndefined()
  })
})
