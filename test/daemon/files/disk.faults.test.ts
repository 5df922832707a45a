import { spawnSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FiberSet } from "effect"
import { createInstanceFile, WaitingWrites } from "../../../src/daemon/state/InstanceFile.ts"
import { until } from "../../support/eventually.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { harness, newId, openDaemon, recorder, type SpecOptions, specOf } from "../support.ts"
import { ext4Disk, fillDisk, smallDisk, withExt4, write } from "./scene.ts"

const zeros = (name: string, mib: number) => `head -c ${mib * 1024 * 1024} /dev/zero > ${name}`

/** Returns the unfinished folders of instances and bases. */
const left = (dataDir: string, id: string) => ({
  server: readdirSync(join(dataDir, "servers", id)).filter((name) => /^(files|tree)/.test(name)),
  base: readdirSync(join(dataDir, "base")).filter((name) => name.startsWith(".aside"))
})

/** The end of every message about a full disk. */
const full =
  "disk full (node test-node): free space on the disk of the data folder, or raise limits.disk_space if the disk has room, then reinstall"

describe("spec 9.6: disk full on a node", () => {
  it.live("an install script that fills the disk fails with a hint, and leaves no unfinished files", () =>
    Effect.gen(function* () {
      const dataDir = yield* smallDisk(12)
      const { create, lastInstall, lastStatus } = yield* harness({}, dataDir)
      const id = yield* create({ install: { script: zeros("big", 40) } })
      yield* until("failed", () => lastStatus(id) === "offline")
      const failure_reason = `install script exited with 1: ${full}`
      assert.deepInclude(lastInstall(id), { phase: "failed", failure_reason })
      assert.deepStrictEqual(left(dataDir, id), { server: [], base: [] })
      assert.deepStrictEqual(readdirSync(join(dataDir, "base/.generations")), [])
    }).pipe(Effect.scoped)
  )

  for (const instanceFiles of ["overlay", "copy"] as const) {
    it.live(
      `an instance that does not fit fails in the same way, by ${instanceFiles}; it can be made once there is space`,
      () =>
        Effect.gen(function* () {
          const dataDir = yield* smallDisk(16)
          write(dataDir, { "files/big": "x".repeat(6 * 1024 * 1024) })
          const { create, daemon, lastInstall, lastStatus, notes } = yield* harness(
            { instanceFiles },
            dataDir
          )
          const copy = (target: string) => ({ source: "files/big", target })
          const id = yield* create({
            install: { script: "echo base > file" },
            definition: { copy: [copy("a"), copy("b")] }
          })
          yield* until("failed", () => lastStatus(id) === "offline")
          assert.deepInclude(lastInstall(id), { phase: "failed", failure_reason: `copy files/big: ${full}` })
          assert.deepStrictEqual(left(dataDir, id), { server: [], base: [] })
          assert.deepStrictEqual(mountsBelow(join(dataDir, "servers")), [])
          spawnSync("mount", ["-o", "remount,size=64m", dataDir])
          const before = notes.reports.length
          yield* daemon.reinstall(id)
          yield* until("ready", () => lastInstall(id)?.phase === "ready" && notes.reports.length > before)
          const files = join(dataDir, "servers", id, "files")
          assert.deepStrictEqual(readdirSync(files).sort(), ["a", "b", "file"])
        }).pipe(Effect.scoped)
    )
  }
})

describe("spec 3.16: start on a full disk", () => {
  it.live("the start is refused with the file and a hint; the start succeeds once there is space", () =>
    Effect.gen(function* () {
      const dataDir = yield* smallDisk(16)
      const { create, daemon, lastInstall, lastStatus, statuses } = yield* harness({}, dataDir)
      // Larger than the reserve of the file system, because the file is written as a whole.
      const id = yield* create({
        install: { script: "head -c 2000000 /dev/zero | tr '\\0' '#' > server.properties" },
        definition: { configs: { "server.properties": { parser: "properties", find: { motd: "hi" } } } }
      })
      yield* until("ready", () => lastInstall(id)?.phase === "ready" && lastStatus(id) === "offline")
      const room = spawnSync("sh", ["-c", `head -c 100000000 /dev/zero > ballast`], { cwd: dataDir })
      assert.notStrictEqual(room.status, 0)
      const refused = yield* Effect.flip(daemon.power(id, "start", 30))
      assert.deepStrictEqual(
        refused._tag === "DaemonRefused" && [refused.status, refused.detail, refused.hint],
        [
          500,
          "cannot patch server.properties: disk full",
          "On node test-node: free space on the disk of the data folder, or raise limits.disk_space if the disk has room, then start it again."
        ]
      )
      assert.strictEqual(lastStatus(id), "offline")
      rmSync(join(dataDir, "ballast"))
      yield* daemon.power(id, "start", 30)
      yield* until("it runs", () => statuses(id).includes("running"))
    }).pipe(Effect.scoped)
  )
})

