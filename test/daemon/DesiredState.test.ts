import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { until } from "../support/eventually.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "./daemonChild.ts"
import { alive, newId, openDaemon, type Recorder, recorder, type SpecOptions, specOf } from "./support.ts"

const recordAt = (dataDir: string, id: string) => join(dataDir, "servers", id, "run.json")
const pidOf = (dataDir: string, id: string): number =>
  JSON.parse(readFileSync(recordAt(dataDir, id), "utf8")).pid

const statusesOf = ({ reports }: Recorder, id: string) =>
  reports.flatMap((report) => (report.server_id === id && report.type === "status" ? [report.status] : []))
const crashesOf = ({ reports }: Recorder, id: string) =>
  reports.filter((report) => report.server_id === id && report.type === "crash")

/** Kills all processes of a server, as a power cut does, and gives its run another boot of the machine. */
const cutPower = Effect.fnUntraced(function* (dataDir: string, id: string) {
  const record = JSON.parse(readFileSync(recordAt(dataDir, id), "utf8"))
  process.kill(-record.pid, "SIGKILL")
  yield* until("dead", () => !alive(record.pid))
  writeFileSync(recordAt(dataDir, id), `${JSON.stringify({ ...record, boot: "another boot" })}\n`)
})

describe("Operations, servers after a restart of their node", () => {
  it.live("after a power cut, what ran runs again, and what was stopped on purpose stays stopped", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const first = yield* daemonProcess(dataDir)
      const up = Effect.fnUntraced(function* (options: SpecOptions = {}, status = "running") {
        const id = newId()
        yield* first.ask(`create ${JSON.stringify({ ...options, id })}`)
        yield* until("installed", () => stateOf(dataDir, id).status === "offline")
        yield* first.ask(`power ${id} start 30`)
        yield* until(status, () => stateOf(dataDir, id).status === status)
        return id
      })
      const silent = { process: { invocation: "sleep 300" } }
      const ran = yield* up()
      const manual = yield* up({ definition: { run: "manual" } })
      const paused = yield* up()
      const starting = yield* up(silent, "starting")
      const stopping = yield* up({
        process: { invocation: "sh -c 'trap \"\" TERM; echo ready; sleep 300'", stop_command: "^SIGTERM" }
      })
      const stopped = yield* up()
      const deleted = yield* up()
      const stoppedAway = yield* up()
      const crashes = yield* up({
        process: { invocation: "sh -c 'echo ready; sleep 0.3; exit 3'" },
        definition: { restart: { on_crash: true, max_per_hour: 1, delay: 0, max_delay: 0 } }
      })
      yield* until("given up", () => stateOf(dataDir, crashes).backoff?.given_up !== undefined)
      yield* first.ask(`power ${paused} pause 0`)
      yield* first.ask(`power ${stopping} stop 300`)
      yield* first.ask(`power ${stopped} stop 30`)
      yield* until("stopped", () => stateOf(dataDir, stopped).status === "offline")
      const wereUp = [ran, manual, paused, starting, stopping, deleted, stoppedAway]
      yield* until("no report is queued", () =>
        [...wereUp, stopped, crashes].every((id) => stateOf(dataDir, id).reports.length === 0)
      )
      yield* first.kill
      yield* Effect.forEach(wereUp, (id) => cutPower(dataDir, id))

      const notes = { ...recorder(), remove: [deleted], stopped: [stoppedAway] }
      const { daemon } = yield* openDaemon(dataDir, notes)
      const all = [...wereUp, stopped, crashes]
      yield* Effect.addFinalizer(() => Effect.forEach(all, (id) => Effect.ignore(daemon.remove(id))))
      const last = (id: string) => statusesOf(notes, id).at(-1)
      yield* until("what ran runs", () => [ran, paused].every((id) => last(id) === "running"))
      yield* until("the start is repeated", () => last(starting) === "starting")
      assert.deepStrictEqual(statusesOf(notes, ran), ["offline", "starting", "running"])
      assert.strictEqual(yield* daemon.status(stopped), "offline")
      for (const id of [manual, stopping, stoppedAway]) {
        assert.deepStrictEqual(statusesOf(notes, id), ["offline"])
      }
      assert.notInclude(statusesOf(notes, deleted), "starting")
      assert.deepStrictEqual(statusesOf(notes, crashes), [])
      assert.include(stateOf(dataDir, crashes).backoff.given_up, "max_per_hour")
      for (const id of wereUp) assert.deepStrictEqual(crashesOf(notes, id), [], "an end with the machine")
    }).pipe(Effect.scoped)
  )

  it.live(
    "after a shutdown, servers start again by priority and age, some at a time, also without a control plane",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const notes = recorder()
        const before = yield* openDaemon(dataDir, notes, { onShutdown: "stop" })
        const up = Effect.fnUntraced(function* (options: SpecOptions, created_at?: string) {
          const spec = { ...specOf(options), ...(created_at === undefined ? {} : { created_at }) }
          yield* before.daemon.create(spec)
          yield* until("installed", () => statusesOf(notes, spec.id).includes("offline"))
          yield* before.daemon.power(spec.id, "start", 30)
          yield* until("running", () => statusesOf(notes, spec.id).includes("running"))
          return spec.id
        })
        const go = join(dataDir, "go")
        const waitsForGo = {
          invocation: `sh -c '[ -e ${go}-first ] && while [ ! -e ${go} ]; do sleep 0.05; done; echo ready; read -r line'`
        }
        const later = yield* up({ process: waitsForGo }, "2026-01-02T00:00:00.000Z")
        const earlier = yield* up({ process: waitsForGo }, "2026-01-01T00:00:00.000Z")
        const last = yield* up(
          { process: waitsForGo, definition: { priority: 10 } },
          "2025-01-01T00:00:00.000Z"
        )
        const urgent = yield* up(
          { process: waitsForGo, definition: { priority: 90 } },
          "2026-01-03T00:00:00.000Z"
        )
        const stopped = yield* up({})
        yield* before.daemon.power(stopped, "stop", 30, "ops")
        yield* until("stopped", () => statusesOf(notes, stopped).at(-1) === "offline")
        yield* before.close
        const runs = new Map(
          notes.reports.flatMap((report) =>
            report.type === "status" ? [[report.server_id, report.run]] : []
          )
        )
        assert.deepStrictEqual(runs.get(stopped), { stopped_by: "ops" })
        for (const id of [later, earlier, last, urgent])
          assert.deepStrictEqual(runs.get(id), { waiting: true })

        writeFileSync(`${go}-first`, "")
        const after = { ...recorder(), away: true }
        const { daemon } = yield* openDaemon(dataDir, after, { startParallel: 1 })
        const ids = [urgent, earlier, later, last, stopped]
        yield* Effect.addFinalizer(() => Effect.forEach(ids, (id) => Effect.ignore(daemon.remove(id))))
        yield* until("the first one starts", () => stateOf(dataDir, urgent).status === "starting")
        // A stop during the wave holds, too.
        yield* daemon.power(later, "stop", 30, "ops")
        assert.deepStrictEqual(
          [earlier, later, last].map((id) => stateOf(dataDir, id).status),
          ["offline", "offline", "offline"]
        )
        writeFileSync(go, "")
        yield* until("the last one runs", () => stateOf(dataDir, last).status === "running")
        const startedAt = (id: ServerId): number => stateOf(dataDir, id).run.started_at
        assert.isAtMost(startedAt(urgent), startedAt(earlier))
        assert.isAtMost(startedAt(earlier), startedAt(last))
        assert.strictEqual(yield* daemon.status(later), "offline")
        assert.strictEqual(yield* daemon.status(stopped), "offline")
        assert.isAbove(pidOf(dataDir, urgent), 0)
      }).pipe(Effect.scoped)
  )
})
