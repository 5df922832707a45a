import { Context, Data, type Effect, type Scope } from "effect"
import type { Allocations } from "../../domain/Allocation.ts"
import type { Limits } from "../../domain/Limits.ts"
import type { RuntimeKind } from "../../domain/Node.ts"
import type { Isolation } from "../../domain/SystemInfo.ts"
import type { ProcessExit, StopSignal } from "./exitReason.ts"

/**
 * A process could not be started; `message` is short and exact. `code`: the system's, where it was a file operation,
 * or `REFUSED` where the server is made by what cannot be run; `next`: what to do about it, as a clause.
 */
export class LaunchFailed extends Data.TaggedError("LaunchFailed")<{
  readonly message: string
  readonly code?: string
  readonly next?: string
}> {}

/**
 * The console's input could not be written: there is no process any more (`closed`), the server does not read it
 * (`full`), or who has it does not answer now, though the server may run (`away`).
 */
export class ConsoleInputFailed extends Data.TaggedError("ConsoleInputFailed")<{
  readonly why: "closed" | "full" | "away"
  readonly message: string
}> {}

/** What decides which runtime runs a server. */
export interface RuntimeChoice {
  /** Reference of the image; empty for software without images. */
  readonly image: string
  /** Where its software can run; the first that this node offers is taken. */
  readonly runtimes: ReadonlyArray<RuntimeKind>
}

/** Who runs something, numeric. */
export interface RunUser {
  readonly uid: number
  readonly gid: number
  /** The server or software has the uid for itself: the uid is kept with the server. */
  readonly own?: true
}

/** A server with the uid that it had before, or a software: its install script, its warm-up and its base folders. */
export type RunFor =
  | { readonly server: string; readonly uid?: number | undefined }
  | { readonly software: string }

/** A folder of the host that is seen in the instance folder, too. */
export interface SharedFolder {
  readonly path: string
  readonly read_only: boolean
  /** Volumes are the node's own and belong to those who run servers; other folders are left as they are. */
  readonly volume: boolean
  /**
   * Where it is mounted in the instance folder, so that a container has it with that. Absent: a link there leads to
   * it, and containers have to see it at the same path.
   */
  readonly target?: string
}

/** One run of one server. */
export interface Launch {
  readonly server_id: string
  /** Name of this run: a new one each time. */
  readonly token: string
  /** Folder of the server: `console.log`, `console.in`, `run.json`, `exit` live here. */
  readonly folder: string
  /** The instance folder: the working directory. */
  readonly cwd: string
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  /** The environment of the server's own; the runtime adds what every process needs. */
  readonly env: Readonly<Record<string, string>>
  readonly limits: Limits
  /** Empty for software without images. */
  readonly image: string
  /** Absent: whatever the image says. */
  readonly runtimes?: ReadonlyArray<RuntimeKind>
  /** Ports that containers publish. */
  readonly allocations?: Allocations
  readonly shared?: ReadonlyArray<SharedFolder>
  /** See {@link Runtime}`.userFor`. */
  readonly user?: RunUser | undefined
}

/** What a server uses now. */
export interface Usage {
  readonly memory_bytes: number
  /** Processor time since the start, in ms of one thread. */
  readonly cpu_ms: number
  /** Percent of one thread, of late, where the runtime measures it; else whoever asks has to. */
  readonly cpu_percent?: number | undefined
  readonly uptime_ms: number
  readonly network: { readonly rx_bytes: number; readonly tx_bytes: number }
}

/** A run that was started or adopted. It goes on when this process ends. */
export interface Run {
  /**
   * Of a run that `start` answered before there was a process, because something has to be fetched first: when the
   * process began, ms since the epoch. Waits for ever when it never does; `ended` then says so.
   */
  readonly beginning?: { readonly at: Effect.Effect<number>; readonly isOver: () => boolean }
  /** Waits for the end of the main process; its children may still be there. */
  readonly ended: Effect.Effect<ProcessExit>
  /** Writes one line to the console's input without ever waiting for the server. */
  write(line: string): Effect.Effect<void, ConsoleInputFailed>
  signal(signal: StopSignal): Effect.Effect<void>
  readonly pause: Effect.Effect<void>
  readonly resume: Effect.Effect<void>
  /** Kills the main process and everything it left behind; returns when nothing of it is left. Idempotent. */
  readonly kill: Effect.Effect<void>
  /** Undefined when it has ended. */
  readonly usage: Effect.Effect<Usage | undefined>
}

