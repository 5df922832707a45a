import { closeSync, constants, openSync, writeSync } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Clock, Deferred, Effect, Layer, Schedule, Schema, Semaphore } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import {
  errorCode,
  type IoError,
  io,
  makeFolder,
  openFile,
  orMissing,
  readText,
  removeTree
} from "../fsio.ts"
import { type Cgroups, openCgroups } from "./cgroup.ts"
import { type ChildEnvOptions, inheritedEnv } from "./childEnv.ts"
import { signalProcess, startJob } from "./jobs.ts"
import { type Leader, makeProcessTable, type ProcessTable } from "./processTable.ts"
import { bootId, bootUptimeMillis, readNetwork, readProc, TICKS_PER_SECOND } from "./procfs.ts"
import { type Adopted, ConsoleInputFailed, type Launch, LaunchFailed, type Run, Runtime } from "./Runtime.ts"
import { SHIM } from "./shim.ts"
import { spawnChild } from "./spawnChild.ts"

export interface ProcessRuntimeOptions extends ChildEnvOptions {
  /** Identity of the node and its data folder; marks every process that it starts. */
  readonly node: string
  /** Where cgroup v2 groups can be made; absent: found out. */
  readonly cgroup_root?: string
}

/** Killed from outside, and nobody was left to say so. */
const KILLED = 137
/** Liveness of an adopted process, in ms. */
const WATCH = 500
/** How long killed processes are waited for before they are given up with a warning, in ms. */
const KILL_PATIENCE = 10_000

const RunRecord = Schema.fromJsonString(
  Schema.Struct({ token: Schema.String, pid: Schema.Int, start: Schema.String, boot: Schema.String })
)
const decodeRunRecord = Schema.decodeUnknownEffect(RunRecord)

interface Parts {
  readonly table: ProcessTable
  readonly cgroups: Cgroups | undefined
}

const runPath = (folder: string) => join(folder, "run.json")
const exitPath = (folder: string) => join(folder, "exit")
const inputPath = (folder: string) => join(folder, "console.in")

/** Kills all that belongs to a server until nothing is left. */
const killAll = Effect.fnUntraced(function* (parts: Parts, server: string, leader: Leader | undefined) {
  const deadline = (yield* Clock.currentTimeMillis) + KILL_PATIENCE
  let wait = 5
  while (true) {
    if (parts.cgroups !== undefined) yield* parts.cgroups.kill(server)
    const left = parts.table.members(server, leader, 0)
    if (left.length === 0) break
    for (const proc of left) signalProcess(proc.pid, "SIGKILL")
    if ((yield* Clock.currentTimeMillis) > deadline) {
      yield* Effect.logWarning(`processes of ${server} do not end: ${left.map((proc) => proc.pid).join(" ")}`)
      break
    }
    yield* Effect.sleep(wait)
    wait = Math.min(wait * 2, 100)
  }
  if (parts.cgroups !== undefined) yield* parts.cgroups.remove(server)
})

const exitOf = (parts: Parts, server: string, code: number): Effect.Effect<ProcessExit> =>
  parts.cgroups === undefined || code !== KILLED
    ? Effect.succeed({ code, out_of_memory: false })
    : Effect.map(parts.cgroups.outOfMemoryKills(server), (kills) => ({ code, out_of_memory: kills > 0 }))

/** The code that the shim wrote; killed when it could not. */
const recordedExit = (folder: string): Effect.Effect<number> =>
  readText(exitPath(folder)).pipe(
    Effect.map((text) => Number(/^(\d{1,3})\n$/.exec(text)?.[1] ?? KILLED)),
    Effect.orElseSucceed(() => KILLED)
  )

