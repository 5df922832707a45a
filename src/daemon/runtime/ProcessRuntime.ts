import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Deferred, Effect, Layer, Schedule, Schema } from "effect"
import { type IoError, io, makeFolder, openFile, readText, removeTree } from "../disk/fsio.ts"
import { isFull } from "../disk/isFull.ts"
import { bootId, readProc } from "../host/procfs.ts"
import { openCgroups } from "./cgroup.ts"
import { type ChildEnvOptions, inheritedEnv } from "./childEnv.ts"
import { drained, makeFifo, startRelay } from "./consoleRelay.ts"
import { startJob } from "./jobs.ts"
import { openProcessUsers, type UidRange } from "./ProcessUsers.ts"
import { exitOf, KILLED, killAll, makeRun, type Parts } from "./processRun.ts"
import { makeProcessTable } from "./processTable.ts"
import { type Adopted, type Launch, LaunchFailed, Runtime } from "./Runtime.ts"
import { SHIM } from "./shim.ts"
import { spawnChild } from "./spawnChild.ts"

export interface ProcessRuntimeOptions extends ChildEnvOptions {
  /** Identity of the node and its data folder; marks every process that it starts. */
  readonly node: string
  /** Where cgroup v2 groups can be made; absent: found out. */
  readonly cgroup_root?: string
  /** Whether servers of the node may be containers, so that there may never be a plain process. Default false. */
  readonly beside_containers?: boolean
  /** Uids for servers and software, where the daemon is root. Absent: everything runs as the user of the daemon. */
  readonly users?: { readonly data_dir: string; readonly range: UidRange; readonly claims_dir?: string }
}

/** Liveness of an adopted process, in ms. */
const WATCH = 500

const ProcessName = { pid: Schema.Int, start: Schema.String }
const RunRecord = Schema.fromJsonString(
  Schema.Struct({
    token: Schema.String,
    ...ProcessName,
    boot: Schema.String,
    /** Absent in a run of an earlier version: that prints to the file itself. */
    relay: Schema.optionalKey(Schema.Struct(ProcessName))
  })
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
    const inherited = inheritedEnv(options)
    const { output, relay } = yield* startRelay({
      folder,
      group: parts.cgroups === undefined ? undefined : yield* parts.cgroups.relays,
      env: inherited
    })
    const env = {
      ...inherited,
      HOME: launch.cwd,
      TMPDIR: temporary,
      ...launch.env,
      MUSTER_NODE: options.node,
      MUSTER_SERVER: server_id
    }
    const words = [runPath(folder), exitPath(folder), group, token, String(relay.pid), relay.start]
    const child = yield* spawnChild(["/bin/sh", "-c", SHIM, "muster-shim", ...words, ...launch.argv], {
      cwd: launch.cwd,
      env,
      stdio: [input.fd, output, output]
    })
    // Until the shim has written its record, so that whatever comes next finds the run under way.
    const record = yield* Effect.raceFirst(
      Effect.repeat(readRecord(folder), {
        until: (found) => found !== undefined,
        schedule: Schedule.spaced(2)
      }),
      Effect.as(Deferred.await(child.exited), undefined)
    )
    // What ends at once has its record all the same, unless it could not be written.
    const begun = record ?? (yield* readRecord(folder))
    if (begun === undefined) return yield* notRecorded(folder)
    const leader = { pid: child.pid, start: begun.start }
    return yield* makeRun(parts, launch, { leader, relay, code: Deferred.await(child.exited) })
  },
  Effect.scoped,
  Effect.catchTag("IoError", ({ code, message }: IoError) => Effect.fail(new LaunchFailed({ code, message })))
)

/** The shim has ended before the server was there: its console says why, where it could. */
const notRecorded = Effect.fnUntraced(function* (folder: string) {
  const message = "the run cannot be recorded in the folder of the server"
  return yield* (yield* isFull(folder))
    ? new LaunchFailed({ message: `${message}: disk full`, code: "ENOSPC" })
    : new LaunchFailed({ message, next: "read its console" })
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
    if (record.boot === bootId()) yield* drained(record.relay)
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
  return { _tag: "Running", run: yield* makeRun(parts, at, { leader, relay: record.relay, code }) }
})

const containersOnly = Effect.fail(
  new LaunchFailed({
    message: "the software runs in containers only, and this node runs plain processes",
    next: "let it use Docker (MUSTER_NODE_RUNTIME, MUSTER_EMBEDDED_RUNTIME)"
  })
)

const isLimited = ({ limits }: Launch) => (limits.memory_limit ?? 0) > 0 || (limits.cpu_limit ?? 0) > 0

/** Servers as plain processes of this machine (Linux); they outlive this service and are adopted again. */
export const ProcessRuntime = {
  layer: (options: ProcessRuntimeOptions): Layer.Layer<Runtime> =>
    Layer.effect(
      Runtime,
      Effect.gen(function* () {
        const found = yield* openCgroups(options.cgroup_root)
        const unlimited = yield* Effect.cached(
          "reason" in found
            ? Effect.logWarning(
                `servers that are plain processes can take all memory and CPU, whatever their limits: ${found.reason}`
              )
            : Effect.void
        )
        // Limits of containers are the engine's doing.
        if (options.beside_containers !== true) yield* unlimited
        const parts: Parts = {
          table: makeProcessTable(options.node),
          cgroups: "cgroups" in found ? found.cgroups : undefined
        }
        const users =
          options.users === undefined || process.geteuid?.() !== 0
            ? undefined
            : yield* Effect.orDie(openProcessUsers({ node: options.node, ...options.users }))
        const sweep = (server: string) => killAll(parts, server, undefined)
        const jobs = { inherited: inheritedEnv(options), node: options.node, sweep }
        return Runtime.of({
          kind: "process",
          kinds: Effect.succeed(["process"]),
          kindFor: ({ runtimes }) =>
            runtimes.includes("process") ? Effect.succeed("process") : containersOnly,
          userFor: (_, whom) => {
            if (users === undefined) return Effect.succeed(undefined)
            return "server" in whom ? users.take(whom.server, whom.uid) : users.ofSoftware(whom.software)
          },
          holdUser: (name, uid) => users?.hold(name, uid) ?? Effect.void,
          releaseUser: (id) => users?.release(id) ?? Effect.void,
          isolation: Effect.succeed({ process: "none" }),
          prepare: () => Effect.void,
          have: () => Effect.void,
          start: (launch) =>
            Effect.andThen(isLimited(launch) ? unlimited : Effect.void, start(parts, options, launch)),
          adopt: (at) => adopt(parts, at),
          sweep,
          alive: Effect.sync(() => parts.table.names()),
          job: (job) => startJob(job, jobs)
        })
      })
    )
}
