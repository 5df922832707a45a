import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../../../src/contract/domain/Id.ts"
import {
  engineNote,
  isolatedEngine,
  missingEngine,
  missingOwnEngine,
  TEST_IMAGE
} from "../../../support/dockerEngine.ts"
import { eventually, until } from "../../../support/eventually.ts"
import { harness } from "../../support.ts"
import { newNode } from "./support.ts"

const possible =
  (missingEngine === undefined && missingOwnEngine === undefined) || process.env.CI !== undefined

const script = `sh -c 'echo ready; while read -r l; do echo "got $l"; done'`

/** A node with two running servers and a paused one, on its own engine. */
const nodeWithServers = Effect.fnUntraced(function* (...options: ReadonlyArray<string>) {
  const engine = yield* isolatedEngine(...options)
  const docker = { socket: engine.socket, pull: "never" as const, network: "none" }
  const node = yield* harness({ node_id: newNode(), docker })
  const server = node.running({
    allocations: { mappings: {} },
    process: { invocation: script },
    definition: { image: TEST_IMAGE, runtimes: ["docker"] }
  })
  const ids = [yield* server, yield* server, yield* server] as const
  const [first, second, paused] = ids
  yield* node.daemon.power(paused, "pause", 0)
  const offered = () => node.notes.registrations.at(-1)?.runtimes.join()
  const logs = (id: ServerId) =>
    Effect.map(node.daemon.logs(id, { page: 1, per_page: 100 }), (page) => page.items)
  /** Asserts that the console works in both directions. */
  const answers = (id: ServerId, line: string) =>
    eventually(Effect.andThen(Effect.ignore(node.daemon.commands(id, [line])), logs(id)), (lines) =>
      lines.includes(`got ${line}`)
    )
  const containers = Effect.promise(() => engine.docker.listContainers({ all: true }))
  return { ...node, answers, containers, engine, first, ids, logs, offered, paused, second }
})

describe.runIf(possible)(`an engine without networks${engineNote}`, () => {
  it.live(
    "a server whose ports are not published is not started; answer, crash and console give the cause",
    () =>
      Effect.gen(function* () {
        const { docker, socket } = yield* isolatedEngine()
        const node = yield* harness({
          node_id: newNode(),
          docker: { socket, pull: "never", network: "bridge" }
        })
        const { crashes, daemon, installed, lastStatus, running } = node
        const definition = { image: TEST_IMAGE, runtimes: ["docker" as const] }
        const id = yield* installed({ process: { invocation: script }, definition })
        const refused = yield* Effect.flip(daemon.power(id, "start", 30))
        if (refused._tag !== "DaemonRefused") return assert.fail(refused._tag)
        assert.strictEqual(refused.status, 500)
        assert.match(refused.detail, /^the engine has not published port 25565\/(tcp|udp): /)
        assert.match(
          refused.hint,
          /^On node .*: enable the network bridge of the engine \(.*--bridge=none\), /
        )
        yield* until("offline", () => lastStatus(id) === "offline")
        assert.deepInclude(crashes(id)[0], { exit_code: 127 })
        const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
        assert.include(items, `[cannot be started: ${refused.detail}. ${refused.hint}]`)
        assert.deepStrictEqual(yield* Effect.promise(() => docker.listContainers({ all: true })), [])
        // A server without ports runs.
        yield* running({ allocations: { mappings: {} }, process: { invocation: script }, definition })
      }).pipe(Effect.scoped),
    180_000
  )
})

