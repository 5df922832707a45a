import { Deferred, Effect } from "effect"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import { readProc } from "../host/procfs.ts"
import { launchProcess } from "./isolatedStart.ts"
import type { Isolation } from "./isolation.ts"
import { type HostParts, sweep } from "./processRun.ts"
import { ownProcesses, signalOwn } from "./processTable.ts"
import { type Job, LaunchFailed, type RunningJob } from "./Runtime.ts"

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
    const running: RunningJob = {
      ended,
      write: (line) =>
        Effect.sync(() => {
          stdin?.write(`${line}\n`)
        }),
      signal: (signal) =>
        Effect.map(parts.table.members(name, leader, 0), (procs) => {
          signalOwn(ownProcesses(procs, leader, isolation.above).own, leader, signal)
        })
    }
    return running
  },
  Effect.catchTag("IoError", ({ code, message }) => Effect.fail(new LaunchFailed({ code, message })))
)
