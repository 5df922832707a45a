import { Data, type Effect, type Scope, type Stream } from "effect"
import type { NodeId, ServerId } from "../domain/Id.ts"
import type { SystemInfo } from "../domain/Node.ts"
import type {
  DaemonServer,
  HeldServer,
  InstallReport,
  PowerAction,
  ServerSpec
} from "../domain/NodeMessages.ts"
import type { ConsolePage, Page } from "../domain/Pagination.ts"
import type { ServerStats, StatsById } from "../domain/Server.ts"
import type { ServerStatus } from "../domain/ServerStatus.ts"
import type { NodeBackups } from "./NodeBackups.ts"
import type { NodeFiles } from "./NodeFiles.ts"

/** The node is not connected, or did not answer in time. `reason`: the failure of the call. */
export class NodeUnreachable extends Data.TaggedError("NodeUnreachable")<{
  readonly node_id: NodeId
  readonly reason?: string
}> {}

/** The node answered and refused. `status` is 404, 409, 422, or 500 for a failure of its own. */
export class DaemonRefused extends Data.TaggedError("DaemonRefused")<{
  readonly status: 404 | 409 | 422 | 500
  readonly detail: string
  readonly hint: string
}> {}

export type DaemonError = NodeUnreachable | DaemonRefused

/** A page of lines. Page 1 is the newest for logs and the oldest for install logs; a page ends with its newest line. */
export interface LinesRequest {
  readonly page: number
  readonly per_page: number
  /** Whether the page of a console has the times of its lines; default false. */
  readonly times?: boolean
}

/**
 * The calls from the control plane to a daemon (spec 9.4). Unknown servers are `DaemonRefused` 404, wrong states 409.
 */
export interface Daemon {
  readonly system: Effect.Effect<SystemInfo, DaemonError>
  /** Makes the node register again soon: the control plane has just started. */
  readonly register: Effect.Effect<void, DaemonError>
  /**
   * Creates a server. Idempotent by id: an unfinished installation continues, and a later `ServerSpec.defined_at` is
   * taken. With `restore`, a server that is there from before its deletion is stopped first.
   */
  create(spec: ServerSpec): Effect.Effect<DaemonServer, DaemonError>
  find(id: ServerId): Effect.Effect<DaemonServer, DaemonError>
  /**
   * Ends the process and removes the files; idempotent. `moved`: after a migration, files that {@link hold} did not
   * hand over are kept aside. `kept`: the files stay until `create` restores them or a removal without it.
   */
  remove(
    id: ServerId,
    options?: { readonly moved?: boolean; readonly kept?: boolean }
  ): Effect.Effect<void, DaemonError>
  /**
   * Returns once the action is accepted, with the sequence of the newest unacknowledged report, if any. `wait_seconds`
   * is the time until the kill, `by` the caller, whose stop holds until the next start.
   */
  power(
    id: ServerId,
    action: PowerAction,
    wait_seconds: number,
    by?: string
  ): Effect.Effect<number | undefined, DaemonError>
  /** `by`: as in {@link power}, for a line that is the stop command. */
  commands(id: ServerId, lines: ReadonlyArray<string>, by?: string): Effect.Effect<void, DaemonError>
  /** Stops the server if necessary, then makes the instance again from base, volumes and copies; returns as `power`. */
  reset(id: ServerId): Effect.Effect<number | undefined, DaemonError>
  /** Runs the install script again; only while offline. */
  reinstall(id: ServerId): Effect.Effect<void, DaemonError>
  /**
   * While held, also across restarts, a server is not started, reset or reinstalled, and its files rest once offline.
   * 409 while the daemon works on its files.
   */
  hold(id: ServerId, held: boolean): Effect.Effect<HeldServer, DaemonError>
  /** The files of a held offline server, without volumes and mounts. No deadline, but a stalled archive fails. */
  exportFiles(id: ServerId): Effect.Effect<Stream.Stream<Uint8Array, DaemonError>, DaemonError, Scope.Scope>
  status(id: ServerId): Effect.Effect<ServerStatus, DaemonError>
  stats(
    id: ServerId,
    options: { readonly update_disk_usage: boolean }
  ): Effect.Effect<ServerStats, DaemonError>
  /** The figures of servers; null: the daemon does not have the server. Waits for no measurement of a disk. */
  statsOfMany(ids: ReadonlyArray<ServerId>): Effect.Effect<StatsById, DaemonError>
  logs(id: ServerId, request: LinesRequest): Effect.Effect<ConsolePage, DaemonError>
  install(id: ServerId): Effect.Effect<InstallReport, DaemonError>
  installLogs(id: ServerId, request: LinesRequest): Effect.Effect<Page<string>, DaemonError>
  /**
   * The console lines from now on, subscribed before the effect returns. The stream ends when the server is removed.
   */
  console(id: ServerId): Effect.Effect<Stream.Stream<string>, DaemonError, Scope.Scope>
  readonly files: NodeFiles
  readonly backups: NodeBackups
}
