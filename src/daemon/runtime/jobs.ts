import { Deferred, Effect } from "effect"
import type { Job, RunningJob } from "./Runtime.ts"
import { spawnChild } from "./spawnChild.ts"

/** How long output is waited for after the end, in case something keeps the pipe open, in ms. */
const OUTPUT_GRACE = 300

export interface JobOptions {
  /** What every process gets. */
  readonly inherited: Readonly<Record<string, string>>
  /** Identity of the node, for the marker. */
  readonly node: string
  /** Kills everything that carries the marker. */
  readonly sweep: (name: string) => Effect.Effect<void>
}

/** Starts a job with pipes to this process; the end of the scope kills it and all that came of it. */
export const startJob = Effect.fnUntraced(function* (job: Job, options: JobOptions) {
  const env = {
    ...options.inherited,
    HOME: job.cwd,
    ...job.env,
    MUSTER_NODE: options.node,
    MUSTER_SERVER: job.name
  }
  const child = yield* Effect.acquireRelease(
    spawnChild(job.argv, { cwd: job.cwd, env, stdio: ["pipe", "pipe", "pipe"] }),
    () => options.sweep(job.name)
  )
  const { stdin, stdout, stderr } = child.process
  const closed = Deferred.makeUnsafe<void>()
  child.process.once("close", () => Deferred.doneUnsafe(closed, Effect.void))
  // Its end is told by its exit; a pipe that breaks says nothing more.
  for (const stream of [stdin, stdout, stderr]) stream?.on("error", () => undefined)
  for (const stream of [stdout, stderr]) stream?.on("data", job.onOutput)
  const ended = Effect.gen(function* () {
    const code = yield* Deferred.await(child.exited)
    yield* Deferred.await(closed).pipe(Effect.timeoutOption(OUTPUT_GRACE))
    return { code, out_of_memory: false }
  })
  const running: RunningJob = {
    ended,
    write: (line) =>
      Effect.sync(() => {
        stdin?.write(`${line}\n`)
      }),
    signal: (signal) =>
      Effect.sync(() => {
        signalProcess(-child.pid, signal)
      })
  }
  return running
})

/** Sends a signal to a process, or to a group when negative; one that has gone is no error. */
export const signalProcess = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal)
  } catch {
    // ESRCH: it has ended in the meantime; EPERM: it is not ours any more
  }
}