/** What became of a run that an earlier process of this daemon started. */
export type Adopted =
  | { readonly _tag: "Running"; readonly run: Run }
  | { readonly _tag: "Ended"; readonly exit: ProcessExit }
  /** The daemon ended before there was a process, and now there will never be one. */
  | { readonly _tag: "NeverBegan" }

/** Something that is run to its end under this process's eyes: an install script, a warm-up. */
export interface Job {
  /** Marks its processes, so that none survives. */
  readonly name: string
  /** A folder that the job cannot write to, for the files of this service. */
  readonly folder: string
  readonly cwd: string
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
  /** Called with what it prints; must not throw. */
  readonly onOutput: (bytes: Uint8Array) => void
  /** Where it runs; absent: as a plain process. */
  readonly choice?: RuntimeChoice
  /** Folder of further files that `argv` and `env` name by their paths. */
  readonly scratch?: string
  readonly limits?: Limits
  /** See {@link Runtime}`.userFor`. */
  readonly user?: RunUser | undefined
}

export interface RunningJob {
  readonly ended: Effect.Effect<ProcessExit>
  write(line: string): Effect.Effect<void>
  signal(signal: StopSignal): Effect.Effect<void>
}

/**
 * How servers become processes: plain ones, or containers. The console of a run is appended to
 * `<folder>/console.log` whatever the runtime is.
 */
export class Runtime extends Context.Service<
  Runtime,
  {
    readonly kind: RuntimeKind
    /** What this node can run now. */
    readonly kinds: Effect.Effect<ReadonlyArray<RuntimeKind>>
    /** Which runtime a server would be started by now. */
    kindFor(choice: RuntimeChoice): Effect.Effect<RuntimeKind, LaunchFailed>
    /**
     * The user that a server, or the scripts of a software, would run as now, and that owns its files. Undefined: the
     * user of this service. A server that has no uid of its own yet is given one.
     */
    userFor(choice: RuntimeChoice, whom: RunFor): Effect.Effect<RunUser | undefined, LaunchFailed>
    /** Keeps the uid of a server, or of files that are kept aside, from being given to another. */
    holdUser(name: string, uid: number): Effect.Effect<void>
    /** The server has gone with all its files: its uid may be given again. */
    releaseUser(server_id: string): Effect.Effect<void>
    /** How far this node keeps what it runs from itself and from each other, by runtime. */
    readonly isolation: Effect.Effect<Isolation>
    /** Fetches what a server needs beyond its files: the image. */
    prepare(choice: RuntimeChoice, onOutput: (bytes: Uint8Array) => void): Effect.Effect<void, LaunchFailed>
    /** The same where it is not there at all; soon otherwise, and without a word. */
    have(choice: RuntimeChoice): Effect.Effect<void, LaunchFailed>
    /** Answers soon; a run that waits for something has a `beginning`. */
    start(launch: Launch): Effect.Effect<Run, LaunchFailed>
    /** Picks up a run by its token, after a restart of this process. */
    adopt(launch: Pick<Launch, "server_id" | "token" | "folder">): Effect.Effect<Adopted>
    /** Kills everything that is left of a server; also without any record of a run. */
    sweep(server_id: string): Effect.Effect<void>
    /** Names of servers and jobs of this node that have live processes. */
    readonly alive: Effect.Effect<ReadonlySet<string>>
    /** Starts a job; the end of the scope kills it with all its descendants. */
    job(job: Job): Effect.Effect<RunningJob, LaunchFailed, Scope.Scope>
  }
>()("muster/daemon/runtime/Runtime") {}
