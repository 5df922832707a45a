/** What a container is made of: limits, ports, and all that shuts it in. Pure. */
import type { ContainerCreateOptions, HostConfig } from "dockerode"
import type { Allocations } from "../../../domain/Allocation.ts"
import type { Limits } from "../../../domain/Limits.ts"
import type { SharedFolder } from "../Runtime.ts"

/** Where a container sees its instance folder, or an install script the base folder. */
export const CONTAINER_HOME = "/home/container"
/** Where an install script sees its scratch files. */
export const SCRATCH = "/mnt/install"

const MIB = 1024 * 1024
/** Quota period in microseconds: 1 % of one thread is 1000 of it. */
const PERIOD = 100_000

/** Labels that say what belongs to whom. */
export const LABEL = {
  node: "muster.node",
  server: "muster.server",
  run: "muster.run",
  /** Address that its traffic leaves from. */
  outgoing: "muster.outgoing",
  /** What a network of the node is for. */
  network: "muster.network"
} as const

/** Name of a container. Labels can come from an image, too, a name cannot: both together make it this node's own. */
export const containerName = (name: string, run: string): string =>
  `muster-${name.replace(/[^A-Za-z0-9_.-]/g, "-")}-${run.slice(0, 8)}`

/** What holds for every container of a node. */
export interface ContainerRules {
  readonly node: string
  /** Who runs in containers, numeric. */
  readonly user: { readonly uid: number; readonly gid: number }
  /** Processes and threads of one container; keeps a fork bomb from taking the machine along. */
  readonly pids_limit: number
  /** Size of `/tmp`, in MiB of the container's memory. */
  readonly tmp_mib: number
  /** Variables that every container gets. */
  readonly env: Readonly<Record<string, string>>
}

/** Limits in the engine's terms; what is not set is not limited. */
export const limitOptions = (limits: Limits): HostConfig => {
  const memory = Math.round((limits.memory_limit ?? 0) * MIB)
  const options: HostConfig = {}
  if (memory > 0) {
    options.Memory = memory
    // The engine counts memory and swap together; -1 is as much as there is. Without a setting there is no swap.
    const swap = limits.swap ?? 0
    options.MemorySwap = swap < 0 ? -1 : memory + swap * MIB
    // Without a limit the machine itself would run out.
    if (limits.oom_disabled === true) options.OomKillDisable = true
  }
  if (limits.cpu_limit !== undefined && limits.cpu_limit > 0) {
    options.CpuPeriod = PERIOD
    options.CpuQuota = Math.max(1000, Math.round((limits.cpu_limit * PERIOD) / 100))
  }
  if (limits.threads !== undefined && limits.threads !== "") options.CpusetCpus = limits.threads
  if (limits.io_weight !== undefined) options.BlkioWeight = limits.io_weight
  return options
}

/** Limits of an install job, unless its own say more: what large installers need, and less than a machine has. */
const JOB_LIMITS = { memory_limit: 4096, cpu_limit: 400 } as const satisfies Limits

/** Limits of a job: a limit that is absent, or 0, is the standard one. */
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

/** Limits that were asked for and that the engine left out, because the machine cannot enforce them. */
export const droppedLimits = (asked: HostConfig, made: HostConfig): ReadonlyArray<string> =>
  Object.entries(limitNames).flatMap(([key, name]) => {
    const wanted: unknown = Reflect.get(asked, key)
    return wanted === undefined || Reflect.get(made, key) === wanted ? [] : [name]
  })

/** Every port of a server, TCP and UDP, on the address that it was allocated at. */
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
  /** Server, or job. */
  readonly name: string
  readonly run: string
  readonly image: string
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly limits: Limits
  readonly allocations?: Allocations | undefined
  /** Folder of the host at {@link CONTAINER_HOME}, writable. */
  readonly home: string
  readonly scratch?: string | undefined
  readonly shared?: ReadonlyArray<SharedFolder> | undefined
  /** A server's output is kept by the engine, so that nothing is lost while this service is away. */
  readonly keep_output: boolean
  /** Network of the engine that the container is on. */
  readonly network: string
  /** Address that its traffic leaves from, on a network that sees to that. */
  readonly outgoing?: string | undefined
}

/** How much of a server's output the engine keeps until this service has fetched it. */
const logging = { Type: "json-file", Config: { "max-size": "8m", "max-file": "2" } }

const mount = (source: string, target: string, read_only: boolean) =>
  ({ Type: "bind", Source: source, Target: target, ReadOnly: read_only }) as const

export const containerOptions = (plan: ContainerPlan, rules: ContainerRules): ContainerCreateOptions => {
  const { ExposedPorts, PortBindings } = portOptions(plan.allocations)
  const env = { ...rules.env, HOME: CONTAINER_HOME, TMPDIR: "/tmp", ...plan.env }
  const scratch = plan.scratch === undefined ? [] : [mount(plan.scratch, SCRATCH, false)]
  // Links in the instance folder name these by the host's paths; what is mounted there comes with that folder.
  const linked = (plan.shared ?? []).filter(({ target }) => target === undefined)
  const shared = linked.map((folder) => mount(folder.path, folder.path, folder.read_only))
  const outgoing = plan.outgoing === undefined ? {} : { [LABEL.outgoing]: plan.outgoing }
  const { gid, uid } = rules.user
  const [entrypoint = "", ...command] = plan.argv
  return {
    name: containerName(plan.name, plan.run),
    Image: plan.image,
    // Both: an entrypoint of the image does not come before the invocation.
    Entrypoint: [entrypoint],
    Cmd: command,
    Env: Object.entries(env).map(([key, value]) => `${key}=${value}`),
    WorkingDir: CONTAINER_HOME,
    User: `${uid}:${gid}`,
    Labels: { [LABEL.node]: rules.node, [LABEL.server]: plan.name, [LABEL.run]: plan.run, ...outgoing },
    Tty: false,
    OpenStdin: true,
    StdinOnce: false,
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    Healthcheck: { Test: ["NONE"] },
    ExposedPorts,
    HostConfig: {
      ...limitOptions(plan.limits),
      PidsLimit: rules.pids_limit,
      PortBindings,
      Mounts: [mount(plan.home, CONTAINER_HOME, false), ...scratch, ...shared],
      // Programs that unpack libraries there have to be able to load them.
      Tmpfs: { "/tmp": `rw,exec,nosuid,nodev,size=${rules.tmp_mib}m,mode=1777,uid=${uid},gid=${gid}` },
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges:true"],
      Privileged: false,
      // A first process that hands signals on and buries the dead.
      Init: true,
      NetworkMode: plan.network,
      RestartPolicy: { Name: "no" },
      LogConfig: plan.keep_output ? logging : { Type: "none", Config: {} }
    }
  }
}

/** A word or variable of a job, its paths as the container sees them. */
export const insidePath = (word: string, cwd: string, scratch: string | undefined): string => {
  for (const [outside, inside] of [[cwd, CONTAINER_HOME] as const, [scratch, SCRATCH] as const]) {
    if (outside === undefined) continue
    if (word === outside) return inside
    if (word.startsWith(`${outside}/`)) return inside + word.slice(outside.length)
  }
  return word
}