/** Writes all of it or waits a little for room; never blocks. */
const writeInput = (folder: string, text: string): Effect.Effect<void, ConsoleInputFailed> => {
  const data = Buffer.from(text)
  let sent = 0
  const failed = (cause: unknown) =>
    new ConsoleInputFailed({
      full: errorCode(cause) === "EAGAIN",
      message:
        errorCode(cause) === "EAGAIN" ? "the server does not read its console" : "the console is closed"
    })
  const open = Effect.try({
    try: () => openSync(inputPath(folder), constants.O_WRONLY | constants.O_NONBLOCK),
    catch: failed
  })
  const push = (fd: number) =>
    Effect.try({
      try: () => {
        while (sent < data.length) sent += writeSync(fd, data, sent)
      },
      catch: failed
    })
  const patience = Schedule.max([Schedule.spaced(50), Schedule.recurs(8)])
  return Effect.scoped(
    Effect.acquireRelease(open, (fd) => Effect.sync(() => closeSync(fd))).pipe(
      Effect.flatMap((fd) => Effect.retry(push(fd), { schedule: patience, while: (error) => error.full }))
    )
  )
}

const makeRun = Effect.fnUntraced(function* (
  parts: Parts,
  at: Pick<Launch, "server_id" | "folder">,
  leader: Leader,
  code: Effect.Effect<number>
) {
  const { table, cgroups } = parts
  const { server_id, folder } = at
  const input = yield* Semaphore.make(1)
  const ended = Effect.flatMap(code, (value) => exitOf(parts, server_id, value))
  const toAll = (signal: NodeJS.Signals) =>
    Effect.sync(() => {
      for (const proc of table.members(server_id, leader, 0)) signalProcess(proc.pid, signal)
    })
  const frozen = (wanted: boolean) =>
    cgroups === undefined ? Effect.succeed(false) : cgroups.freeze(server_id, wanted)
  const run: Run = {
    ended,
    write: (line) => input.withPermit(writeInput(folder, `${line}\n`)),
    signal: (signal) =>
      Effect.sync(() => {
        const others = table.members(server_id, leader, 0).filter((proc) => proc.pid !== leader.pid)
        const group = others.filter((proc) => proc.pgrp === leader.pid)
        for (const proc of group.length > 0 ? group : others) signalProcess(proc.pid, signal)
      }),
    // Twice: what was forked while the first signals went out.
    pause: Effect.flatMap(frozen(true), (done) =>
      done ? Effect.void : Effect.repeat(toAll("SIGSTOP"), { times: 1 })
    ),
    resume: Effect.flatMap(frozen(false), () => toAll("SIGCONT")),
    kill: killAll(parts, server_id, leader),
    usage: Effect.gen(function* () {
      const procs = table.members(server_id, leader, 50)
      if (procs.length === 0) return undefined
      const grouped = cgroups === undefined ? undefined : yield* cgroups.memory(server_id)
      const main = procs.find((proc) => proc.ppid === leader.pid)
      const sum = (figure: (proc: (typeof procs)[number]) => number) =>
        procs.reduce((total, proc) => total + figure(proc), 0)
      return {
        memory_bytes: grouped ?? sum((proc) => proc.rss_bytes),
        cpu_ms: (sum((proc) => proc.ticks) * 1000) / TICKS_PER_SECOND,
        uptime_ms: Math.max(0, bootUptimeMillis() - (Number(leader.start) * 1000) / TICKS_PER_SECOND),
        network: (main === undefined ? undefined : readNetwork(main.pid)) ?? { rx_bytes: 0, tx_bytes: 0 }
      }
    })
  }
  return run
})

const start = Effect.fnUntraced(
  function* (parts: Parts, options: ProcessRuntimeOptions, launch: Launch) {
    const { folder, server_id, token } = launch
    for (const path of [runPath(folder), exitPath(folder), inputPath(folder)]) yield* removeTree(path)
    const temporary = join(folder, "tmp")
    yield* makeFolder(temporary)
    const group =
      parts.cgroups === undefined
        ? ""
        : join(yield* parts.cgroups.prepare(server_id, launch.limits), "cgroup.procs")
    yield* makeFifo(inputPath(folder))
    // Opened for both directions: the server never sees the end of its input, whoever opens and closes it.
    const input = yield* openFile(inputPath(folder), constants.O_RDWR)
    const output = yield* openFile(join(folder, "console.log"), "a", 0o600)
    const env = {
      ...inheritedEnv(options),
      HOME: launch.cwd,
      TMPDIR: temporary,
      ...launch.env,
      MUSTER_NODE: options.node,
      MUSTER_SERVER: server_id
    }
    const child = yield* spawnChild(
      ["/bin/sh", "-c", SHIM, "muster-shim", runPath(folder), exitPath(folder), group, token, ...launch.argv],
      { cwd: launch.cwd, env, stdio: [input.fd, output.fd, output.fd] }
    )
    const leader = { pid: child.pid, start: readProc(child.pid)?.start ?? "0" }
    return yield* makeRun(parts, launch, leader, Deferred.await(child.exited))
  },
  Effect.scoped,
  Effect.catchTag("IoError", (error: IoError) => Effect.fail(new LaunchFailed({ message: error.message })))
)

