import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Deferred, Effect, Layer, Schedule, Schema } from "effect"
import { type IoError, io, makeFolder, openFile, readText, removeTree } from "../files/fsio.ts"
import { openCgroups } from "./cgroup.ts"
import { type ChildEnvOptions, inheritedEnv } from "./childEnv.ts"
import { startJob } from "./jobs.ts"
import { exitOf, KILLED, killAll, makeRun, type Parts } from "./processRun.ts"
import { makeProcessTable } from "./processTable.ts"
import { bootId, readProc } from "./procfs.ts"
import { type Adopted, type Launch, LaunchFailed, Runtime } from "./Runtime.ts"
import { SHIM } from "./shim.ts"
import { spawnChild } from "./spawnChild.ts"

export interface ProcessRuntimeOptions extends ChildEnvOptions {
  /** Identity of the node and its data folder; marks every process that it starts. */
  readonly node: string
  /** Where cgroup v2 groups can be made; absent: found out. */
  readonly cgroup_root?: string
}

/** Liveness of an adopted process, in ms. */
const WATCH = 500

const RunRecord = Schema.fromJsonString(
  Schema.Struct({ token: Schema.String, pid: Schema.Int, start: Schema.String, boot: Schema.String })
)
const decodeRunRecord = Schema.decodeUnknownEffect(RunRecord)

const runPath = (folder: string) => join(folder, "run.json")
const exitPath = (folder: string) => join(folder, "exit")
const inputPath = (folder: string) => join(folder, "console.in")

/** The code that the shim wrote; killed when it could not. */
const recordedExit = (folder: string): Effect.Effect<number> =>
  readText(exitPath(folder)).pipe(
    Effect.map((text) => Number(/^(\d{1,3})\n$/.exec(text)?.[1] ?? KILLED)),
    Effect.orElseSucceed(() => KILLED)
  )

const start = Effect.fnUntraced(
  function* (parts: Parts, options: ProcessRuntimeOptions, launch: Launch) {
    const { folder, server_id, token } = launch
    const temporary = join(folder, "tmp")
    for (const path of [runPath(folder), exitPath(folder), inputPath(folder), temporary])
      yield* removeTree(path)
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
    // Until the shim has written its record, so that whatever comes next finds the run under way.
    const record = yield* Effect.raceFirst(
      Effect.repeat(readRecord(folder), {
        until: (found) => found !== undefined,
        schedule: Schedule.spaced(2)
      }),
      Effect.as(Deferred.await(child.exited), undefined)
    )
    const leader = { pid: child.pid, start: record?.start ?? "0" }
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

/** The run record; undefined while it is missing or not complete. */
const readRecord = (folder: string) =>
  readText(runPath(folder)).pipe(
    Effect.flatMap(decodeRunRecord),
    Effect.orElseSucceed(() => undefined)
  )

const adopt = Effect.fnUntraced(function* (
  parts: Parts,
  at: Pick<Launch, "server_id" | "token" | "folder">
): Effect.fn.Return<Adopted> {
  const { folder, server_id, token } = at
  // Where no record is there, this claims the run: a shim that comes late ends at once.
  const claimed = yield* io("give up the run", () =>
    fs.writeFile(runPath(folder), "given up\n", { flag: "wx" })
  ).pipe(
    Effect.as(true),
    Effect.catch((error) =>
      Effect.as(error.code === "EEXIST" ? Effect.void : Effect.logWarning(error.message), false)
    )
  )
  // Read again for a moment: the shim may be just writing it.
  const found = claimed
    ? undefined
    : yield* Effect.repeat(readRecord(folder), {
        until: (read) => read !== undefined,
        schedule: Schedule.max([Schedule.spaced(50), Schedule.recurs(10)])
      })
  // A record of another run: this one never began, and the exit that is there is not its own.
  if (found?.token !== token) {
    yield* killAll(parts, server_id, undefined)
    return { _tag: "NeverBegan" }
  }
  const record = found
  const ended = Effect.gen(function* () {
    const exit = yield* exitOf(parts, server_id, yield* recordedExit(folder))
    yield* killAll(parts, server_id, undefined)
    return { _tag: "Ended", exit } as const
  })
  if (record.boot !== bootId()) return yield* ended
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
          kinds: Effect.succeed(["process"]),
          kindFor: () => Effect.succeed("process"),
          userFor: () => Effect.succeed(undefined),
          prepare: () => Effect.void,
          start: (launch) => start(parts, options, launch),
          adopt: (at) => adopt(parts, at),
          sweep,
          alive: Effect.sync(() => parts.table.names()),
          job: (job) => startJob(job, jobs)
        })
      })
    )
}
