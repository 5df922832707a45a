/** Servers that fork and end without a pause, so that no pass over the processes of the host sees them for long. */
import { execFileSync, spawn } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { killAllOf } from "../../src/daemon/runtime/processRun.ts"
import { daemonProcessAs, stateOf } from "../daemon/daemonChild.ts"
import { newId } from "../daemon/support.ts"
import { until } from "../support/eventually.ts"
import { hasLive } from "../support/processes.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"

/** A separate uid range, because other tests run in parallel. */
const FIRST = 64_100 + (process.pid % 1000)
const uids = { first: FIRST, last: FIRST + 9 }

/** A chain of processes: each forks the next and ends, until the file that holds them is gone. */
const CHAINS = `perl -e 'while (1) { exit if fork; exit if !-e "/tmp/HOLD" }' < /dev/null > /dev/null 2>&1 &`

/** Passes over the processes, of which at least one would see a chain. */
const PASSES = 50
const isAlive = (uid: number) => Array.from({ length: PASSES }).some(() => hasLive(uid))

const opened = Effect.gen(function* () {
  const folder = yield* temporaryFolderIn("/var/lib")
  const data = join(folder, "node")
  mkdirSync(data)
  const hold = `muster-chains-${process.pid}-${Date.now()}`
  yield* Effect.acquireRelease(
    Effect.sync(() => mkdirSync(`/tmp/${hold}`)),
    () => Effect.sync(() => rmSync(`/tmp/${hold}`, { recursive: true }))
  )
  const isolation = { mode: "auto", uids, hidden: [folder], claimsDir: join(folder, "claims") }
  const start = () =>
    daemonProcessAs(
      ["setpriv", "--bounding-set=-sys_admin"],
      data,
      ...["", "", "test-node", JSON.stringify(isolation)]
    )
  const up = Effect.fnUntraced(function* (
    daemon: Effect.Success<ReturnType<typeof start>>,
    more: { readonly after?: string; readonly online_signal?: string; readonly start_timeout?: number } = {}
  ) {
    const { after = "trap 'exit 0' TERM; while :; do sleep 0.05; done", ...process_ } = more
    const id = newId()
    const script = `${CHAINS.replace("HOLD", hold)} echo ready; ${after}`.replaceAll("'", `'\\''`)
    const process = {
      invocation: `sh -c '${script}'`,
      online_signal: "ready",
      stop_command: "^SIGTERM",
      ...process_
    }
    yield* daemon.ask(`create ${JSON.stringify({ id, process })}`)
    yield* until("it is installed", () => stateOf(data, id).status === "offline")
    yield* daemon.ask(`power ${id} start 30`)
    const uid: number = stateOf(data, id).uid
    return { id, uid }
  })
  const becomes = (id: string, status: string) =>
    until(`${id} is ${status}`, () => stateOf(data, id).status === status)
  return { data, start, up, becomes }
})

