/** Limits by cgroup v2. Every action is a file write below one root, so tests can use a plain folder. */

import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { type Limits, memoryLimitBytes } from "../../contract/domain/Limits.ts"
import { io, makeFolder, orMissing, readText } from "../disk/fsio.ts"

const MIB = 1024 * 1024
/** The quota period of `cpu.max` in microseconds: 1 % of a thread is 1000. */
const PERIOD = 100_000
/** The limit of processes and threads of a server; protects the host from fork bombs. */
const MAX_TASKS = 16_384
const CONTROLLERS = ["cpu", "memory", "cpuset", "io", "pids"] as const
const NEEDED = ["cpu", "memory"] as const
const STANDARD_ROOTS = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]

export const CGROUP_LIMITS = ["memory_limit", "swap", "cpu_limit", "threads", "io_weight"] as const

export const limitFiles = (limits: Limits): ReadonlyArray<readonly [file: string, text: string]> => {
  const files: Array<readonly [string, string]> = []
  const memory = memoryLimitBytes(limits)
  // Version 2 cannot disable the OOM killer: beyond `memory.high`, processes are throttled, not killed.
  if (memory > 0) files.push([limits.oom_disabled === true ? "memory.high" : "memory.max", String(memory)])
  if (limits.swap !== undefined) {
    files.push(["memory.swap.max", limits.swap < 0 ? "max" : String(limits.swap * MIB)])
  }
  if (limits.cpu_limit !== undefined && limits.cpu_limit > 0) {
    files.push(["cpu.max", `${Math.max(1000, Math.round((limits.cpu_limit * PERIOD) / 100))} ${PERIOD}`])
  }
  if (limits.threads !== undefined && limits.threads !== "") files.push(["cpuset.cpus", limits.threads])
  if (limits.io_weight !== undefined && limits.io_weight > 0)
    files.push(["io.weight", `default ${limits.io_weight}`])
  files.push(["pids.max", String(MAX_TASKS)])
  return files
}

const write = (path: string, text: string) => io(`write ${path}`, () => fs.writeFile(path, text))

const attempt = (path: string, text: string) =>
  write(path, text).pipe(
    Effect.as(true),
    Effect.catch((error) => Effect.as(Effect.logDebug(error.message), false))
  )

const hasControllers = (root: string) =>
  readText(join(root, "cgroup.controllers")).pipe(
    Effect.map((text) => NEEDED.every((name) => text.split(/\s+/).includes(name))),
    Effect.orElseSucceed(() => false)
  )

const enable = Effect.fnUntraced(function* (folder: string) {
  for (const name of CONTROLLERS) {
    const enabled = yield* attempt(join(folder, "cgroup.subtree_control"), `+${name}`)
    if (!enabled && NEEDED.some((needed) => needed === name)) return false
  }
  return true
})

/** Detects where groups can be made, or the `reason` why limits cannot be enforced. */
export const openCgroups = Effect.fnUntraced(function* (root: string | undefined) {
  for (const candidate of root === undefined ? STANDARD_ROOTS : [root]) {
    if (!(yield* hasControllers(candidate))) continue
    const parent = join(candidate, "muster")
    const ready = yield* makeFolder(parent).pipe(
      Effect.andThen(enable(candidate)),
      Effect.andThen((first) => (first ? enable(parent) : Effect.succeed(false))),
      Effect.orElseSucceed(() => false)
    )
    if (ready) return { cgroups: makeCgroups(parent) }
    return {
      reason: `the daemon has no write access to ${candidate}: run it as root, or run servers in containers`
    }
  }
  return {
    reason: `no cgroup v2 with the controllers cpu and memory at ${root ?? STANDARD_ROOTS.join(" or ")}`
  }
})

const makeCgroups = (parent: string) => {
  const folderOf = (id: string) => join(parent, id)
  const readValue = (id: string, file: string) =>
    readText(join(folderOf(id), file)).pipe(
      orMissing(undefined),
      Effect.orElseSucceed(() => undefined)
    )
  const relays = join(parent, "relays")
  return {
    /** The `cgroup.procs` of relays, which outlive servers and this service, if it can be made. */
    relays: makeFolder(relays).pipe(
      Effect.as(join(relays, "cgroup.procs")),
      Effect.catch((error) => Effect.as(Effect.logWarning(error.message), undefined))
    ),
    /** Makes the group of a server with its limits; returns its folder. */
    prepare: Effect.fnUntraced(function* (id: string, limits: Limits) {
      const folder = folderOf(id)
      // A group of an earlier run would still count the OOM kills of that run.
      yield* Effect.ignore(io(`remove ${folder}`, () => fs.rmdir(folder)))
      yield* makeFolder(folder)
      for (const [file, text] of limitFiles(limits)) {
        const needed = file.startsWith("memory.m") || file === "cpu.max"
        yield* needed ? write(join(folder, file), text) : attempt(join(folder, file), text)
      }
      return folder
    }),
    outOfMemoryKills: (id: string) =>
      Effect.map(readValue(id, "memory.events"), (text) =>
        Number(/^oom_kill (\d+)$/m.exec(text ?? "")?.[1] ?? 0)
      ),
    memory: (id: string) =>
      Effect.map(readValue(id, "memory.current"), (text) => (text === undefined ? undefined : Number(text))),
    /** Kills every process in the group, also those without a marker. */
    kill: (id: string) => Effect.asVoid(attempt(join(folderOf(id), "cgroup.kill"), "1")),
    freeze: (id: string, frozen: boolean) => attempt(join(folderOf(id), "cgroup.freeze"), frozen ? "1" : "0"),
    remove: (id: string) =>
      io(`remove ${folderOf(id)}`, () => fs.rmdir(folderOf(id))).pipe(
        orMissing(undefined),
        Effect.catch((error) => Effect.logDebug(error.message))
      )
  }
}

export type Cgroups = ReturnType<typeof makeCgroups>
