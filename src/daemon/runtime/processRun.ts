import { join } from "node:path"
import { Deferred, Effect, Schedule } from "effect"
import { backoff, makePause } from "../../shared/work/backoff.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import { repeatable } from "../helper/Helper.ts"
import {
  bootUptimeMillis,
  type Proc,
  readBoundToAll,
  readNetwork,
  readProc,
  TICKS_PER_SECOND
} from "../host/procfs.ts"
import { runTool } from "../host/runTool.ts"
import { CGROUP_LIMITS, type Cgroups } from "./cgroup.ts"
import { KILLED, type ProcessExit } from "./exitReason.ts"
import { launchProcess } from "./isolatedStart.ts"
import type { Isolation } from "./isolation.ts"
import { INTERRUPT, makeConsoleInput, type Relay, relayEnded } from "./processConsole.ts"
import { type Leader, ownProcesses, type ProcessTable, signalOwn, signalProcess } from "./processTable.ts"
import { type Job, type Launch, LaunchFailed, type Run, type RunningJob } from "./Runtime.ts"

/** The pause before a kill or a signal, in ms: calls of a moment share a pass over the host's processes. */
const SHARED_PASS = 10
/** The age of the process list that measurements of a moment share, in ms. */
const MEASURED_AGE = 500
const KILL_TIMEOUT = 10_000

/** The host facilities of the runtime. */
export interface HostParts {
  /** The identity of the node, which marks its processes. */
  readonly node: string
  /** The variables that every process has. */
  readonly inherited: Readonly<Record<string, string>>
  readonly table: ProcessTable
  /** Absent if limits cannot be enforced. */
  readonly cgroups: Cgroups | undefined
  /** Kills all processes with the uid of a server or job at once; nothing happens without such a uid. */
  readonly killUser: (name: string) => Effect.Effect<void>
  /** The names of servers and jobs that may have processes, once known. */
  started: Set<string> | undefined
}

/** Kills a uid's processes at once: forks would escape single kills. Never for root's uid or this process's. */
export const killAllOf = Effect.fnUntraced(
  function* (uid: number) {
    if (!(uid > 0) || uid === process.geteuid?.() || uid === process.getuid?.()) return
    const as = ["--reuid", String(uid), "--regid", String(uid), "--clear-groups"]
    const { code, errors } = yield* repeatable("kill", [String(uid)]).pipe(
      Effect.catchTag("HelperUnavailable", () =>
        Effect.map(runTool(["setpriv", ...as, "--", "/bin/sh", "-c", "kill -9 -1"]), ({ stderr }) => ({
          // The shell fails if there is no process.
          code: stderr.includes("setpriv") ? 1 : 0,
          errors: stderr
        }))
      )
    )
    if (code !== 0) yield* Effect.logWarning(`the processes of uid ${uid} are not killed at once: ${errors}`)
  },
  Effect.catch(({ message }) =>
    Effect.logWarning(`the processes of a uid are not killed at once: ${message}`)
  )
)

export const killAll = Effect.fnUntraced(function* (
  parts: HostParts,
  server: string,
  leader: Leader | undefined
) {
  const deadline = (yield* elapsedMillis) + KILL_TIMEOUT
  const pause = yield* makePause(backoff({ first: 5, longest: 100 }))
  let wait = Effect.sleep(SHARED_PASS)
  while (true) {
    if (parts.cgroups !== undefined) yield* parts.cgroups.kill(server)
    yield* parts.killUser(server)
    const since = performance.now()
    yield* wait
    const left = yield* parts.table.members(server, leader, performance.now() - since)
    if (left.length === 0) {
      parts.started?.delete(server)
      break
    }
    for (const proc of left) signalProcess(proc.pid, "SIGKILL")
    if ((yield* elapsedMillis) > deadline) {
      yield* Effect.logWarning("processes did not end after a kill").pipe(
        Effect.annotateLogs({ server_id: server, pids: left.map((proc) => proc.pid).join(" ") })
      )
      break
    }
    wait = pause
  }
  if (parts.cgroups !== undefined) yield* parts.cgroups.remove(server)
})

