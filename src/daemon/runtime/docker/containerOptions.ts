/** The options of a container: limits, ports and confinement. Pure. */
import type { ContainerCreateOptions, HostConfig } from "dockerode"
import type { Allocations } from "../../../contract/domain/Allocation.ts"
import { type Limits, memoryLimitBytes } from "../../../contract/domain/Limits.ts"
import { isIn } from "../../disk/mountTable.ts"
import { TERMINAL_ENV, TERMINAL_SIZE } from "../processConsole.ts"
import type { Launch, SharedFolder } from "../Runtime.ts"
import { engineReference } from "./images.ts"

/** Ports of the host by port of a container, as `25565/tcp`. */
export type PortBindings = Readonly<Record<string, ReadonlyArray<{ readonly HostPort: string }>>>

/** Returns the requested ports that are not published, as `25565/tcp`. */
export const unpublished = (
  asked: PortBindings,
  made: Readonly<Record<string, ReadonlyArray<{ readonly HostPort: string }> | null>>
): ReadonlyArray<string> =>
  Object.entries(asked).flatMap(([port, bindings]) =>
    bindings.every(({ HostPort }) => made[port]?.some((binding) => binding.HostPort === HostPort) === true)
      ? []
      : [port]
  )

/** The path of the instance folder in a container; for an install script, of the base folder. */
export const CONTAINER_HOME = "/home/container"
export const SCRATCH = "/mnt/install"

const MIB = 1024 * 1024
/** The quota period in microseconds: 1 % of a thread is 1000. */
const PERIOD = 100_000

/** The limit of processes and threads in a container; protects the host from fork bombs. */
const PIDS_LIMIT = 4096
/** The size of `/tmp`, in MiB of the container's memory. */
const TMP_MIB = 128

export const LABEL = {
  node: "muster.node",
  server: "muster.server",
  run: "muster.run",
  outgoing: "muster.outgoing",
  network: "muster.network"
} as const

/** Returns the name of a container. An image can set labels, but no name: both identify the node's containers. */
export const containerName = (name: string, run: string): string =>
  `muster-${name.replace(/[^A-Za-z0-9_.-]/g, "-")}-${run.slice(0, 8)}`

export interface ContainerRules {
  readonly node: string
  readonly user: { readonly uid: number; readonly gid: number }
  readonly env: Readonly<Record<string, string>>
}

/** Returns limits as options of the engine; an absent limit is unlimited. */
export const limitOptions = (limits: Limits): HostConfig => {
  const memory = memoryLimitBytes(limits)
  const options: HostConfig = {}
  if (memory > 0) {
    options.Memory = memory
    // The engine counts memory and swap together; -1 is unlimited. Without a setting there is no swap.
    const swap = limits.swap ?? 0
    options.MemorySwap = swap < 0 ? -1 : memory + swap * MIB
    // Without a memory limit, the host itself would run out of memory.
    if (limits.oom_disabled === true) options.OomKillDisable = true
  }
  if (limits.cpu_limit !== undefined && limits.cpu_limit > 0) {
    options.CpuPeriod = PERIOD
    options.CpuQuota = Math.max(1000, Math.round((limits.cpu_limit * PERIOD) / 100))
  }
  if (limits.threads !== undefined && limits.threads !== "") options.CpusetCpus = limits.threads
  if (limits.io_weight !== undefined && limits.io_weight > 0) options.BlkioWeight = limits.io_weight
  return options
}

/** The default limits of an install job: enough for large installers, and less than a host has. */
const JOB_LIMITS = { memory_limit: 4096, cpu_limit: 400 } as const satisfies Limits

/** Returns the limits of a job; an absent limit, or 0, is the default. */
export const jobLimits = (limits: Limits = {}): Limits => ({
  ...limits,
  memory_limit: limits.memory_limit || JOB_LIMITS.memory_limit,
  cpu_limit: limits.cpu_limit || JOB_LIMITS.cpu_limit
})

const limitNames = {
  Memory: "memory_limit",
  MemorySwap: "swap",
  CpuQuota: "cpu_limit",
  CpusetCpus: "threads",
  BlkioWeight: "io_weight",
  OomKillDisable: "oom_disabled",
  PidsLimit: "the number of processes"
} as const

/** Returns the limits that the engine dropped because the host cannot enforce them. */
export const droppedLimits = (asked: HostConfig, made: HostConfig): ReadonlyArray<string> =>
  Object.entries(limitNames).flatMap(([key, name]) => {
    const wanted: unknown = Reflect.get(asked, key)
    return wanted === undefined || Reflect.get(made, key) === wanted ? [] : [name]
  })

export const portOptions = (allocations: Allocations | undefined) => {
  const bindings: Record<string, Array<{ HostIp: string; HostPort: string }>> = {}
  for (const [ip, ports] of Object.entries(allocations?.mappings ?? {})) {
    for (const port of ports) {
      for (const protocol of ["tcp", "udp"]) {
        const name = `${port}/${protocol}`
        bindings[name] = [...(bindings[name] ?? []), { HostIp: ip, HostPort: String(port) }]
      }
    }
  }
  const exposed = Object.fromEntries(Object.keys(bindings).map((name) => [name, {}]))
  return { PortBindings: bindings, ExposedPorts: exposed }
}

