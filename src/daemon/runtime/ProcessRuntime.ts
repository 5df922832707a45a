import { constants, readFileSync } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Deferred, Effect, Layer, Option, Schedule, Schema } from "effect"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { type IoError, io, isDiskFull, openFile, readText, removeTree } from "../disk/fsio.ts"
import { recordReader } from "../disk/replaceFile.ts"
import { bootId, readProc, readUid } from "../host/procfs.ts"
import { CGROUP_LIMITS, openCgroups } from "./cgroup.ts"
import { KILLED, type ProcessExit } from "./exitReason.ts"
import { launchProcess } from "./isolatedStart.ts"
import { type Isolation, type IsolationOptions, openIsolation } from "./isolation.ts"
import { type ChildEnvOptions, inheritedEnv } from "./launchPlan.ts"
import { makeFifo, relayEnded, startRelay } from "./processConsole.ts"
import {
  exitOf,
  type HostParts,
  killAll,
  killAllOf,
  makeJobUsers,
  makeRun,
  startJob,
  sweep
} from "./processRun.ts"
import { makeProcessTable, ownProcesses } from "./processTable.ts"
import { type Adopted, type Launch, LaunchFailed, noUsers, Runtime, type RuntimeOffer } from "./Runtime.ts"

export interface ProcessRuntimeOptions extends ChildEnvOptions {
  /** Identity of the node and its data folder; marks every process of the node. */
  readonly node: string
  /** The folder in which cgroup v2 groups can be made. Default: detected. */
  readonly cgroupRoot?: string
  /** Whether the node also runs containers, so that it may never run a plain process. Default false. */
  readonly besideContainers?: boolean
  readonly isolation: IsolationOptions
}

const LIVENESS_INTERVAL = 500
/** The age of the process list that adoptions share, in ms. */
const MAX_LIST_AGE = 1000

const ProcessName = { pid: Schema.Int, start: Schema.String }
const readRun = recordReader(
  Schema.Struct({
    token: Schema.String,
    ...ProcessName,
    boot: Schema.String,
    relay: Schema.Struct(ProcessName),
    helpers: Schema.Int,
    terminal: Schema.Boolean
  })
)

const SHIM = readFileSync(new URL("./shim.sh", import.meta.url), "utf8")

const runPath = (folder: string) => join(folder, "run.json")
const exitPath = (folder: string) => join(folder, "exit")
const inputPath = (folder: string) => join(folder, "console.in")

const NO_EXIT = "\n"

const recordedExit = (folder: string): Effect.Effect<number | undefined> =>
  readText(exitPath(folder)).pipe(
    Effect.map((text) => {
      const [, code] = /^(\d{1,3})\n$/.exec(text) ?? []
      return code === undefined ? undefined : Number(code)
    }),
    Effect.orElseSucceed(() => undefined)
  )

const start = Effect.fnUntraced(
  function* (parts: HostParts, isolation: Isolation, launch: Launch) {
    const { argv, cwd, env, folder, server_id, terminal = false, token } = launch
    const given = launch.user?.own === true ? launch.user : undefined
    const user =
      isolation.users === undefined ? undefined : (given ?? (yield* isolation.users.assign(server_id)))
    for (const path of [runPath(folder), exitPath(folder), inputPath(folder)]) yield* removeTree(path)
    yield* io("write the exit file", () => fs.writeFile(exitPath(folder), NO_EXIT, { mode: 0o600 }))
    const { cgroups } = parts
    const procs =
      cgroups === undefined ? "" : join(yield* cgroups.prepare(server_id, launch.limits), "cgroup.procs")
    yield* makeFifo(inputPath(folder))
    // Opened for reading and writing, so that the server never sees the end of its input.
    const input = yield* openFile(inputPath(folder), constants.O_RDWR)
    // Programs may reopen their descriptors, for example /dev/stdin.
    if (user !== undefined) yield* io("set the owner of the console", () => input.chown(user.uid, user.gid))
    const group = cgroups === undefined ? undefined : yield* cgroups.relays
    const { output, relay } = yield* startRelay({ folder, group, env: parts.inherited, user })
    const shown = (launch.shared ?? []).filter(({ target }) => target === undefined)
    const helpers = 1 + isolation.above
    const words = [runPath(folder), exitPath(folder), procs, token, String(relay.pid), relay.start]
    const shim = ["/bin/sh", "-c", SHIM, "muster-shim", ...words, String(helpers), String(terminal)] as const
    const { begun, child } = yield* launchProcess(parts, isolation, {
      ...{ argv, cwd, env, folder, group, output, shown, terminal, user },
      name: server_id,
      input: input.fd,
      around: (isolated) => [...shim, ...isolated]
    })
    // Waits until the shim has written its record, so that later calls find the run.
    const record = yield* Effect.raceFirst(
      Effect.repeat(readRecord(folder), {
        until: (found) => found !== undefined,
        schedule: Schedule.spaced(2)
      }),
      Effect.as(Deferred.await(child.exited), undefined)
    )
    // A process that ends at once also has a record, unless the write failed.
    const recorded = record ?? (yield* readRecord(folder))
    if (recorded === undefined) return yield* recordMissing(folder)
    yield* begun
    const leader = { pid: child.pid, start: recorded.start }
    const code = Deferred.await(child.exited)
    return yield* makeRun(parts, launch, { leader, relay, helpers, terminal, code })
  },
  Effect.scoped,
  Effect.catchTag("IoError", ({ code, message }: IoError) => Effect.fail(new LaunchFailed({ code, message })))
)

