import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { CONSOLE_BOUND, RELAY_MAX, readCutRecord } from "../../../src/daemon/console/consoleFiles.ts"
import { parseStat } from "../../../src/daemon/host/procfs.ts"
import { RELAY } from "../../../src/daemon/runtime/consoleRelay.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { smallDisk } from "../files/scene.ts"
import { newId, openDaemon, recorder } from "../support.ts"

const MIB = 1024 * 1024

const shells = (
  [
    ["sh", []],
    ["bash", ["--posix"]],
    ["busybox", ["sh"]]
  ] as const
).filter(([program]) => spawnSync(program, ["-c", "true"]).error === undefined)

const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0

/** What a server's console takes on the disk. */
const taken = (folder: string) =>
  readdirSync(folder)
    .filter((name) => name.startsWith("console."))
    .reduce((sum, name) => sum + sizeOf(join(folder, name)), 0)

/** A relay with its input; ends with the scope. */
const relayIn = (folder: string, begin = 0, [program, args]: (typeof shells)[number] = ["sh", []]) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child: ChildProcess = spawn(program, [...args, "-c", RELAY, "relay", "", String(begin)], {
        cwd: folder,
        stdio: ["pipe", "ignore", "ignore"]
      })
      const over = () => child.exitCode !== null || child.signalCode !== null
      return { child, over, write: (bytes: Uint8Array | string) => child.stdin?.write(bytes) }
    }),
    ({ child }) => Effect.sync(() => child.stdin?.end())
  )

/** Numbered lines, so that each byte has its place. */
const numbered = (mib: number) => {
  const count = Math.ceil((mib * MIB) / 64)
  return Buffer.from(Array.from({ length: count }, (_, i) => `${String(i).padStart(63, ".")}\n`).join(""))
}

const childrenOf = (pid: number) =>
  readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const proc = parseStat(readFileSync(`/proc/${name}/stat`, "latin1"))
      return proc?.ppid === pid ? [proc.pid] : []
    } catch {
      return [] // it has ended
    }
  })

describe("process runtime, console without the daemon", () => {
  for (const shell of shells) {
    it.live(
      `what is printed arrives at once; the newest is kept, and what is not is counted: ${shell[0]}`,
      () =>
        Effect.gen(function* () {
          const folder = yield* temporaryFolder
          const log = join(folder, "console.log")
          writeFileSync(log, "before\n")
          const { child, over, write } = yield* relayIn(folder, 7, shell)
          write("first\n")
          yield* until("the first line", () => readFileSync(log, "utf8") === "before\nfirst\n")
          let most = 0
          const bytes = numbered(70)
          write(bytes)
          child.stdin?.end()
          yield* until(
            "all is copied",
            () => {
              most = Math.max(most, taken(folder))
              return over()
            },
            60
          )
          assert.strictEqual(child.exitCode, 0)
          assert.isAtMost(most, 2 * CONSOLE_BOUND + 4096)
          const left = Buffer.concat([readFileSync(`${log}.1`), readFileSync(log)])
          assert.isAtLeast(left.length, RELAY_MAX)
          assert.isTrue(left.equals(bytes.subarray(bytes.length - left.length)))
          const lostBytes = bytes.length + "before\nfirst\n".length - left.length
          assert.deepStrictEqual(yield* readCutRecord(folder), { begins: "gone", lostBytes })
        }).pipe(Effect.scoped)
    )
  }

  it.live("the first time nothing is left out, and where the run begins is known", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const log = join(folder, "console.log")
      writeFileSync(log, "before\n")
      const { over, child, write } = yield* relayIn(folder, 7)
      write(numbered(17))
      child.stdin?.end()
      yield* until("all is copied", over, 60)
      assert.strictEqual(sizeOf(log) + sizeOf(`${log}.1`), 17 * MIB + 7)
      assert.deepStrictEqual(yield* readCutRecord(folder), { begins: 7, lostBytes: 0 })
    }).pipe(Effect.scoped)
  )

  it.live("a disk that is full never makes the server wait; with room again the console goes on", () =>
    Effect.gen(function* () {
      const folder = yield* smallDisk(2)
      const log = join(folder, "console.log")
      writeFileSync(join(folder, "ballast"), Buffer.alloc(1.5 * MIB))
      const { child, write } = yield* relayIn(folder)
      write(numbered(8))
      yield* until("all is taken", () => child.stdin?.writableLength === 0, 60)
      writeFileSync(join(folder, "ballast"), "")
      yield* until("it is written again", () => {
        write("once more\n")
        return readFileSync(log, "utf8").includes(
          "\n[some output is missing here: the disk was full]\nonce more\n"
        )
      })
    }).pipe(Effect.scoped)
  )

  it.live("a copier that is killed is replaced", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const log = join(folder, "console.log")
      const { child, over, write } = yield* relayIn(folder)
      write("one\n")
      yield* until("one", () => sizeOf(log) > 0)
      const [copier = 0] = childrenOf(child.pid ?? 0)
      process.kill(copier, "SIGKILL")
      yield* until("two", () => {
        write("two\n")
        return readFileSync(log, "utf8").endsWith("two\n")
      })
      assert.isFalse(over())
    }).pipe(Effect.scoped)
  )
})

