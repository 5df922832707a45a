/**
 * The two runtimes of servers, behind one service: plain processes here, containers in `docker`. Imports `console`,
 * `disk` and `host`. Read first: this file, `processRun.ts`, `docker/containerRun.ts`.
 */
import { Context, Data, Effect, type Scope } from "effect"
import type { Allocations } from "../../contract/domain/Allocation.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { Limits } from "../../contract/domain/Limits.ts"
import type { Isolation, RuntimeKind } from "../../contract/domain/Node.ts"
import type { ProcessExit, StopSignal } from "./exitReason.ts"

/** A process that could not be started, with the code of the system or `REFUSED`, and the next step as a clause. */
export class LaunchFailed extends Data.TaggedError("LaunchFailed")<{
  readonly message: string
  readonly code?: string
  readonly next?: string
}> {}

export const noProgram = (program: string, path: string) =>
  new LaunchFailed({
    message: program.includes("/")
      ? `there is no program ${program}`
      : `the program ${program} is not in PATH (${path})`,
    code: "REFUSED"
  })

/** The process has ended (`closed`), the server does not read (`full`), or the engine is down (`away`). */
export class ConsoleInputFailed extends Data.TaggedError("ConsoleInputFailed")<{
  readonly why: "closed" | "full" | "away"
  readonly message: string
  /** Whether a part of the text was written, which the server may read as a line. Default false. */
  readonly isPartial?: boolean
}> {}

export interface RuntimeChoice {
  readonly image: string
  /** The runtimes of the software; the node uses the first that it offers. */
  readonly runtimes: ReadonlyArray<RuntimeKind>
}

export interface RunUser {
  readonly uid: number
  readonly gid: number
  /** Whether the uid is reserved for one server or software. */
  readonly own?: true
}

/** A server with its previous uid, or a software: its install script, warm-up and base folders. */
export type RunFor =
  | { readonly server: string; readonly uid?: number | undefined }
  | { readonly software: string }

/** A host folder that is visible in the instance folder. */
export interface SharedFolder {
  readonly path: string
  readonly read_only: boolean
  /** Whether the folder is a volume of the node, which gets the user of its servers. */
  readonly volume: boolean
  /** The mount point in the instance folder. If there is none, a link leads to the folder. */
  readonly target?: string
  /** The path at which a container has the folder as well. */
  readonly inside?: string
}

export interface Launch {
  readonly server_id: ServerId
  readonly token: string
  /** The folder of the server, with `console.log`, `console.in`, `run.json` and `exit`. */
  readonly folder: string
  /** The instance folder: the working directory. */
  readonly cwd: string
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
  readonly limits: Limits
  /** Empty for software without images. */
  readonly image: string
  readonly runtimes?: ReadonlyArray<RuntimeKind>
  /** The ports that containers publish. */
  readonly allocations?: Allocations
  readonly shared?: ReadonlyArray<SharedFolder>
  readonly user?: RunUser | undefined
  readonly terminal?: boolean | undefined
}

export type LimitName = keyof Limits

/** A port of a process: of UDP, or on which it listens for TCP. */
export interface BoundPort {
  readonly port: number
  readonly udp: boolean
}

export interface Usage {
  readonly memory_bytes: number
  /** Processor time since the start, in ms of one thread. */
  readonly cpu_ms: number
  readonly uptime_ms: number
  /** Unset if the runtime cannot tell the traffic of this server from other traffic. */
  readonly network: { readonly rx_bytes: number; readonly tx_bytes: number } | undefined
}

/** A run that was started or adopted. It outlives this process. */
export interface Run {
  /** The start of a process that waits for its image, in ms since the epoch. Without one, `at` never completes. */
  readonly beginning?: { readonly at: Effect.Effect<number>; readonly isOver: () => boolean }
  readonly notEnforced?: ReadonlyArray<LimitName>
  /** The ports that its processes have on all addresses of the host, unless the run has its own addresses. */
  readonly boundToAll?: Effect.Effect<ReadonlyArray<BoundPort>>
  /** The ids of its processes on this host, if they are known. */
  readonly pids?: Effect.Effect<ReadonlyArray<number>>
  /** Whether an adopted process runs as root, although servers of this node have uids. */
  readonly asRoot?: boolean
  /** Waits for the end of the main process; its children may still run. */
  readonly ended: Effect.Effect<ProcessExit>
  /** Writes a line to the console's input; never waits for the server. */
  write(line: string): Effect.Effect<void, ConsoleInputFailed>
  /** Writes the byte of ^C to the terminal of the process, if it has one. */
  readonly interrupt?: Effect.Effect<void, ConsoleInputFailed>
  signal(signal: StopSignal): Effect.Effect<void>
  /** Freezes its processes, and returns whether they are frozen: an engine may refuse it. */
  readonly pause: Effect.Effect<boolean>
  readonly resume: Effect.Effect<void>
  /** Kills the main process and all its descendants, and waits until none is left. Idempotent. */
  readonly kill: Effect.Effect<void>
  /** Unset if the run has ended, or if there is no measurement. */
  readonly usage: Effect.Effect<Usage | undefined>
}

