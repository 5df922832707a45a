import { closeSync, constants, openSync, writeSync } from "node:fs"
import { join } from "node:path"
import { Effect, Schedule, Semaphore } from "effect"
import { backoff, makePause } from "../../shared/work/backoff.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { errorCode } from "../disk/fsio.ts"
import { repeatable } from "../helper/Helper.ts"
import { bootUptimeMillis, type Proc, readBoundToAll, readNetwork, TICKS_PER_SECOND } from "../host/procfs.ts"
import { runTool } from "../host/runTool.ts"
import { CGROUP_LIMITS, type Cgroups } from "./cgroup.ts"
import { KILLED, type ProcessExit } from "./exitReason.ts"
import { INTERRUPT, type Relay, relayEnded } from "./processConsole.ts"
import { type Leader, ownProcesses, type ProcessTable, signalOwn, signalProcess } from "./processTable.ts"
import { ConsoleInputFailed, type Launch, type Run } from "./Runtime.ts"

/** The wait for a full pipe: 8 times 50 ms. */
const fullPipeRetry = Schedule.max([Schedule.spaced(50), Schedule.recurs(8)])

const failed = (cause: unknown, isPartial = false) => {
  const full = errorCode(cause) === "EAGAIN"
  const message = full ? "the server does not read its console" : "the console is closed"
  return new ConsoleInputFailed({ why: full ? "full" : "closed", message, isPartial })
}

/** Writes texts to the pipe that a server reads, one at a time, without blocking. */
const makeConsoleInput = Effect.fnUntraced(function* (path: string) {
  const lock = yield* Semaphore.make(1)
  // Whether a text was written in part; the next one must not continue its line.
  let isPartial = false

  const write = (text: string) => {
    const before = isPartial ? "\n" : ""
    const data = Buffer.from(`${before}${text}`)
    let sent = 0
    const push = (fd: number) =>
      Effect.try({
        try: () => {
          while (sent < data.length) sent += writeSync(fd, data, sent)
          isPartial = false
        },
        catch: (cause) => {
          isPartial ||= sent > 0
          return failed(cause, sent > before.length)
        }
      })
    const open = Effect.try({
      try: () => openSync(path, constants.O_WRONLY | constants.O_NONBLOCK),
      catch: (cause) => failed(cause)
    })
    return Effect.scoped(
      Effect.acquireRelease(open, (fd) => Effect.sync(() => closeSync(fd))).pipe(
        Effect.flatMap((fd) =>
          Effect.retry(push(fd), { schedule: fullPipeRetry, while: (error) => error.why === "full" })
        )
      )
    )
  }
  return (text: string) => lock.withPermit(Effect.suspend(() => write(text)))
})

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
  const run: Run = {
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
  }
  return run
})