/** {@link killAll} without a known process. A server that was not started costs no pass over the processes of the host. */
export const sweep = (parts: HostParts, server: string) =>
  Effect.suspend(() =>
    parts.started === undefined || parts.started.has(server)
      ? killAll(parts, server, undefined)
      : (parts.cgroups?.remove(server) ?? Effect.void)
  )

export const exitOf = (parts: HostParts, server: string, code: number): Effect.Effect<ProcessExit> =>
  parts.cgroups === undefined || code !== KILLED
    ? Effect.succeed({ code, out_of_memory: false })
    : Effect.map(parts.cgroups.outOfMemoryKills(server), (kills) => ({ code, out_of_memory: kills > 0 }))

export interface LiveProcess {
  readonly leader: Leader
  readonly relay: Relay
  readonly helpers: number
  readonly terminal: boolean
  readonly code: Effect.Effect<number>
}

export const makeRun = Effect.fnUntraced(function* (
  parts: HostParts,
  at: Pick<Launch, "server_id" | "folder">,
  { code, helpers, leader, relay, terminal }: LiveProcess
) {
  const { table, cgroups } = parts
  const { server_id, folder } = at
  const input = yield* makeConsoleInput(join(folder, "console.in"))
  const ended = Effect.flatMap(code, (value) => exitOf(parts, server_id, value))
  const processesOf = (maxAgeMs: number) =>
    Effect.map(table.members(server_id, leader, maxAgeMs), (procs) => ownProcesses(procs, leader, helpers))
  // Excludes helpers: `unshare` stops itself again if it continues while its child is stopped.
  const signalEach = (signal: NodeJS.Signals) =>
    Effect.map(processesOf(0), ({ own }) => {
      for (const proc of own) signalProcess(proc.pid, signal)
    })
  const setFrozen = (wanted: boolean) =>
    cgroups === undefined ? Effect.succeed(false) : cgroups.freeze(server_id, wanted)
  return {
    ended,
    ...(cgroups === undefined ? { notEnforced: CGROUP_LIMITS } : {}),
    pids: Effect.map(table.members(server_id, leader, MEASURED_AGE), (procs) => procs.map(({ pid }) => pid)),
    boundToAll: Effect.flatMap(processesOf(MEASURED_AGE), ({ own }) =>
      readBoundToAll(own.map(({ pid }) => pid))
    ),
    write: (line) => input(`${line}\n`),
    ...(terminal ? { interrupt: input(INTERRUPT) } : {}),
    // Retried: a run that has just begun may not have a process for the signal.
    signal: (signal) =>
      Effect.suspend(() => {
        const since = performance.now()
        const send = Effect.suspend(() => processesOf(performance.now() - since))
        return Effect.map(Effect.delay(send, SHARED_PASS), ({ own }) => signalOwn(own, leader, signal))
      }).pipe(Effect.repeat({ until: (sent) => sent, schedule: Schedule.recurs(50) }), Effect.asVoid),
    // Sent twice, for processes that were forked during the first pass.
    pause: Effect.flatMap(setFrozen(true), (done) =>
      done ? Effect.void : Effect.repeat(signalEach("SIGSTOP"), { times: 1 })
    ).pipe(Effect.as(true)),
    resume: Effect.flatMap(setFrozen(false), () => signalEach("SIGCONT")),
    kill: Effect.andThen(killAll(parts, server_id, leader), relayEnded(relay)),
    usage: Effect.gen(function* () {
      const { main, own } = yield* processesOf(50)
      if (own.length === 0) return undefined
      const grouped = cgroups === undefined ? undefined : yield* cgroups.memory(server_id)
      const sum = (figure: (proc: Proc) => number) => own.reduce((total, proc) => total + figure(proc), 0)
      return {
        memory_bytes: grouped ?? sum((proc) => proc.rssBytes),
        cpu_ms: (sum((proc) => proc.ticks) * 1000) / TICKS_PER_SECOND,
        uptime_ms: Math.max(0, bootUptimeMillis() - (Number(leader.start) * 1000) / TICKS_PER_SECOND),
        network: main === undefined ? undefined : readNetwork(main.pid)
      }
    })
  } satisfies Run
})