/** The error of a shim that ended before the server started; the console may have the reason. */
const recordMissing = Effect.fnUntraced(function* (folder: string) {
  const message = "the run cannot be recorded in the folder of the server"
  return yield* (yield* isDiskFull(folder))
    ? new LaunchFailed({ message: `${message}: disk full`, code: "ENOSPC" })
    : new LaunchFailed({ message, next: "read the console" })
})

/** Returns the run record, unless it is missing or incomplete. */
const readRecord = (folder: string) => Effect.orElseSucceed(readRun(runPath(folder)), () => undefined)

const adopt = Effect.fnUntraced(function* (
  parts: HostParts,
  at: Pick<Launch, "server_id" | "token" | "folder">,
  hasUids: boolean
): Effect.fn.Return<Adopted> {
  const { folder, server_id, token } = at
  // If there is no record, this claims the run: a shim that starts later ends at once.
  const claimed = yield* io("claim the run", () =>
    fs.writeFile(runPath(folder), "given up\n", { flag: "wx" })
  ).pipe(
    Effect.as(true),
    Effect.catch((error) =>
      Effect.as(error.code === "EEXIST" ? Effect.void : Effect.logWarning(error.message), false)
    )
  )
  // Retried: the shim may be writing the record.
  const found = claimed
    ? undefined
    : yield* Effect.repeat(readRecord(folder), {
        until: (read) => read !== undefined,
        schedule: Schedule.max([Schedule.spaced(50), Schedule.recurs(10)])
      })
  // The record is of another run: this run never started, and the recorded exit is not its own.
  if (found?.token !== token) {
    yield* killAll(parts, server_id, undefined)
    return { _tag: "NeverBegan" }
  }
  const record = found
  const ended = Effect.gen(function* () {
    const code = yield* recordedExit(folder)
    const known = yield* exitOf(parts, server_id, code ?? KILLED)
    yield* killAll(parts, server_id, undefined)
    const isSameBoot = record.boot === bootId()
    if (isSameBoot) yield* relayEnded(record.relay)
    // A shim that has recorded nothing was killed, too.
    const endedWithHost = !isSameBoot || (code === undefined && !known.out_of_memory)
    const exit: ProcessExit = endedWithHost ? { ...known, with_host: true } : known
    return { _tag: "Ended", exit } as const
  })
  if (record.boot !== bootId()) return yield* ended
  const leader = { pid: record.pid, start: record.start }
  const isAlive = () => readProc(leader.pid)?.start === leader.start
  if (!isAlive()) return yield* ended
  const code = Effect.sync(isAlive).pipe(
    Effect.repeat({ schedule: Schedule.spaced(LIVENESS_INTERVAL), while: (alive) => alive }),
    Effect.andThen(recordedExit(folder)),
    Effect.map((recorded) => recorded ?? KILLED)
  )
  const { helpers, relay, terminal } = record
  const run = yield* makeRun(parts, at, { leader, relay, helpers, terminal, code })
  if (!hasUids) return { _tag: "Running", run }
  const { main } = ownProcesses(yield* parts.table.members(server_id, leader, MAX_LIST_AGE), leader, helpers)
  return { _tag: "Running", run: { ...run, asRoot: main !== undefined && readUid(main.pid) === 0 } }
})

