import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Deferred, Effect, Layer, Schedule, Schema } from "effect"
import { type IoError, io, openFile, readText, removeTree } from "../disk/fsio.ts"
import { isFull } from "../disk/isFull.ts"
import { bootId, readProc } from "../host/procfs.ts"
import { openCgroups } from "./cgroup.ts"
import { type ChildEnvOptions, inheritedEnv } from "./childEnv.ts"
import { drained, makeFifo, startRelay } from "./consoleRelay.ts"
import { makeOwnFolder, untilBegun } from "./isolatedStart.ts"
import { type Isolation, type IsolationOptions, openIsolation } from "./isolation.ts"
import { makeJobUsers, startJob } from "./jobs.ts"
import { exitOf, KILLED, killAll, makeRun, type Parts } from "./processRun.ts"
import { makeProcessTable } from "./processTable.ts"
import { type Adopted, type Launch, LaunchFailed, Runtime } from "./Runtime.ts"
import { SHIM } from "./shim.ts"
import { spawnChild, TOOL_ENV } from "./spawnChild.ts"

export interface ProcessRuntimeOptions extends ChildEnvOptions {
  /** Identity of the node and its data folder; marks every process that it starts. */
  readonly node: string
  /** Where cgroup v2 groups can be made; absent: found out. */
  readonly cgroup_root?: string
  /** Whether servers of the node may be containers, so that there may never be a plain process. Default false. */
  readonly beside_containers?: boolean
  readonly isolation: IsolationOptions
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
    relay: Schema.optionalKey(Schema.Struct(ProcessName)),
    /** Processes above the program. Absent in a run of an earlier version: the shim. */
    helpers: Schema.optionalKey(Schema.Int)
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
  function* (parts: Parts, isolation: Isolation, options: ProcessRuntimeOptions, launch: Launch) {
    if (isolation.refused !== undefined) return yield* isolation.refused
    const { folder, server_id, token } = launch
    const own = launch.user?.own === true ? launch.user : undefined
    const user = isolation.users === undefined ? undefined : (own ?? (yield* isolation.users.take(server_id)))
    for (const path of [runPath(folder), exitPath(folder), inputPath(folder)]) yield* removeTree(path)
    const temporary = yield* makeOwnFolder(folder, user)
    const group =
      parts.cgroups === undefined
        ? ""
        : join(yield* parts.cgroups.prepare(server_id, launch.limits), "cgroup.procs")
    yield* makeFifo(inputPath(folder))
    // Opened for both directions: the server never sees the end of its input, whoever opens and closes it.
    const input = yield* openFile(inputPath(folder), constants.O_RDWR)
    // Programs open their own descriptors anew, as /dev/stdin is.
    if (user !== undefined) yield* io("give the console", () => input.chown(user.uid, user.gid))
    const inherited = inheritedEnv(options)
    const { output, relay } = yield* startRelay({
      folder,
      group: parts.cgroups === undefined ? undefined : yield* parts.cgroups.relays,
      env: inherited,
      user
    })
    const env = {
      ...inherited,
      HOME: launch.cwd,
      TMPDIR: isolation.temporaryOf(temporary),
      ...launch.env,
      MUSTER_NODE: options.node,
      MUSTER_SERVER: server_id
    }
    const { argv, cwd } = launch
    const shown = (launch.shared ?? []).filter(({ target }) => target === undefined)
    const begun = yield* isolation.begin({ folder, temporary, cwd, shown, argv, env, user })
    const helpers = 1 + isolation.above
    const words = [runPath(folder), exitPath(folder), group, token, String(relay.pid), relay.start]
    const shim = ["-c", SHIM, "muster-shim", ...words, String(helpers)]
    const child = yield* spawnChild(["/bin/sh", ...shim, ...begun.argv], {
      cwd: folder,
      // Marked, and nothing else: it stays for as long as the server.
      env: { ...TOOL_ENV, MUSTER_NODE: options.node, MUSTER_SERVER: server_id },
      stdio: [input.fd, output, output, begun.script]
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
    const recorded = record ?? (yield* readRecord(folder))
    if (recorded === undefined) return yield* notRecorded(folder)
    yield* untilBegun(begun, child)
    const leader = { pid: child.pid, start: recorded.start }
    return yield* makeRun(parts, launch, { leader, relay, helpers, code: Deferred.await(child.exited) })
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
  const { helpers = 1, relay } = record
  return { _tag: "Running", run: yield* makeRun(parts, at, { leader, relay, helpers, code }) }
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
        const inherited = inheritedEnv(options)
        const isolation = yield* Effect.orDie(
          openIsolation(options.isolation, options.node, inherited.PATH ?? "")
        )
        const { refused, users } = isolation
        const jobUsers = makeJobUsers()
        const uidOf = (name: string) => jobUsers.uidOf(name) ?? users?.uidOf(name)
        const parts: Parts = {
          table: makeProcessTable(options.node, users && { uidOf, nameOf: users.nameOf }),
          cgroups: "cgroups" in found ? found.cgroups : undefined
        }
        const sweep = (server: string) => killAll(parts, server, undefined)
        const jobs = { inherited, node: options.node, sweep, isolation, table: parts.table, users: jobUsers }
        return Runtime.of({
          kind: "process",
          kinds: Effect.succeed(refused === undefined ? ["process"] : []),
          kindFor: ({ runtimes }) =>
            !runtimes.includes("process")
              ? containersOnly
              : refused === undefined
                ? Effect.succeed("process")
                : Effect.fail(refused),
          userFor: (_, whom) => {
            if (users === undefined) return Effect.succeed(undefined)
            return "server" in whom ? users.take(whom.server, whom.uid) : users.ofSoftware(whom.software)
          },
          holdUser: (name, uid) => users?.hold(name, uid) ?? Effect.void,
          releaseUser: (id) => users?.release(id) ?? Effect.void,
          isolation: Effect.succeed(refused === undefined ? { process: isolation.level } : {}),
          prepare: () => Effect.void,
          have: () => Effect.void,
          start: (launch) =>
            Effect.andThen(
              isLimited(launch) ? unlimited : Effect.void,
              start(parts, isolation, options, launch)
            ),
          adopt: (at) => adopt(parts, at),
          sweep,
          alive: Effect.sync(() => parts.table.names()),
          job: (job) => startJob(job, jobs)
        })
      })
    )
}
