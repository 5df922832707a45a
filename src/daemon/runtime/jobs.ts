import { Deferred, Effect } from "effect"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import { TOOL_ENV } from "../helper/Helper.ts"
import { readProc } from "../host/procfs.ts"
import { spawnChild } from "../host/runTool.ts"
import { awaitBegin, makePrivateFolders } from "./isolatedStart.ts"
import type { Isolation } from "./isolation.ts"
import { ownProcesses, type ProcessTable, signalOwn } from "./processTable.ts"
import { type Job, LaunchFailed, type RunningJob } from "./Runtime.ts"
import { onTerminal, startTerminal, TERMINAL_ENV } from "./terminal.ts"

/** The time for remaining output after the end, in ms; another process may hold the pipe open. */
const OUTPUT_GRACE = 300

const PIPES = { input: "pipe", output: "pipe", group: undefined } as const

/** The uids of running jobs; jobs of one software share a uid. */
export interface JobUsers {
  /** Returns the uid of a job that no other job shares, so that all processes with the uid are its own. */
  readonly uidOf: (name: string) => number | undefined
  /** Waits while the processes of the uid are killed. */
  readonly add: (name: string, uid: number) => Effect.Effect<void>
  readonly remove: (name: string) => void
}

export const makeJobUsers = (kills: KeyedLock): JobUsers => {
  const uids = new Map<string, number>()
  return {
    uidOf: (name) => {
      const uid = uids.get(name)
      const sharing = [...uids.values()].filter((other) => other === uid)
      return sharing.length === 1 ? uid : undefined
    },
    add: (name, uid) => kills.withLock(String(uid))(Effect.sync(() => uids.set(name, uid))),
    remove: (name) => uids.delete(name)
  }
}

export interface JobOptions {
  readonly inherited: Readonly<Record<string, string>>
  readonly node: string
  readonly sweep: (name: string) => Effect.Effect<void>
  readonly isolation: Isolation
  readonly table: ProcessTable
  readonly users: JobUsers
}

/** Starts a job with pipes to this process; the end of the scope kills it and its descendants. */
export const startJob = Effect.fnUntraced(
  function* (job: Job, { inherited, isolation, node, sweep, table, users }: JobOptions) {
    if (isolation.refused !== undefined) return yield* isolation.refused
    const user = isolation.users === undefined ? undefined : job.user
    if (isolation.users !== undefined && user?.own !== true) {
      return yield* new LaunchFailed({
        message: "the runtime of the node changed from containers to plain processes",
        next: "reinstall the server"
      })
    }
    const { argv, cwd, folder, name, scratch } = job
    const own = yield* makePrivateFolders(folder, user)
    const marker = { MUSTER_NODE: node, MUSTER_SERVER: name }
    const env = {
      ...(job.terminal === true ? TERMINAL_ENV : {}),
      ...inherited,
      HOME: cwd,
      TMPDIR: isolation.temporaryOf(own.temporary),
      ...job.env,
      ...marker
    }
    const shown = scratch === undefined ? [] : [{ path: scratch, read_only: false }]
    const end = Effect.andThen(
      sweep(name),
      Effect.sync(() => users.remove(name))
    )
    const { child, streams } = yield* Effect.acquireRelease(
      Effect.gen(function* () {
        const begun = yield* isolation.begin({ folder, own, cwd, shown, argv, env, user })
        if (user !== undefined) yield* users.add(name, user.uid)
        const held =
          job.terminal === true ? yield* startTerminal({ ...PIPES, level: isolation.level, user }) : undefined
        const each = held?.terminal ?? "pipe"
        const spawned = yield* spawnChild(held === undefined ? begun.argv : onTerminal(begun.argv), {
          cwd: folder,
          env: { ...TOOL_ENV, ...marker },
          stdio: [each, each, each, begun.script]
        })
        const streams = held?.holder ?? spawned
        streams.process.stdout?.on("data", job.onOutput)
        if (held === undefined) streams.process.stderr?.on("data", job.onOutput)
        yield* awaitBegin(begun, spawned)
        return { child: spawned, streams }
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
        Effect.map(table.members(name, leader, 0), (procs) => {
          signalOwn(ownProcesses(procs, leader, isolation.above).own, leader, signal)
        })
    }
    return running
  },
  Effect.catchTag("IoError", ({ code, message }) => Effect.fail(new LaunchFailed({ code, message })))
)
