import { mkdirSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FiberSet } from "effect"
import {
  createInstanceFile,
  openInstanceFile,
  WaitingWrites
} from "../../../src/daemon/state/InstanceFile.ts"
import { type InstanceState, withReport } from "../../../src/daemon/state/InstanceState.ts"
import { eventually } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { specOf } from "../support.ts"

const kept = (folder: string): InstanceState => JSON.parse(readFileSync(join(folder, "server.json"), "utf8"))

const install = (phase: "installing" | "ready") => (state: InstanceState) =>
  withReport(state, { type: "install-status", install: { phase } })
const offline = (state: InstanceState) =>
  withReport(state, { type: "status", status: "offline", transient: true })

const phases = ({ reports }: InstanceState) =>
  reports.map((report) => [
    report.sequence,
    report.type === "install-status" ? report.install.phase : "offline"
  ])

describe("spec 9.3: reports: written before they are sent", () => {
  it.live(
    "an installation that ends before its beginning is written is one write, with a report of each",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const file = yield* createInstanceFile(folder, specOf())
        file.updateSoon(install("installing"))
        assert.deepStrictEqual(phases(kept(folder)), [])
        yield* file.update((state) => offline(install("ready")(state)))
        assert.deepStrictEqual(phases(file.get()), [
          [1, "installing"],
          [2, "ready"],
          [3, "offline"]
        ])
        assert.deepStrictEqual(kept(folder), file.get())
        assert.strictEqual(file.get().sequence, 3)
        assert.strictEqual(file.pause(), undefined)
      })
  )

  it.live("what waits is written without another change: a change, an acknowledgement, a failed write", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = yield* createInstanceFile(folder, specOf())
      const waiting = new WaitingWrites(yield* FiberSet.makeRuntime<never, void, never>())
      file.setOwner({ onReports: () => {}, onWaiting: () => waiting.update(file) })
      file.updateSoon(install("installing"))
      yield* eventually(
        () => phases(kept(folder)),
        (found) => found.length === 1
      )
      yield* file.acknowledge(1)
      yield* eventually(
        () => phases(kept(folder)),
        (found) => found.length === 0
      )
      yield* file.flush
      // A folder in its place makes a write fail.
      const aside = join(folder, "server.json.tmp")
      mkdirSync(aside)
      yield* file.update((state) => ({ ...state, held: true }))
      assert.deepStrictEqual([file.get().held, kept(folder).held], [true, undefined])
      rmSync(aside, { recursive: true })
      yield* eventually(
        () => kept(folder).held,
        (held) => held === true
      )
      assert.strictEqual(file.pause(), undefined)
    }).pipe(Effect.scoped)
  )

  it.live("a closed state is not written any more", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = yield* createInstanceFile(folder, specOf())
      file.updateSoon(install("installing"))
      yield* file.close
      assert.strictEqual(file.pause(), undefined)
      yield* file.flush
      yield* file.update((state) => ({ ...state, held: true }))
      assert.strictEqual(kept(folder).held, undefined)
    })
  )

  it.live("the next daemon continues after the numbers that the first may have used", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = yield* createInstanceFile(folder, specOf())
      yield* file.update(install("installing"))
      const next = yield* openInstanceFile(folder)
      assert.strictEqual(next.get().sequence, 101)
      assert.deepStrictEqual(phases(next.get()), [[1, "installing"]])
    })
  )
})