const waitsForGo = (then: string) => `sh -c 'echo ready; while [ ! -e go ]; do sleep 0.02; done; ${then}'`

describe.runIf(process.getuid?.() === 0)("spec 9.6: disk full on a node: state of the daemon", () => {
  it.live("a stop and an exit code are recorded: the next daemon reports the right crash only", () =>
    Effect.gen(function* () {
      const dataDir = yield* smallDisk(16)
      const first = yield* daemonProcess(dataDir)
      const up = Effect.fnUntraced(function* (options: SpecOptions) {
        const id = newId()
        yield* first.ask(`create ${JSON.stringify({ ...options, id })}`)
        yield* until("installed", () => stateOf(dataDir, id).status === "offline")
        yield* first.ask(`power ${id} start 30`)
        yield* until("running", () => stateOf(dataDir, id).status === "running")
        return id
      })
      const [stopped, ended, survivor] = [
        yield* up({}),
        yield* up({ process: { invocation: waitsForGo("exit 9") } }),
        yield* up({})
      ]
      yield* until("no report is queued", () =>
        [stopped, ended, survivor].every((id) => stateOf(dataDir, id).reports.length === 0)
      )
      const { free } = fillDisk(dataDir)
      yield* first.ask(`power ${stopped} stop 30`)
      yield* until("recorded", () => stateOf(dataDir, stopped).status === "offline")
      yield* first.kill
      writeFileSync(join(dataDir, "servers", ended, "files/go"), "")
      yield* until("ended", () => readFileSync(join(dataDir, "servers", ended, "exit"), "utf8") === "9\n")

      const notes = recorder()
      const { daemon } = yield* openDaemon(dataDir, notes)
      yield* Effect.addFinalizer(() =>
        Effect.forEach([stopped, ended, survivor], (id) => Effect.ignore(daemon.remove(id)))
      )
      yield* until("reported", () =>
        notes.reports.some(({ server_id, type }) => server_id === ended && type === "status")
      )
      const crashes = notes.reports.flatMap((report) => (report.type === "crash" ? [report] : []))
      assert.deepStrictEqual(
        crashes.map(({ crash, server_id }) => [server_id, crash.reason]),
        [[ended, "exit code 9"]]
      )
      const statuses = [stopped, ended, survivor].map((id) => daemon.status(id))
      assert.deepStrictEqual(yield* Effect.all(statuses), ["offline", "offline", "running"])
      yield* until("recorded", () => stateOf(dataDir, ended).status === "offline")
      free()
    }).pipe(Effect.scoped)
  )

  it.live("a state that could not be written is written once there is space", () =>
    Effect.gen(function* () {
      const disk = yield* smallDisk(1)
      const file = yield* createInstanceFile(disk, specOf())
      const { free } = fillDisk(disk)
      const fork = yield* FiberSet.makeRuntime<never, void, never>()
      const waitingWrites = new WaitingWrites(fork)
      file.setOwner({ onReports: () => {}, onWaiting: () => waitingWrites.update(file) })
      yield* file.update((state) => ({ ...state, held: true }))
      const kept = () => JSON.parse(readFileSync(join(disk, "server.json"), "utf8")).held === true
      assert.deepStrictEqual([file.get().held, kept()], [true, false])
      free()
      yield* until("recorded", kept)
    }).pipe(Effect.scoped)
  )
})

/** Writes as many bytes as each line of its input says. */
const writer = `sh -c 'echo ready; while read -r line; do [ "$line" = stop ] && exit 0; head -c "$line" /dev/zero > blob; echo done; done'`

