import { join } from "node:path"
import { Effect, Schedule } from "effect"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { backoff, makePause } from "../../work/backoff.ts"
import { bootUptimeMillis, type Proc, readNetwork, TICKS_PER_SECOND } from "../host/procfs.ts"
import type { Cgroups } from "./cgroup.ts"
import { makeConsoleInput } from "./consoleInput.ts"
import { drained, type Relay } from "./consoleRelay.ts"
import type { ProcessExit } from "./exitReason.ts"
import { ownProcesses, signalOwn, signalProcess } from "./ownProcesses.ts"
import type { Leader, ProcessTable } from "./processTable.ts"
import type { Launch, Run } from "./Runtime.ts"

/** Exit code where it was killed from outside, and nobody was left to say so. */
export const KILLED = 137
/** How long killed processes are waited for before they are given up with a warning, in ms. */
const KILL_PATIENCE = 10_000

/** What a runtime has of the machine. */
export interface Parts {
  readonly table: ProcessTable
  /** Absent where limits cannot be enforced. */
  readonly cgroups: Cgroups | undefined
}

/** Kills all that belongs to a server until nothing is left. */
export const killAll = Effect.fnUntraced(function* (
  parts: Parts,
  server: string,
  leader: Leader | undefined
) {
  const deadline = (yield* elapsedMillis) + KILL_PATIENCE
  const pause = yield* makePause(backoff({ first: 5, longest: 100 }))
  while (true) {
    if (parts.cgroups !== undefined) yield* parts.cgroups.kill(server)
    const left = parts.table.members(server, leader, 0)
    if (left.length === 0) break
    for (const proc of left) signalProcess(proc.pid, "SIGKILL")
    if ((yield* elapsedMillis) > deadline) {
      yield* Effect.logWarning(`processes of ${server} do not end: ${left.map((proc) => proc.pid).join(" ")}`)
      break
    }
    yield* pause
  }
  if (parts.cgroups !== undefined) yield* parts.cgroups.remove(server)
})

/** How it ended: a kill may have been for want of memory. */
export const exitOf = (parts: Parts, server: string, code: number): Effect.Effect<ProcessExit> =>
  parts.cgroups === undefined || code !== KILLED
    ? Effect.succeed({ code, out_of_memory: false })
    : Effect.map(parts.cgroups.outOfMemoryKills(server), (kills) => ({ code, out_of_memory: kills > 0 }))

/** A process that lives. */
export interface LiveProcess {
  readonly leader: Leader
  readonly relay: Relay | undefined
  /** How many processes stay above the program of the server, the leader among them. */
  readonly helpers: number
  /** Waits for its exit code. */
  readonly code: Effect.Effect<number>
}

export const makeRun = Effect.fnUntraced(function* (
  parts: Parts,
  at: Pick<Launch, "server_id" | "folder">,
  { code, helpers, leader, relay }: LiveProcess
) {
  const { table, cgroups } = parts
  const { server_id, folder } = at
  const input = yield* makeConsoleInput(join(folder, "console.in"))
  const ended = Effect.flatMap(code, (value) => exitOf(parts, server_id, value))
  const ownOf = (max_age_ms: number) =>
    ownProcesses(table.members(server_id, leader, max_age_ms), leader, helpers)
  // Not what stays above the program: `unshare` that goes on while its child is stopped stops itself again.
  const toAll = (signal: NodeJS.Signals) =>
    Effect.sync(() => {
      for (const proc of ownOf(0).own) signalProcess(proc.pid, signal)
    })
  const frozen = (wanted: boolean) =>
    cgroups === undefined ? Effect.succeed(false) : cgroups.freeze(server_id, wanted)
  const run: Run = {
    ended,
    write: input,
    // A run that has only just begun has nobody yet to take the signal.
    signal: (signal) =>
      Effect.sync(() => signalOwn(ownOf(0).own, leader, signal)).pipe(
        Effect.repeat({
          until: (sent) => sent,
          schedule: Schedule.max([Schedule.spaced(10), Schedule.recurs(50)])
        }),
        Effect.asVoid
      ),
    // Twice: what was forked while the first signals went out.
    pause: Effect.flatMap(frozen(true), (done) =>
      done ? Effect.void : Effect.repeat(toAll("SIGSTOP"), { times: 1 })
    ),
    resume: Effect.flatMap(frozen(false), () => toAll("SIGCONT")),
    kill: Effect.andThen(killAll(parts, server_id, leader), drained(relay)),
    usage: Effect.gen(function* () {
      const { main, own } = ownOf(50)
      if (own.length === 0) return undefined
      const grouped = cgroups === undefined ? undefined : yield* cgroups.memory(server_id)
      const sum = (figure: (proc: Proc) => number) => own.reduce((total, proc) => total + figure(proc), 0)
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
