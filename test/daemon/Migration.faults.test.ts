import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { ControlPlaneUnavailable } from "../../src/contract/nodeApi/ControlPlaneApi.ts"
import type { Daemon, DaemonError } from "../../src/contract/nodeApi/Daemon.ts"
import { until } from "../support/eventually.ts"
import { archive, member, swallowing } from "../support/tar.ts"
import { type Harness, harness, openDaemon, specOf } from "./support.ts"

const refusal = (error: DaemonError) =>
  error._tag === "DaemonRefused" ? `${error.status} ${error.detail}` : error._tag

const filesOf = ({ dataDir }: Harness, id: string, path: string) =>
  join(dataDir, "servers", id, "files", path)

const away = (detail: string) => new ControlPlaneUnavailable({ detail })

/** Reads the files of another daemon's server, as the control plane transfers them. */
const transferFrom = (daemon: Daemon) => (id: ServerId) =>
  daemon.exportFiles(id).pipe(
    Effect.map(Stream.mapError((error) => away(error._tag))),
    Effect.mapError((error) => away(error._tag))
  )

const restless = {
  definition: {
    process: {
      invocation: "sh -c 'echo ready; read -r line; exit 3'",
      stop_command: "stop",
      online_signal: "ready",
      start_timeout: 30,
      clean_exit: "crash" as const
    },
    restart: { on_crash: true, delay: 0, max_per_hour: 10 }
  }
}

describe("migration: a server that is held", () => {
  it.live(
    "a held server is not started, reset or reinstalled until its release, also after a restart of the daemon",
    () =>
      Effect.gen(function* () {
        const first = yield* harness()
        const id = yield* first.running()
        assert.deepInclude(yield* first.daemon.hold(id, true), { id, status: "running", up: true })
        assert.match(refusal(yield* Effect.flip(first.daemon.exportFiles(id).pipe(Effect.scoped))), /^409/)
        assert.strictEqual(
          refusal(yield* Effect.flip(first.daemon.power(id, "restart", 30))),
          "409 the server is migrating"
        )
        yield* first.daemon.power(id, "stop", 30)
        yield* until("offline", () => first.lastStatus(id) === "offline")
        yield* first.close
        const { daemon } = yield* openDaemon(first.dataDir, first.notes)
        for (const refused of [daemon.power(id, "start", 30), daemon.reset(id), daemon.reinstall(id)]) {
          assert.strictEqual(refusal(yield* Effect.flip(refused)), "409 the server is migrating")
        }
        assert.deepInclude(yield* daemon.hold(id, true), { status: "offline", up: false })
        assert.deepInclude(yield* daemon.hold(id, false), { status: "offline", up: false })
        yield* daemon.power(id, "start", 30)
        yield* until("running", () => first.lastStatus(id) === "running")
        yield* daemon.remove(id)
      }).pipe(Effect.scoped)
  )

  it.live("a held server stays offline after a crash, and restarts when it is released", () =>
    Effect.gen(function* () {
      const { daemon, lastStatus, running, statuses } = yield* harness()
      const id = yield* running(restless)
      yield* daemon.hold(id, true)
      yield* daemon.commands(id, ["die"])
      yield* until("offline", () => lastStatus(id) === "offline")
      assert.deepInclude(yield* daemon.hold(id, true), { status: "offline", up: true })
      yield* daemon.hold(id, false)
      yield* until("running again", () => lastStatus(id) === "running")
      assert.deepStrictEqual(statuses(id).slice(-3), ["offline", "starting", "running"])
    }).pipe(Effect.scoped)
  )
})

