import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import {
  fits,
  isUp,
  next,
  ServerStatus,
  type Trigger,
  transitions
} from "../../../src/contract/domain/ServerStatus.ts"

const status = fc.constantFrom(...ServerStatus.literals)
const trigger = fc.constantFrom(...new Set(transitions.map((row) => row.on)))

describe("spec 3.5", () => {
  it("every row of the table has its target status", () => {
    const rows: ReadonlyArray<readonly [ServerStatus, Trigger, ServerStatus]> = [
      ["installing", "installed", "offline"],
      ["installing", "install-failed", "offline"],
      ["offline", "start", "starting"],
      ["starting", "online", "running"],
      ["starting", "stop", "stopping"],
      ["running", "stop", "stopping"],
      ["stopping", "ended-as-asked", "offline"],
      ["starting", "ended-as-asked", "offline"],
      ["running", "ended-as-asked", "offline"],
      ["starting", "ended-on-its-own", "offline"],
      ["running", "ended-on-its-own", "offline"],
      ["running", "pause", "paused"],
      ["paused", "unpause", "running"],
      ["paused", "node-lost", "unknown"],
      ["offline", "reinstall", "installing"]
    ]
    for (const [from, on, to] of rows) assert.strictEqual(next(from, on), to, `${from} --${on}-->`)
  })

  it("a transition outside the table is refused", () => {
    const illegal: ReadonlyArray<readonly [ServerStatus, Trigger]> = [
      ["installing", "start"],
      ["running", "start"],
      ["running", "reinstall"],
      ["paused", "stop"],
      ["offline", "pause"],
      ["stopping", "ended-on-its-own"]
    ]
    for (const [from, on] of illegal) assert.isUndefined(next(from, on), `${from} --${on}-->`)
  })

  it("a report is valid if it changes nothing, follows the table, or ends `unknown`", () => {
    fc.assert(
      fc.property(status, status, (from, to) => {
        const byTable = transitions.some((row) => next(from, row.on) === to)
        assert.strictEqual(fits(from, to), from === to || from === "unknown" || byTable)
      })
    )
  })

  it("a status and a trigger have at most one target", () => {
    fc.assert(
      fc.property(status, trigger, (from, on) => {
        const targets = new Set(
          transitions.filter((row) => row.on === on && row.from.includes(from)).map((row) => row.to)
        )
        assert.isAtMost(targets.size, 1)
      })
    )
  })

  it("a process exists in starting, running, stopping and paused only", () => {
    assert.deepEqual(ServerStatus.literals.filter(isUp), ["starting", "running", "stopping", "paused"])
  })
})