describe("node-protocol, daemon killed: consoles", () => {
  it.live(
    "a flood without a daemon stays within bounds; the next one adopts, and nothing of the end is lost",
    () =>
      Effect.gen(function* () {
        const data_dir = yield* temporaryFolder
        const first = yield* daemonProcess(data_dir)
        const id = newId()
        const folder = join(data_dir, "servers", id)
        const go = (name: string) => writeFileSync(join(folder, "files", name), "")
        const waitFor = (name: string) => `while [ ! -e ${name} ]; do sleep 0.02; done`
        const invocation = `sh -c 'echo ready; ${waitFor("go")}; yes flood | head -c 300000000; echo quiet; ${waitFor("end")}; echo last words; exit 7'`
        yield* first.ask(`create ${JSON.stringify({ id, process: { invocation } })}`)
        yield* until("installed", () => stateOf(data_dir, id).status === "offline")
        yield* first.ask(`power ${id} start 30`)
        yield* until("running", () => stateOf(data_dir, id).status === "running")
        yield* first.kill
        go("go")
        let most = 0
        yield* until(
          "the flood is over",
          () => {
            most = Math.max(most, taken(folder))
            const log = join(folder, "console.log")
            return existsSync(log) && readFileSync(log).subarray(-4096).includes("quiet\n")
          },
          60
        )
        assert.isAtMost(most, 2 * CONSOLE_BOUND + 4096)

        const notes = recorder()
        const { daemon } = yield* openDaemon(data_dir, notes)
        yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(id)))
        assert.strictEqual(yield* daemon.status(id), "running")
        const { items, total } = yield* daemon.logs(id, { page: 1, per_page: 1 })
        assert.deepStrictEqual(items, ["quiet"])
        const oldest = yield* daemon.logs(id, { page: total, per_page: 1 })
        assert.match(oldest.items[0] ?? "", /^\[\d{9} bytes of output were left out here\]$/)
        go("end")
        const crash = () => notes.reports.find((report) => report.type === "crash")
        yield* until("crashed", () => crash() !== undefined)
        assert.strictEqual(crash()?.crash.exit_code, 7)
        const last = yield* daemon.logs(id, { page: 1, per_page: 2 })
        assert.deepStrictEqual(last.items, ["quiet", "last words"])
      }).pipe(Effect.scoped)
  )

  // Once its signal is still there, once it is not.
  for (const bytes of [20_000_000, 60_000_000]) {
    it.live(
      `a server that comes online without a daemon is running for the next one, ${bytes} bytes later`,
      () =>
        Effect.gen(function* () {
          const data_dir = yield* temporaryFolder
          const first = yield* daemonProcess(data_dir)
          const id = newId()
          const folder = join(data_dir, "servers", id)
          const invocation = `sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo ready; yes more | head -c ${bytes}; echo quiet; exec sleep 300'`
          yield* first.ask(`create ${JSON.stringify({ id, process: { invocation, start_timeout: 300 } })}`)
          yield* until("installed", () => stateOf(data_dir, id).status === "offline")
          yield* first.ask(`power ${id} start 30`)
          yield* until("starting", () => stateOf(data_dir, id).status === "starting")
          yield* first.kill
          // Its time to come online has been over for long when it is looked at.
          const state = stateOf(data_dir, id)
          const began = { ...state, run: { ...state.run, started_at: 1000 } }
          writeFileSync(join(folder, "server.json"), JSON.stringify(began))
          writeFileSync(join(folder, "files", "go"), "")
          yield* until("it is quiet", () => {
            const log = join(folder, "console.log")
            return existsSync(log) && readFileSync(log).subarray(-4096).includes("quiet\n")
          })
          assert.isTrue(existsSync(join(folder, "console.log.1")))
          const { daemon } = yield* openDaemon(data_dir, recorder())
          yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(id)))
          yield* until("running", () => stateOf(data_dir, id).status === "running")
        }).pipe(Effect.scoped)
    )
  }

  it.live("a run of a version that had no relay is adopted, read and ended", () =>
    Effect.gen(function* () {
      const data_dir = yield* temporaryFolder
      const first = yield* daemonProcess(data_dir)
      const id = newId()
      const folder = join(data_dir, "servers", id)
      yield* first.ask(`create ${JSON.stringify({ id })}`)
      yield* until("installed", () => stateOf(data_dir, id).status === "offline")
      yield* first.ask(`power ${id} start 30`)
      yield* until("running", () => stateOf(data_dir, id).status === "running")
      yield* first.kill
      const { relay: _, ...record } = JSON.parse(readFileSync(join(folder, "run.json"), "utf8"))
      writeFileSync(join(folder, "run.json"), JSON.stringify(record))
      const { daemon } = yield* openDaemon(data_dir, recorder())
      yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(id)))
      assert.strictEqual(yield* daemon.status(id), "running")
      yield* daemon.commands(id, ["hello"])
      yield* until("it answers", () =>
        readFileSync(join(folder, "console.log"), "utf8").endsWith("got hello\n")
      )
      yield* daemon.power(id, "stop", 30)
      yield* until("offline", () => stateOf(data_dir, id).status === "offline")
    }).pipe(Effect.scoped)
  )
})