describe("migration: a server that arrives from another node", () => {
  const sent = Effect.gen(function* () {
    const from = yield* harness()
    const id = yield* from.installed()
    mkdirSync(filesOf(from, id, "world"))
    writeFileSync(filesOf(from, id, "world/level.dat"), "a castle")
    yield* from.daemon.hold(id, true)
    const to = yield* harness()
    to.notes.files = transferFrom(from.daemon)
    const spec = { ...specOf(), id, arrival: "move-1", last_sequence: 40 }
    to.ids.add(id)
    return { from, to, id, spec }
  })

  it.live("the server is ready once its files are imported; its sequence numbers continue", () =>
    Effect.gen(function* () {
      const { id, spec, to } = yield* sent
      yield* to.daemon.create(spec)
      yield* until("ready", () => to.lastInstall(id)?.phase === "ready")
      assert.strictEqual(readFileSync(filesOf(to, id, "world/level.dat"), "utf8"), "a castle")
      assert.isAbove(to.notes.reports[0]?.sequence ?? 0, 40)
      assert.isFalse(readdirSync(filesOf(to, id, "")).some((name) => name.startsWith(".muster")))
      // A reset makes the files of the blueprint, not the imported ones.
      yield* to.daemon.reset(id)
      yield* until("reset", () => !existsSync(filesOf(to, id, "world/level.dat")))
    }).pipe(Effect.scoped)
  )

  it.live(
    "the import waits while the files are unavailable, and continues after a restart of the daemon",
    () =>
      Effect.gen(function* () {
        const { from, id, spec, to } = yield* sent
        let asked = 0
        to.notes.files = () =>
          Effect.suspend(() => {
            asked += 1
            return Effect.fail(away("node is not connected"))
          })
        yield* to.daemon.create(spec)
        yield* until("asked for", () => asked > 1 && to.lastInstall(id)?.phase === "installing")
        yield* to.close
        to.notes.files = transferFrom(from.daemon)
        const { daemon } = yield* openDaemon(to.dataDir, to.notes)
        yield* until("ready", () => to.lastInstall(id)?.phase === "ready")
        assert.strictEqual(readFileSync(filesOf(to, id, "world/level.dat"), "utf8"), "a castle")
        yield* daemon.remove(id)
      }).pipe(Effect.scoped)
  )

  it.live("an interrupted transfer is requested again; until then the server is not ready", () =>
    Effect.gen(function* () {
      const { from, id, spec, to } = yield* sent
      let broken = 0
      const whole = transferFrom(from.daemon)
      to.notes.files = (server) =>
        Effect.map(whole(server), (stream) => {
          broken += 1
          return broken < 3
            ? Stream.concat(
                Stream.map(Stream.take(stream, 1), (bytes) => bytes.subarray(0, 1024)),
                broken === 1 ? Stream.empty : Stream.fail(away("broken off"))
              )
            : stream
        })
      yield* to.daemon.create(spec)
      yield* until("ready", () => to.lastInstall(id)?.phase === "ready")
      assert.strictEqual(broken, 3)
      assert.strictEqual(readFileSync(filesOf(to, id, "world/level.dat"), "utf8"), "a castle")
    }).pipe(Effect.scoped)
  )

  it.live("the imported files replace those of an earlier migration", () =>
    Effect.gen(function* () {
      const { id, spec, to } = yield* sent
      yield* to.daemon.create(spec)
      yield* until("ready", () => to.lastInstall(id)?.phase === "ready")
      writeFileSync(filesOf(to, id, "world/level.dat"), "old")
      assert.deepInclude(yield* to.daemon.create(spec), { status: "offline" })
      to.notes.reports.length = 0
      yield* to.daemon.create({ ...spec, arrival: "move-2", last_sequence: 80 })
      yield* until("ready again", () => to.lastInstall(id)?.phase === "ready")
      assert.strictEqual(readFileSync(filesOf(to, id, "world/level.dat"), "utf8"), "a castle")
    }).pipe(Effect.scoped)
  )

  it.live("an archive over disk_space is refused, and none of its files remain", () =>
    Effect.gen(function* () {
      const { from, id, spec, to } = yield* sent
      const big = { ...spec, definition: { ...spec.definition, limits: { disk_space: 2 } } }
      writeFileSync(filesOf(from, id, "world/region"), Buffer.alloc(5_000_000, 1))
      yield* to.daemon.create(big)
      yield* until("failed", () => to.lastInstall(id)?.phase === "failed")
      assert.match(
        to.lastInstall(id)?.failure_reason ?? "",
        /^the files exceed the server's disk_space: they have more than 2\.\d MB \(node test-node\): .*limits\.disk_space.*, then move it again$/
      )
      assert.isFalse(existsSync(filesOf(to, id, "world")))
      assert.isFalse(readdirSync(filesOf(to, id, "")).some((name) => name.startsWith(".muster")))
      writeFileSync(filesOf(from, id, "world/region"), Buffer.alloc(1_500_000, 1))
      to.notes.reports.length = 0
      yield* to.daemon.create({ ...big, arrival: "move-2", last_sequence: 80 })
      yield* until("ready", () => to.lastInstall(id)?.phase === "ready")
      assert.strictEqual(readFileSync(filesOf(to, id, "world/region")).length, 1_500_000)
    }).pipe(Effect.scoped)
  )

  it.live("devices and set-uid files from a lying node are not imported", () =>
    Effect.gen(function* () {
      const { id, spec, to } = yield* sent
      const hostileArchives = [
        archive(swallowing(), member({ name: "./disk", type: "4" })),
        archive(swallowing(), member({ name: "./evil", mode: 0o4755 })),
        archive(
          member({ name: "./out", type: "2", link: "/tmp" }),
          member({ name: "./out/evil", content: "x" })
        )
      ]
      const seen: Array<string> = []
      let asked = 0
      to.notes.files = () =>
        Effect.sync(() => {
          seen.push(...readdirSync(filesOf(to, id, "")))
          return Stream.make(hostileArchives[asked++ % hostileArchives.length] ?? Buffer.alloc(0))
        })
      yield* to.daemon.create(spec)
      yield* until("each archive was requested", () => asked > hostileArchives.length)
      yield* until("the installation goes on", () => to.lastInstall(id)?.phase === "installing")
      assert.deepStrictEqual(seen, [])
      assert.isFalse(existsSync("/tmp/evil"))
      yield* to.daemon.remove(id)
    }).pipe(Effect.scoped)
  )
})