/** Node has no call for it; coreutils' and busybox' `mkfifo` do the same. */
const makeFifo = Effect.fnUntraced(function* (path: string) {
  const child = yield* spawnChild(["mkfifo", "-m", "600", path], { stdio: "ignore" })
  const code = yield* Deferred.await(child.exited)
  if (code !== 0)
    return yield* new LaunchFailed({ message: `cannot create ${path}: mkfifo exited with ${code}` })
})

/** The run record; read again for a moment where the shim is just writing it. Undefined: there is none. */
const readRun = (folder: string) =>
  readText(runPath(folder)).pipe(
    orMissing(undefined),
    Effect.flatMap((text) => (text === undefined ? Effect.undefined : decodeRunRecord(text))),
    Effect.retry({ schedule: Schedule.max([Schedule.spaced(50), Schedule.recurs(10)]) }),
    Effect.orElseSucceed(() => undefined)
  )

const adopt = Effect.fnUntraced(function* (
  parts: Parts,
  at: Pick<Launch, "server_id" | "token" | "folder">
): Effect.fn.Return<Adopted> {
  const { folder, server_id, token } = at
  // Where no record is there, this claims the run: a shim that comes late ends at once.
  yield* io("give up the run", () => fs.writeFile(runPath(folder), "given up\n", { flag: "wx" })).pipe(
    Effect.catch((error) => (error.code === "EEXIST" ? Effect.void : Effect.logWarning(error.message)))
  )
  const record = yield* readRun(folder)
  const ended = Effect.gen(function* () {
    const exit = yield* exitOf(parts, server_id, yield* recordedExit(folder))
    yield* killAll(parts, server_id, undefined)
    return { _tag: "Ended", exit } as const
  })
  if (record === undefined || record.token !== token || record.boot !== bootId()) return yield* ended
  const leader = { pid: record.pid, start: record.start }
  const lives = () => readProc(leader.pid)?.start === leader.start
  if (!lives()) return yield* ended
  const code = Effect.sync(lives).pipe(
    Effect.repeat({ schedule: Schedule.spaced(WATCH), while: (alive) => alive }),
    Effect.andThen(recordedExit(folder))
  )
  return { _tag: "Running", run: yield* makeRun(parts, at, leader, code) }
})

/** Servers as plain processes of this machine (Linux); they outlive this service and are adopted again. */
export const ProcessRuntime = {
  layer: (options: ProcessRuntimeOptions): Layer.Layer<Runtime> =>
    Layer.effect(
      Runtime,
      Effect.gen(function* () {
        const found = yield* openCgroups(options.cgroup_root)
        if ("reason" in found) {
          yield* Effect.logWarning(`memory and CPU limits are not enforced: ${found.reason}`)
        }
        const parts: Parts = {
          table: makeProcessTable(options.node),
          cgroups: "cgroups" in found ? found.cgroups : undefined
        }
        const sweep = (server: string) => killAll(parts, server, undefined)
        const jobs = { inherited: inheritedEnv(options), node: options.node, sweep }
        return Runtime.of({
          kind: "process",
          start: (launch) => start(parts, options, launch),
          adopt: (at) => adopt(parts, at),
          sweep,
          alive: Effect.sync(() => parts.table.names()),
          job: (job) => startJob(job, jobs)
        })
      })
    )
}