describe("SECURITY, process runtime: processes that fork and end without a pause, without namespaces", () => {
  it.live(
    "no process outlives a stop, a kill, a crash, a start timeout or a deletion",
    () =>
      Effect.gen(function* () {
        const { becomes, data, start, up } = yield* opened
        const daemon = yield* start()
        assert.strictEqual(daemon.level, "user")
        const ends = [
          { by: "stop", more: {}, end: (id: string) => daemon.ask(`power ${id} stop 10`) },
          { by: "kill", more: {}, end: (id: string) => daemon.ask(`power ${id} kill 0`) },
          { by: "crash", more: { after: "sleep 0.3; exit 1" }, end: () => Effect.void },
          { by: "start timeout", more: { online_signal: "never", start_timeout: 1 }, end: () => Effect.void }
        ]
        for (const { by, end, more } of ends) {
          const { id, uid } = yield* up(daemon, more)
          yield* until(`${by}: the chains run`, () => isAlive(uid))
          yield* end(id)
          yield* becomes(id, "offline")
          assert.isFalse(isAlive(uid), by)
          yield* daemon.ask(`remove ${id}`)
        }
        const { id, uid } = yield* up(daemon)
        yield* until("the chains run", () => isAlive(uid))
        yield* daemon.ask(`remove ${id}`)
        assert.isFalse(isAlive(uid), "deletion")
        assert.isFalse(existsSync(join(data, "servers", id)))
      }).pipe(Effect.scoped),
    150_000
  )

  it.live(
    "no process outlives its server after kill -9 of the daemon, even if its folder is gone",
    () =>
      Effect.gen(function* () {
        const { becomes, data, start, up } = yield* opened
        const first = yield* start()
        // A server that was asked to stop does not start again with its daemon.
        const stubborn = { after: "trap '' TERM; while :; do sleep 0.05; done" }
        const [kept, gone] = [yield* up(first, stubborn), yield* up(first)]
        yield* becomes(kept.id, "running")
        yield* becomes(gone.id, "running")
        yield* until("the chains run", () => isAlive(kept.uid) && isAlive(gone.uid))
        yield* first.ask(`power ${kept.id} stop 60`)
        yield* becomes(kept.id, "stopping")
        yield* first.kill
        process.kill(
          JSON.parse(readFileSync(join(data, "servers", kept.id, "run.json"), "utf8")).pid,
          "SIGKILL"
        )
        rmSync(join(data, "servers", gone.id), { recursive: true })
        const second = yield* start()
        yield* becomes(kept.id, "offline")
        assert.isFalse(isAlive(kept.uid))
        assert.isFalse(isAlive(gone.uid))
        yield* second.ask(`remove ${kept.id}`)
      }).pipe(Effect.scoped),
    150_000
  )
})

const module = join(import.meta.dirname, "../../src/daemon/runtime/processRun.ts")

describe("SECURITY, process runtime: kills by uid", () => {
  it.live(
    "no process can stop or kill its killer",
    () =>
      Effect.gen(function* () {
        const uid = FIRST + 9
        const as = ["--reuid", String(uid), "--regid", String(uid), "--clear-groups", "--"]
        for (const signal of ["STOP", "KILL"]) {
          // One attempt may miss the killer.
          for (let attempt = 0; attempt < 40; attempt++) {
            yield* Effect.acquireRelease(
              Effect.sync(() => spawn("setpriv", [...as, "perl", "-e", `kill("${signal}", -1) while 1`])),
              (attacker) => Effect.sync(() => attacker.kill("SIGKILL"))
            )
            yield* until("the attacker runs", () => hasLive(uid))
            yield* Effect.timeoutOrElse(killAllOf(uid), {
              duration: "10 seconds",
              orElse: () => Effect.die(`the killer does not end: ${signal}`)
            })
            yield* until("the attacker ends", () => !hasLive(uid))
          }
        }
      }).pipe(Effect.scoped),
    120_000
  )

  it.live("the processes of root and of the daemon are never killed", () =>
    Effect.sync(() => {
      const script = `
        import { spawn } from "node:child_process"
        import { Effect } from "effect"
        import { repeatable } from "../../src/daemon/helper/Helper.ts"
        import { killAllOf } from "${module}"
        const other = spawn("sleep", ["60"])
        const own = process.geteuid()
        for (const uid of [0, -1, own, Number.NaN, 2 ** 32]) await Effect.runPromise(killAllOf(uid))
        for (const word of ["0", "-1", "", "0x10", "4294967295", "4294967296", String(own)])
          await Effect.runPromise(repeatable("kill", [word]))
        console.log(other.exitCode === null && other.signalCode === null ? "alive" : "killed")
        process.exit(0)`
      // Kills in another namespace of processes do not reach this one.
      const output = execFileSync(
        "unshare",
        [
          "--pid",
          "--fork",
          "--mount-proc",
          "--kill-child",
          process.execPath,
          "--input-type=module",
          "-e",
          script
        ],
        { cwd: import.meta.dirname, encoding: "utf8" }
      )
      assert.match(output, /^alive$/m)
    })
  )
})
