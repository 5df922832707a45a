/** What the changes of an instance share. */
import type { Effect, Exit, Fiber, Scope, Semaphore } from "effect"
import type { ConfigPatches } from "../../contract/domain/ConfigPatch.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import type { OpenSpan } from "../../shared/observability/trace.ts"
import type { ConsoleLog } from "../console/ConsoleLog.ts"
import type { InstallFailed } from "../files/InstallFailed.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { FileSources } from "../files/sources.ts"
import type { Installed, Installer } from "../install/Installer.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import type { InstanceFile } from "../state/InstanceFile.ts"
import type { LiveProgress } from "../uplink/ReportOutbox.ts"
import type { Uplink } from "../uplink/uplink.ts"
import type { Accesses } from "./Accesses.ts"
import type { Turns } from "./StartQueue.ts"
import type { RunEvent, WatchedRun } from "./watchRun.ts"

export interface InstanceParts {
  readonly runtime: Runtime["Service"]
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly sources: FileSources
  /** Bounds the servers whose files are made at a time: with all at once, each would take as long as all of them. */
  readonly turns: Semaphore.Semaphore
  readonly replacePorts: Uplink["replacePorts"]
  readonly starts: Turns
}

export type WorkExit = Exit.Exit<Installed, InstallFailed>

/** Work on the files that is in progress. */
export interface Work {
  readonly fiber: Fiber.Fiber<void>
  /** The later definition for which the work is done, if there is one. */
  readonly target: ServerSpec | undefined
}

/** The record of an instance until it is idle. */
export interface Serving extends InstanceParts {
  readonly file: InstanceFile
  readonly folder: string
  readonly accesses: Accesses
  /** Has the fibers of its run, work and timers. */
  readonly scope: Scope.Closeable
  readonly progress: LiveProgress
  /** Opens the console at its first use: an installation has none. */
  readonly console: () => ConsoleLog
  /** Adds a change; does not wait for it. */
  readonly post: (what: string, use: (it: Serving) => Effect.Effect<void>) => Effect.Effect<void>
  readonly onEvent: (event: RunEvent) => Effect.Effect<void>
  work: Work | undefined
  live: WatchedRun | undefined
  /** The token of the run whose stop took too long. */
  killedLate: string | undefined
  /** Lasts until the server is up, or its start has failed. */
  startSpan: OpenSpan | undefined
  /** Failures on the same patches in a row, the last one, and the time of the next attempt. */
  failedConfigs: { configs: ConfigPatches; refusal: DaemonRefused; times: number; until: number } | undefined
}