const containersOnly = Effect.fail(
  new LaunchFailed({
    message: "the software runs in containers only, and this node runs plain processes",
    next: "enable Docker (MUSTER_NODE_RUNTIME, MUSTER_EMBEDDED_RUNTIME)"
  })
)

const isLimited = ({ limits }: Launch) => (limits.memory_limit ?? 0) > 0 || (limits.cpu_limit ?? 0) > 0

/** Servers as plain processes of this host (Linux); they outlive this service and are adopted. */
export const ProcessRuntime = {
  layer: (options: ProcessRuntimeOptions): Layer.Layer<Runtime> =>
    Layer.effect(
      Runtime,
      Effect.gen(function* () {
        const found = yield* openCgroups(options.cgroupRoot)
        const unlimited = yield* Effect.cached(
          "reason" in found
            ? Effect.logWarning(`memory and CPU limits of plain processes are not enforced: ${found.reason}`)
            : Effect.void
        )
        // The engine enforces the limits of containers.
        if (options.besideContainers !== true) yield* unlimited
        const { current, users } = yield* Effect.orDie(
          openIsolation(options.isolation, options.node, inheritedEnv(options).PATH ?? "")
        )
        const usable = Effect.flatMap(current, (isolation) => isolation.refused ?? Effect.succeed(isolation))
        const kills = makeKeyedLock()
        const jobUsers = makeJobUsers(kills)
        const uidOf = (name: string) => jobUsers.uidOf(name) ?? users?.uidOf(name)
        const killUser = (name: string) =>
          Effect.suspend(() => {
            const uid = uidOf(name)
            if (uid === undefined) return Effect.void
            // Another job may have got the uid meanwhile.
            const kill = Effect.suspend(() => (uidOf(name) === uid ? killAllOf(uid) : Effect.void))
            return kills.withLock(String(uid))(kill)
          })
        const parts: HostParts = {
          node: options.node,
          // At each start: the secrets that files name leave the environment after this.
          get inherited() {
            return inheritedEnv(options)
          },
          table: makeProcessTable(options.node, users && { uidOf, nameOf: users.nameOf }),
          cgroups: "cgroups" in found ? found.cgroups : undefined,
          killUser,
          started: undefined
        }
        const began = (name: string) => Effect.sync(() => parts.started?.add(name))
        return Runtime.of({
          offer: Effect.map(Effect.option(current), (found): RuntimeOffer => {
            const lacksUids = users?.isExhausted() === true
            if (Option.isNone(found) || found.value.refused !== undefined) {
              return { kinds: [], isolation: {}, notEnforced: [], lacksUids }
            }
            return {
              kinds: lacksUids ? [] : ["process"],
              isolation: { process: found.value.level },
              notEnforced: parts.cgroups === undefined ? CGROUP_LIMITS : [],
              lacksUids
            }
          }),
          kindFor: Effect.fnUntraced(function* ({ runtimes }) {
            if (!runtimes.includes("process")) return yield* containersOnly
            return yield* Effect.as(usable, "process" as const)
          }),
          userFor: Effect.fnUntraced(function* (_, whom) {
            const given = (yield* current).users
            if (given === undefined) return undefined
            return yield* "server" in whom
              ? given.assign(whom.server, whom.uid)
              : given.softwareUser(whom.software)
          }),
          users: users ?? noUsers,
          ensureImage: () => Effect.void,
          start: Effect.fnUntraced(function* (launch) {
            if (isLimited(launch)) yield* unlimited
            yield* began(launch.server_id)
            return yield* start(parts, yield* usable, launch)
          }),
          adopt: (at) => Effect.andThen(began(at.server_id), adopt(parts, at, users !== undefined)),
          sweep: (server) => sweep(parts, server),
          alive: Effect.gen(function* () {
            // A pass over the processes may miss those that fork and end without a pause.
            yield* Effect.forEach(users?.formerOwners() ?? [], killUser, { concurrency: 8, discard: true })
            const names = yield* parts.table.names
            parts.started = new Set([...(parts.started ?? []), ...names])
            return names
          }),
          job: Effect.fnUntraced(function* (job) {
            yield* began(job.name)
            return yield* startJob(parts, yield* usable, jobUsers, job)
          })
        })
      })
    )
}