/** Watches the pull of an image; not called if the image is present. */
export interface PullWatch {
  readonly begun: Effect.Effect<void>
  /** Called with the share that is done, 0 to 1; must not throw. */
  readonly onProgress: (share: number) => void
}

export type Adopted =
  | { readonly _tag: "Running"; readonly run: Run }
  | { readonly _tag: "Ended"; readonly exit: ProcessExit }
  /** The daemon ended before the process started, and the process can no longer start. */
  | { readonly _tag: "NeverBegan" }

/** A program that ends with this process: an install script or a warm-up. */
export interface Job {
  /** The marker of its processes, by which they are killed. */
  readonly name: string
  /** A folder that the job cannot write to, for files of this service. */
  readonly folder: string
  readonly cwd: string
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
  /** Called with the output; must not throw. */
  readonly onOutput: (bytes: Uint8Array) => void
  /** The runtime of the job. Default: a plain process. */
  readonly choice?: RuntimeChoice
  readonly scratch?: string
  readonly limits?: Limits
  readonly user?: RunUser | undefined
  /** Whether the standard input stays open. Default true. */
  readonly hasInput?: boolean
  readonly terminal?: boolean | undefined
}

export interface RunningJob {
  readonly ended: Effect.Effect<ProcessExit>
  write(line: string): Effect.Effect<void>
  signal(signal: StopSignal): Effect.Effect<void>
}

export interface RuntimeUsers {
  /** Reserves the uid of a server, or of files that are kept. */
  reserve(name: string, uid: number): Effect.Effect<void>
  /** Reserves the uid of a removed server under another name: the server may return while its files are removed. */
  rename(name: string, to: string): Effect.Effect<void>
  /** Releases the uid of a server that was removed with all its files, once it has no live process. */
  release(name: string): Effect.Effect<void>
}

/** Without uids of their own. */
export const noUsers: RuntimeUsers = {
  reserve: () => Effect.void,
  rename: () => Effect.void,
  release: () => Effect.void
}

export interface RuntimeOffer {
  readonly kinds: ReadonlyArray<RuntimeKind>
  /** The isolation of servers from this node and from each other, by runtime. */
  readonly isolation: Isolation
  readonly notEnforced: ReadonlyArray<LimitName>
  /** Whether a new server would get no uid, so that plain processes are not among `kinds`. */
  readonly lacksUids: boolean
}

/** Runs servers as plain processes or containers, whose console is appended to `<folder>/console.log`. */
export class Runtime extends Context.Service<
  Runtime,
  {
    readonly offer: Effect.Effect<RuntimeOffer>
    kindFor(choice: RuntimeChoice): Effect.Effect<RuntimeKind, LaunchFailed>
    /** Returns the user of a server or its scripts, assigned if needed, unless it is the user of this service. */
    userFor(choice: RuntimeChoice, whom: RunFor): Effect.Effect<RunUser | undefined, LaunchFailed>
    /** The uids of servers that are plain processes. */
    readonly users: RuntimeUsers
    /** Pulls the image. Without `onOutput`, an image that is present stays, whatever the policy. */
    ensureImage(
      choice: RuntimeChoice,
      onOutput?: (bytes: Uint8Array) => void,
      watch?: PullWatch
    ): Effect.Effect<void, LaunchFailed>
    /** Starts a run; returns soon. A run that waits for its image has a `beginning`. */
    start(launch: Launch): Effect.Effect<Run, LaunchFailed>
    /** Adopts a run by its token, after a restart of this process. */
    adopt(launch: Pick<Launch, "server_id" | "token" | "folder">): Effect.Effect<Adopted>
    sweep(server_id: string): Effect.Effect<void>
    /** The names of servers and jobs of this node with live processes. */
    readonly alive: Effect.Effect<ReadonlySet<string>>
    /** Starts a job; the end of the scope kills it with all its descendants. */
    job(job: Job): Effect.Effect<RunningJob, LaunchFailed, Scope.Scope>
  }
>()("muster/daemon/runtime/Runtime") {}
