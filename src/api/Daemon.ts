import { Data, type Effect, type Scope, type Stream } from "effect"
import type {
  DaemonServer,
  HeldServer,
  InstallReport,
  PowerAction,
  ServerSpec
} from "../domain/NodeMessages.ts"
import type { Page } from "../domain/Pagination.ts"
import type { ServerStats } from "../domain/Server.ts"
import type { ServerStatus } from "../domain/ServerStatus.ts"
import type { SystemInfo } from "../domain/SystemInfo.ts"

/** The node cannot be reached: not connected, or it did not answer in time. `reason`: what calling it has come to. */
export class NodeUnreachable extends Data.TaggedError("NodeUnreachable")<{
  readonly node_id: string
  readonly reason?: string
}> {}

/** The node answered and refused. `status` is 404, 409, 422, or 500 for a failure of its own. */
export class DaemonRefused extends Data.TaggedError("DaemonRefused")<{
  readonly status: 404 | 409 | 422 | 500
  readonly detail: string
  readonly hint: string
}> {}

export type DaemonError = NodeUnreachable | DaemonRefused

/** A page of lines; page 1 is the newest for logs, the oldest for install logs; newest last within a page. */
export interface LinesRequest {
  readonly page: number
  readonly per_page: number
}

/**
 * What the control plane can ask of a daemon (node-protocol, "Control plane -> daemon"), in process or over HTTP.
 * Unknown servers are `DaemonRefused` 404, wrong states 409.
 */
export interface Daemon {
  readonly system: Effect.Effect<SystemInfo, DaemonError>
  /** Idempotent by id: a server that exists answers its present state and, when it is not installed, goes on. */
  create(spec: ServerSpec): Effect.Effect<DaemonServer, DaemonError>
  /**
   * Ends the process, removes the files. Idempotent: an unknown id is no error. `moved`: the server is on another node
   * and this is what it has left here: files that were not given away by {@link hold} are kept aside all the same.
   */
  remove(id: string, options?: { readonly moved: boolean }): Effect.Effect<void, DaemonError>
  /** Returns once accepted; `wait_seconds`: after how long a stop becomes a kill. */
  power(id: string, action: PowerAction, wait_seconds: number): Effect.Effect<void, DaemonError>
  commands(id: string, lines: ReadonlyArray<string>): Effect.Effect<void, DaemonError>
  /** Stops if need be, then makes the instance folder anew from base, volumes and copies. */
  reset(id: string): Effect.Effect<void, DaemonError>
  /** Runs the install script anew; only while offline. */
  reinstall(id: string): Effect.Effect<void, DaemonError>
  /**
   * With `held` it is not started, reset or reinstalled any more, also after a restart of the daemon, until this is
   * taken back: its files stay as they are once it is offline. 409 while the daemon is at its files.
   */
  hold(id: string, held: boolean): Effect.Effect<HeldServer, DaemonError>
  /**
   * The files of a held server that is offline, as an archive; without what volumes and mounts hold. An archive that
   * is not whole ends with a failure. No deadline: it lasts as long as it takes, but ends when nothing comes.
   */
  files(id: string): Effect.Effect<Stream.Stream<Uint8Array, DaemonError>, DaemonError, Scope.Scope>
  status(id: string): Effect.Effect<ServerStatus, DaemonError>
  stats(id: string, options: { readonly update_disk_usage: boolean }): Effect.Effect<ServerStats, DaemonError>
  logs(id: string, request: LinesRequest): Effect.Effect<Page<string>, DaemonError>
  install(id: string): Effect.Effect<InstallReport, DaemonError>
  installLogs(id: string, request: LinesRequest): Effect.Effect<Page<string>, DaemonError>
  /** Console lines from now on, subscribed before it returns; ends with the server's removal. */
  console(id: string): Effect.Effect<Stream.Stream<string>, DaemonError, Scope.Scope>
}