export interface ContainerPlan {
  readonly name: string
  readonly run: string
  readonly image: string
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly limits: Limits
  readonly allocations?: Allocations | undefined
  /** The host folder at {@link CONTAINER_HOME}, writable. */
  readonly home: string
  readonly scratch?: string | undefined
  readonly shared?: ReadonlyArray<SharedFolder> | undefined
  /** Whether the engine keeps the output, so that nothing is lost while this service is down. */
  readonly keepOutput: boolean
  /** Whether the container has a terminal. Default false. */
  readonly terminal?: boolean | undefined
  /** Whether the standard input stays open. Default true. */
  readonly hasInput?: boolean | undefined
  readonly network: string
  /** The address from which its traffic leaves; its network enforces it. */
  readonly outgoing?: string | undefined
}

/** The output of a server that the engine keeps until this service has copied it. */
const logging = { Type: "json-file", Config: { "max-size": "8m", "max-file": "2" } }

const mount = (source: string, target: string, read_only: boolean) =>
  ({ Type: "bind", Source: source, Target: target, ReadOnly: read_only }) as const

export const containerOptions = (plan: ContainerPlan, rules: ContainerRules): ContainerCreateOptions => {
  const { ExposedPorts, PortBindings } = portOptions(plan.allocations)
  const { terminal = false } = plan
  const defaults = { HOME: CONTAINER_HOME, TMPDIR: "/tmp", ...(terminal ? TERMINAL_ENV : {}) }
  const env = { ...rules.env, ...defaults, ...plan.env }
  const scratch = plan.scratch === undefined ? [] : [mount(plan.scratch, SCRATCH, false)]
  // Links in the instance folder lead to host paths; mounts in it come with that folder.
  const linked = (plan.shared ?? []).filter(({ target }) => target === undefined)
  const shared = [
    ...linked.map((folder) => mount(folder.path, folder.path, folder.read_only)),
    ...(plan.shared ?? []).flatMap(({ inside, path, read_only, target = path }) =>
      inside === undefined ? [] : [mount(target, inside, read_only)]
    )
  ]
  const outgoing = plan.outgoing === undefined ? {} : { [LABEL.outgoing]: plan.outgoing }
  const { gid, uid } = rules.user
  const [entrypoint = "", ...command] = plan.argv
  return {
    name: containerName(plan.name, plan.run),
    Image: engineReference(plan.image),
    // Both are set, so that the image's entrypoint is not put before the invocation.
    Entrypoint: [entrypoint],
    Cmd: command,
    Env: Object.entries(env).map(([key, value]) => `${key}=${value}`),
    WorkingDir: CONTAINER_HOME,
    User: `${uid}:${gid}`,
    Labels: { [LABEL.node]: rules.node, [LABEL.server]: plan.name, [LABEL.run]: plan.run, ...outgoing },
    Tty: terminal,
    OpenStdin: plan.hasInput !== false,
    StdinOnce: false,
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    Healthcheck: { Test: ["NONE"] },
    ExposedPorts,
    HostConfig: {
      ...limitOptions(plan.limits),
      ...(terminal ? { ConsoleSize: [TERMINAL_SIZE.rows, TERMINAL_SIZE.columns] } : {}),
      PidsLimit: PIDS_LIMIT,
      PortBindings,
      Mounts: [mount(plan.home, CONTAINER_HOME, false), ...scratch, ...shared],
      // Some programs unpack libraries there and load them, hence exec.
      Tmpfs: { "/tmp": `rw,exec,nosuid,nodev,size=${TMP_MIB}m,mode=1777,uid=${uid},gid=${gid}` },
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges:true"],
      Privileged: false,
      // An init process forwards signals and reaps children.
      Init: true,
      NetworkMode: plan.network,
      RestartPolicy: { Name: "no" },
      LogConfig: plan.keepOutput ? logging : { Type: "none", Config: {} }
    }
  }
}

/** Returns a word or variable of a job with the paths in the container. */
export const insidePath = (word: string, cwd: string, scratch: string | undefined): string => {
  for (const [outside, inside] of [[cwd, CONTAINER_HOME] as const, [scratch, SCRATCH] as const]) {
    if (outside === undefined) continue
    if (word === outside) return inside
    if (word.startsWith(`${outside}/`)) return inside + word.slice(outside.length)
  }
  return word
}

/** Host folders that would hide folders of the container. */
const reserved = ["/", "/dev", "/etc", "/home", "/proc", "/sys", "/tmp"]

/** Returns why a server must not be started in a container. The engine's socket gives full control of the host. */
export const unsafeReason = (
  launch: Pick<Launch, "env" | "shared">,
  sockets: ReadonlyArray<string>
): string | undefined => {
  for (const [name, value] of Object.entries(launch.env)) {
    if (name === "" || /[=\0]/.test(name)) return `not the name of a variable: ${JSON.stringify(name)}`
    if (value.includes("\0")) return `the value of ${name} contains a NUL character`
  }
  for (const { path, target } of launch.shared ?? []) {
    if (sockets.some((socket) => isIn(socket, path)))
      return `${path} is not mounted: the socket of the Docker engine is in it`
    if (target === undefined && (reserved.includes(path) || isIn(path, CONTAINER_HOME)))
      return `${path} is not mounted: containers have their own`
  }
  return undefined
}
