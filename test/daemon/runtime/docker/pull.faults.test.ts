import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { engineNote, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { until } from "../../../support/eventually.ts"
import { imageRegistry } from "../../../support/imageRegistry.ts"
import { harness, openDaemon, type SpecOptions, specOf } from "../../support.ts"
import { cleanNode, newNode } from "./support.ts"

const { online_signal: _, ...withoutSignal } = specOf().definition.process

/** A node and a server whose image must be pulled again from a slow registry. */
const slowPull = Effect.fnUntraced(function* (options: SpecOptions = {}) {
  const { docker, socket } = yield* TestEngine
  const registry = yield* imageRegistry()
  const { image } = registry
  const remove = Effect.tryPromise(() => docker.getImage(image).remove({ force: true }))
  yield* Effect.addFinalizer(() => Effect.ignore(remove))
  const node_id = newNode()
  yield* cleanNode(node_id)
  const more = { node_id, docker: { socket, pull: "if-not-present" as const } }
  const node = yield* harness(more)
  yield* Effect.addFinalizer(() => Effect.sync(registry.release))
  const id = yield* node.installed({
    allocations: { mappings: {} },
    ...options,
    definition: { image, runtimes: ["docker"], ...options.definition }
  })
  yield* Effect.orDie(remove)
  registry.hold()
  const containers = Effect.promise(() =>
    docker.listContainers({ all: true, filters: { label: [`muster.node=${node_id}`] } })
  )
  const logs = Effect.map(node.daemon.logs(id, { page: 1, per_page: 100 }), (page) => page.items)
  const pulling = until("the layer is requested", () => registry.waiting() > 0)
  return { ...node, containers, id, logs, more, pulling, registry }
})

describe.runIf(withEngine)(`pull of an image at a start${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect(
      "the call returns; the pull continues with its progress in the console, then the server runs",
      () =>
        Effect.gen(function* () {
          const { crashes, daemon, id, lastStatus, logs, notes, pulling, registry, statuses } =
            yield* slowPull({
              process: { start_timeout: 1 }
            })
          yield* daemon.power(id, "start", 30)
          yield* pulling
          assert.strictEqual(lastStatus(id), "starting")
          const refused = yield* Effect.flip(daemon.commands(id, ["hello"]))
          assert.include(refused, { status: 409, detail: "the server is not running" })
          // Longer than start_timeout, which begins after the pull.
          const beats = notes.heartbeats
          yield* until("two seconds have passed", () => notes.heartbeats >= beats + 3)
          assert.strictEqual(yield* daemon.status(id), "starting")
          assert.match((yield* logs)[0] ?? "", /^\[pulling 127/)
          registry.release()
          yield* until("it runs", () => lastStatus(id) === "running")
          yield* daemon.commands(id, ["hello"])
          yield* Effect.repeat(logs, { until: (lines) => lines.includes("got hello") })
          assert.isAtLeast((yield* daemon.stats(id, { update_disk_usage: false })).uptime ?? -1, 0)
          assert.deepStrictEqual(crashes(id), [])
          assert.deepStrictEqual(statuses(id).slice(-2), ["starting", "running"])
        }).pipe(Effect.scoped)
    )

    it.effect("without an online signal the server is running once its container exists", () =>
      Effect.gen(function* () {
        const { daemon, id, lastStatus, pulling, registry } = yield* slowPull({
          definition: { process: withoutSignal }
        })
        yield* daemon.power(id, "start", 30)
        yield* pulling
        assert.strictEqual(lastStatus(id), "starting")
        registry.release()
        yield* until("it runs", () => lastStatus(id) === "running")
      }).pipe(Effect.scoped)
    )

    it.effect("start_timeout begins once the container exists", () =>
      Effect.gen(function* () {
        const { crashes, daemon, id, lastStatus, pulling, registry } = yield* slowPull({
          process: { start_timeout: 1, online_signal: "never printed" }
        })
        yield* daemon.power(id, "start", 30)
        yield* pulling
        registry.release()
        yield* until("it has crashed", () => lastStatus(id) === "offline")
        assert.deepStrictEqual(
          crashes(id).map(({ reason }) => reason),
          ["start timed out"]
        )
      }).pipe(Effect.scoped)
    )

    it.effect("stop and kill cancel the pull", () =>
      Effect.gen(function* () {
        const { containers, crashes, daemon, id, lastStatus, pulling, statuses } = yield* slowPull()
        for (const action of ["stop", "kill"] as const) {
          yield* daemon.power(id, "start", 30)
          yield* pulling
          yield* daemon.power(id, action, 30)
          yield* until("offline", () => lastStatus(id) === "offline")
        }
        assert.deepStrictEqual(statuses(id).slice(-5), [
          "starting",
          "stopping",
          "offline",
          "starting",
          "offline"
        ])
        assert.deepStrictEqual(crashes(id), [])
        assert.deepStrictEqual(yield* containers, [])
      }).pipe(Effect.scoped)
    )

    it.effect("a failed pull is no crash: the server is offline, and the console gives the cause", () =>
      Effect.gen(function* () {
        const { containers, crashes, daemon, id, lastStatus, logs, notes, registry, statuses } =
          yield* slowPull({
            definition: { restart: { on_crash: true, max_per_hour: 5 } }
          })
        yield* registry.close
        yield* daemon.power(id, "start", 30)
        yield* until("offline", () => lastStatus(id) === "offline")
        assert.deepStrictEqual(statuses(id).slice(-2), ["starting", "offline"])
        assert.deepStrictEqual(crashes(id), [])
        assert.match((yield* logs).at(-1) ?? "", /^\[cannot be started: image 127.* cannot be pulled: /)
        const last = notes.reports.filter(({ server_id }) => server_id === id).at(-1)
        const problem = last?.type === "status" ? last.problem : undefined
        assert.match(
          problem?.detail ?? "",
          /^image 127.* cannot be pulled: /,
          "the server shows it (spec 3.16)"
        )
        assert.deepStrictEqual(yield* containers, [])
      }).pipe(Effect.scoped)
    )

    it.effect("a daemon that ends during a pull completes the start when it is back", () =>
      Effect.gen(function* () {
        const { close, containers, daemon, dataDir, id, more, notes, pulling, registry, statuses } =
          yield* slowPull()
        yield* daemon.power(id, "start", 30)
        yield* pulling
        yield* close
        registry.release()
        const { daemon: next } = yield* openDaemon(dataDir, notes, more)
        yield* until("it runs", () => statuses(id).at(-1) === "running")
        assert.deepStrictEqual(statuses(id).slice(-2), ["starting", "running"])
        assert.strictEqual((yield* containers).length, 1)
        yield* next.remove(id)
      }).pipe(Effect.scoped)
    )
  })
})