describe.runIf(possible)(`restart of the engine${engineNote}`, () => {
  it.live(
    "with live-restore servers keep running: consoles, stats, pause and power continue",
    () =>
      Effect.gen(function* () {
        const at = yield* nodeWithServers("--live-restore")
        const { answers, containers, crashes, daemon, engine, first, ids, lastStatus, logs, offered } = at
        yield* answers(first, "before")
        const before = (yield* containers).map(({ Id }) => Id).toSorted()
        assert.isAbove((yield* daemon.stats(first, { update_disk_usage: false })).memory_bytes ?? 0, 0)
        for (const signal of ["SIGKILL", "SIGTERM"] as const) {
          yield* engine.kill(signal)
          yield* until("the node no longer offers docker", () => offered() === "process")
          // Without the engine the daemon keeps the last status.
          for (const id of ids) assert.include(["running", "paused"], yield* daemon.status(id))
          assert.isNull((yield* daemon.stats(first, { update_disk_usage: false })).memory_bytes)
          const refused = yield* Effect.flip(daemon.commands(first, ["hi"]))
          if (refused._tag !== "DaemonRefused") return assert.fail(refused._tag)
          assert.strictEqual(refused.status, 500)
          assert.match(refused.detail, /^the Docker engine does not answer at /)
          assert.match(refused.hint, /^Start Docker on node test-.*, then send /)
          yield* engine.start
          yield* until("it is offered again", () => offered() === "docker,process")
          yield* answers(first, `after ${signal}`)
        }
        assert.deepStrictEqual((yield* containers).map(({ Id }) => Id).toSorted(), before)
        const got = (yield* logs(first)).filter((line) => line.startsWith("got "))
        assert.deepStrictEqual([...new Set(got)], ["got before", "got after SIGKILL", "got after SIGTERM"])
        const figures = yield* daemon.stats(first, { update_disk_usage: false })
        assert.isAbove(figures.memory_bytes ?? 0, 0)
        yield* daemon.power(at.paused, "unpause", 0)
        yield* answers(at.paused, "awake")
        yield* daemon.power(at.second, "kill", 0)
        yield* until("offline", () => lastStatus(at.second) === "offline")
        for (const id of ids) assert.deepStrictEqual(crashes(id), [])
        assert.strictEqual((yield* containers).length, 2)
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "without live-restore each end is reported once, is no crash, and what ran runs again",
    () =>
      Effect.gen(function* () {
        const at = yield* nodeWithServers()
        const { answers, containers, crashes, daemon, engine, first, ids, lastStatus, offered, statuses } = at
        const stopped = at.second
        yield* daemon.power(stopped, "stop", 1)
        yield* until("stopped", () => lastStatus(stopped) === "offline")
        yield* engine.kill("SIGKILL")
        yield* until("the node no longer offers docker", () => offered() === "process")
        yield* engine.start
        const again = [first, at.paused]
        for (const id of again) {
          const ends = () => statuses(id).filter((status) => status === "offline").length
          yield* until("it runs again", () => ends() === 2 && lastStatus(id) === "running", 40)
        }
        for (const id of ids) assert.deepStrictEqual(crashes(id), [])
        yield* eventually(containers, (left) => left.length === again.length)
        yield* answers(first, "again")
        assert.strictEqual(lastStatus(stopped), "offline")
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "a stop during the outage is executed when the engine is back",
    () =>
      Effect.gen(function* () {
        const engine = yield* isolatedEngine("--live-restore")
        const docker = { socket: engine.socket, pull: "never" as const, network: "none" }
        const node = yield* harness({ node_id: newNode(), docker })
        const { daemon, lastStatus, notes, running } = node
        const server = (invocation: string, stop_command: string) =>
          running({
            allocations: { mappings: {} },
            process: { invocation: `sh -c '${invocation}'`, stop_command },
            definition: { image: TEST_IMAGE, runtimes: ["docker"] }
          })
        const byLine = yield* server('echo ready; read -r word; echo "told $word"', "end")
        const bySignal = yield* server(
          'trap "echo told; exit" INT; echo ready; while :; do sleep 0.1; done',
          "^C"
        )
        yield* engine.kill("SIGKILL")
        yield* until(
          "the node no longer offers docker",
          () => notes.registrations.at(-1)?.runtimes.join() === "process"
        )
        for (const id of [byLine, bySignal]) yield* daemon.power(id, "stop", 300)
        yield* until(
          "they are being stopped",
          () => lastStatus(byLine) === "stopping" && lastStatus(bySignal) === "stopping"
        )
        yield* engine.start
        for (const id of [byLine, bySignal]) {
          yield* until("it has stopped by itself", () => lastStatus(id) === "offline", 40)
        }
        const logs = (id: ServerId) =>
          Effect.map(daemon.logs(id, { page: 1, per_page: 9 }), (page) => page.items)
        assert.deepStrictEqual(yield* logs(byLine), [
          "ready",
          "told end",
          "[stopped as requested: exit code 0]"
        ])
        assert.deepStrictEqual(yield* logs(bySignal), [
          "ready",
          "told",
          "[stopped as requested: exit code 0]"
        ])
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "all requested actions are executed when the engine is back",
    () =>
      Effect.gen(function* () {
        const { containers, crashes, daemon, engine, first, lastStatus, offered, paused, second } =
          yield* nodeWithServers("--live-restore")
        yield* engine.kill("SIGKILL")
        yield* until("the node no longer offers docker", () => offered() === "process")
        const asked = yield* Effect.forkChild(
          Effect.all([daemon.power(first, "kill", 0), daemon.power(second, "stop", 1)], {
            concurrency: "unbounded"
          })
        )
        yield* until("it is being stopped", () => lastStatus(second) === "stopping")
        yield* engine.start
        for (const id of [first, second]) yield* until("offline", () => lastStatus(id) === "offline", 40)
        yield* Effect.ignore(daemon.power(paused, "kill", 0))
        yield* until("offline", () => lastStatus(paused) === "offline", 40)
        for (const id of [first, second, paused]) assert.deepStrictEqual(crashes(id), [])
        yield* eventually(containers, (left) => left.length === 0)
        assert.isDefined(asked)
      }).pipe(Effect.scoped),
    120_000
  )
})