/** The time for remaining output after the end, in ms; another process may hold the pipe open. */
const OUTPUT_GRACE = 300

/** The uids of running jobs; jobs of one software share a uid. */
export const makeJobUsers = (kills: KeyedLock) => {
  const uids = new Map<string, number>()
  return {
    /** Returns the uid of a job that no other job shares, so that all processes with the uid are its own. */
    uidOf: (name: string): number | undefined => {
      const uid = uids.get(name)
      const sharing = [...uids.values()].filter((other) => other === uid)
      return sharing.length === 1 ? uid : undefined
    },
    /** Waits while the processes of the uid are killed. */
    add: (name: string, uid: number) => kills.withLock(String(uid))(Effect.sync(() => uids.set(name, uid))),
    remove: (name: string) => uids.delete(name)
  }
}

/** Starts a job with pipes to this process; the end of the scope kills it and its descendants. */
export const startJob = Effect.fnUntraced(
  function* (parts: HostParts, isolation: Isolation, users: ReturnType<typeof makeJobUsers>, job: Job) {
    const { argv, cwd, env, folder, name, scratch, terminal = false } = job
    const user = isolation.users === undefined ? undefined : job.user
    if (isolation.users !== undefined && user?.own !== true) {
      return yield* new LaunchFailed({
        message: "the runtime of the node changed from containers to plain processes",
        next: "reinstall the server"
      })
    }
    const shown = scratch === undefined ? [] : [{ path: scratch, read_only: false }]
    const end = Effect.andThen(
      sweep(parts, name),
      Effect.sync(() => users.remove(name))
    )
    const { child, streams } = yield* Effect.acquireRelease(
      Effect.gen(function* () {
        if (user !== undefined) yield* users.add(name, user.uid)
        const { begun, child, holder } = yield* launchProcess(parts, isolation, {
          ...{ argv, cwd, env, folder, name, shown, terminal, user },
          input: "pipe",
          output: "pipe"
        })
        const streams = holder ?? child
        streams.process.stdout?.on("data", job.onOutput)
        if (holder === undefined) streams.process.stderr?.on("data", job.onOutput)
        yield* begun
        return { child, streams }
      }).pipe(
        Effect.scoped,
        Effect.onError(() => end)
      ),
      () => end
    )
    const leader = { pid: child.pid, start: readProc(child.pid)?.start ?? "0" }
    const { stdin, stdout, stderr } = streams.process
    // The exit says how the job ended; the error of a pipe adds nothing.
    for (const stream of [stdin, stdout, stderr]) stream?.on("error", () => undefined)
    if (job.hasInput === false) stdin?.end()
    const ended = Effect.gen(function* () {
      const code = yield* Deferred.await(child.exited)
      yield* Deferred.await(streams.closed).pipe(Effect.timeoutOption(OUTPUT_GRACE))
      return { code, out_of_memory: false }
    })
    return {
      ended,
      write: (line) =>
        Effect.sync(() => {
          stdin?.write(`${line}\n`)
        }),
      signal: (signal) =>
        Effect.map(parts.table.members(name, leader, 0), (procs) => {
          signalOwn(ownProcesses(procs, leader, isolation.above).own, leader, signal)
        })
    } satisfies RunningJob
  },
  Effect.catchTag("IoError", ({ code, message }) => Effect.fail(new LaunchFailed({ code, message })))
)