describe("spec 4.10: limits: disk_space", () => {
  for (const instanceFiles of ["overlay", "copy"] as const) {
    it.live(
      `a server over the limit is stopped with a line in its console, and a start is refused: ${instanceFiles}`,
      () =>
        Effect.gen(function* () {
          const { crashes, daemon, dataDir, lastStatus, running, statuses } = yield* harness({
            instanceFiles,
            diskCheckSeconds: 0.02
          })
          const id = yield* running({
            process: { invocation: writer },
            install: { script: "echo base > file" },
            definition: { limits: { disk_space: 2 } }
          })
          yield* daemon.commands(id, ["1000000"])
          const written = daemon.stats(id, { update_disk_usage: true })
          const within = yield* Effect.repeat(written, { until: (now) => (now.disk_bytes ?? 0) >= 1_000_000 })
          assert.strictEqual(within.disk_max, 2_000_000)
          assert.strictEqual(lastStatus(id), "running")
          yield* daemon.commands(id, ["3000000"])
          yield* until("stopped", () => lastStatus(id) === "offline")
          assert.deepStrictEqual(statuses(id).slice(-2), ["stopping", "offline"])
          assert.deepStrictEqual(crashes(id), [])
          const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
          assert.match(
            items.join("\n"),
            /^\[the node stops the server: it exceeds its disk limit: 3\.0 MB written, 2\.0 MB allowed\]$/m
          )
          const error = yield* Effect.flip(daemon.power(id, "start", 30))
          assert.deepInclude(error, {
            status: 409,
            detail: "the server uses 3.0 MB, its disk limit is 2.0 MB"
          })
          rmSync(join(dataDir, "servers", id, "files", "blob"))
          yield* daemon.power(id, "start", 30)
          yield* until("running", () => lastStatus(id) === "running")
        }).pipe(Effect.scoped)
    )
  }

  it.live("the base and shared files do not count if they are not copied", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, running } = yield* harness({ diskCheckSeconds: 0.02 })
      write(dataDir, { "volumes/w/level": "x".repeat(3_000_000), "volumes/s/shared": "x".repeat(3_000_000) })
      const id = yield* running({
        process: { invocation: writer },
        install: { script: zeros("big", 3) },
        definition: {
          limits: { disk_space: 1 },
          volumes: [
            { name: "w", source: "w", target: "world", mode: "cow" },
            { name: "s", source: "s", target: "s", mode: "rw" }
          ]
        }
      })
      const stats = yield* daemon.stats(id, { update_disk_usage: true })
      assert.isBelow(stats.disk_bytes ?? Number.NaN, 100_000)
      assert.isBelow(stats.overlay_bytes ?? Number.NaN, 100_000)
      assert.isTrue(existsSync(join(dataDir, "servers", id, "files/big")))
      assert.strictEqual(readFileSync(join(dataDir, "servers", id, "files/world/level")).length, 3_000_000)
    }).pipe(Effect.scoped)
  )
})

describe.runIf(withExt4)("operations, Limits of servers: the reserve of a node's disk", () => {
  const isStopped = Effect.fnUntraced(function* (program: string) {
    const log: Array<string> = []
    const { daemon, lastStatus, notes, running } = yield* harness({}, yield* ext4Disk, log)
    const quiet = yield* running()
    const hungry = yield* running({
      process: { invocation: `sh -c 'echo ready; ${program}'`, stop_command: "^SIGTERM" }
    })
    yield* until("stopped", () => lastStatus(hungry) === "offline")
    const last = notes.reports.filter(({ server_id }) => server_id === hungry).at(-1)
    const problem = last?.type === "status" ? last.problem : undefined
    assert.strictEqual(problem?.code, "507")
    const why = /^the disk of its node has .* MB free, less than the reserve of 25\.\d MB, and the server/
    assert.match(problem?.detail ?? "", why)
    assert.include(log, `Warn the node stops the server: ${problem?.detail} server_id=${hungry}`)
    assert.strictEqual(yield* daemon.status(quiet), "running")
    return {
      restart: Effect.andThen(
        daemon.power(hungry, "start", 30),
        until("running", () => lastStatus(hungry) === "running")
      )
    }
  })

  it.live("below it, the server that has written most is stopped with the reason; others run on", () =>
    Effect.gen(function* () {
      // Its writers end at once, and no name leads to what they write.
      const { restart } = yield* isStopped(
        "exec 3> big; rm big; while :; do head -c 8000000 /dev/zero >&3 & wait; done"
      )
      yield* restart
    }).pipe(Effect.scoped)
  )

  it.live("a server that allocates space without a write is stopped, too", () =>
    Effect.scoped(isStopped("n=0; while :; do fallocate -l 8M file$n; n=$((n+1)); sleep 0.01; done"))
  )

  it.live("a server whose writers end without a trace is stopped, too", () =>
    Effect.scoped(
      isStopped(
        `exec perl -e "\\$SIG{CHLD}=q(IGNORE); for (1..999) { fork or exec qw(dd if=/dev/zero bs=1M count=1 status=none), qq(of=file\\$_); select undef,undef,undef,0.02 }"`
      )
    )
  )
})
