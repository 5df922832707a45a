import { Schema } from "effect"
import { HttpApi, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { endpoints } from "../api/endpoint.ts"
import { Failures, Policy } from "../api/middleware.ts"
import { flag } from "../api/query.ts"
import { UpgradeRequired } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import { SystemInfo } from "../domain/Node.ts"
import {
  Creations,
  CreationsAnswer,
  DaemonServer,
  HeldServer,
  InstallReport,
  PowerAction,
  ServerSpec
} from "../domain/NodeMessages.ts"
import { LinePage, LogPage } from "../domain/Pagination.ts"
import { ServerStats, StatsById } from "../domain/Server.ts"
import { ServerStatus } from "../domain/ServerStatus.ts"
import { NodeBackupsGroup } from "./NodeBackups.ts"
import { DaemonAuthorization, NodeFilesGroup } from "./NodeFilesApi.ts"
import { NodeUploadsGroup } from "./NodeUploadsApi.ts"

const { del, get, post } = endpoints({ id: ServerId }, [])
const text = Schema.optionalKey(Schema.String)
const lines = { page: text, per_page: text }

/** The header of an accepted power action or reset that has the sequence of the newest report to come. */
export const SEQUENCE_HEADER = "x-muster-sequence"

export const MOST_STATS = 10_000

/** Seconds after which a stop becomes a kill. */
const WaitSeconds = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 3600 }))

/** The calls from the control plane to a daemon (spec 9.4). */
export class DaemonGroup extends HttpApiGroup.make("daemon")
  .add(
    get("system", "/system", "Version of the daemon and its host", { success: SystemInfo }),
    get("list", "/servers", "Contents of the daemon", { success: Schema.Array(DaemonServer) }),
    post("create", "/servers", "Create and install a server; idempotent by id", {
      payload: ServerSpec,
      success: DaemonServer
    }),
    post("register", "/register", "Register with the control plane again, which has just started", {
      success: HttpApiSchema.Empty(202)
    }),
    post("createMany", "/creations", "Create and install servers; each as if it were created alone", {
      payload: Creations,
      success: CreationsAnswer
    }),
    get("get", "/servers/:id", "State of one server on the daemon", { success: DaemonServer }),
    del(
      "remove",
      "/servers/:id",
      "End a server and remove its files; moved=true: it is on another node; kept=true: its files are kept; an unknown id is no error",
      {
        query: {
          moved: flag("Whether the server is on another node."),
          kept: flag("Whether the files are kept for an undelete.")
        },
        success: HttpApiSchema.Empty(200)
      }
    ),
    post("power", "/servers/:id/power", "Start, stop, restart, kill, pause or unpause", {
      payload: Schema.Struct({ action: PowerAction, wait_seconds: WaitSeconds, by: text }),
      success: HttpApiSchema.Empty(200)
    }),
    post("commands", "/servers/:id/commands", "Write lines to the console", {
      payload: Schema.Struct({ commands: Schema.Array(Schema.String), by: text }),
      success: HttpApiSchema.NoContent
    }),
    post("reset", "/servers/:id/reset", "Reset the files to those of the blueprint", {
      success: HttpApiSchema.Empty(202)
    }),
    post("reinstall", "/servers/:id/reinstall", "Run the install script again", {
      success: HttpApiSchema.Empty(202)
    }),
    post("hold", "/servers/:id/hold", "Keep a server still so that it can be moved, or not any more", {
      payload: Schema.Struct({ held: Schema.Boolean }),
      success: HeldServer
    }),
    get(
      "files",
      "/servers/:id/files",
      "The files of a held server that is offline, as an archive of GNU tar",
      { success: HttpApiSchema.StreamUint8Array({ contentType: "application/x-tar" }) }
    ),
    get("status", "/servers/:id/status", "Power and process status", {
      success: Schema.Struct({ status: ServerStatus })
    }),
    get("stats", "/servers/:id/stats", "Memory, CPU, network and disk in use; null for unknown figures", {
      query: { update_disk_usage: flag("Whether the disk is measured again.") },
      success: ServerStats
    }),
    post("statsOfMany", "/stats", "Memory, CPU, network and disk in use by some servers; null: not here", {
      payload: Schema.Struct({ ids: Schema.Array(ServerId).check(Schema.isMaxLength(MOST_STATS)) }),
      success: StatsById
    }),
    get("logs", "/servers/:id/logs", "Console lines; page 1 is the newest; times=true: with their times", {
      query: { ...lines, times: flag("Whether the lines have their times.") },
      success: LogPage
    }),
    get("install", "/servers/:id/install", "Progress of the installation", { success: InstallReport }),
    get("installLogs", "/servers/:id/install/logs", "Output of the install script; page 1 is the oldest", {
      query: lines,
      success: LinePage
    }),
    get("console", "/servers/:id/console", "Console lines out, commands in, over WebSocket", {
      isStream: true,
      success: HttpApiSchema.Empty(101),
      errors: [UpgradeRequired]
    })
  )
  .middleware(DaemonAuthorization)
  .annotate(Policy, { isRoutine: true, acceptsAnyQuery: true })
  .annotateMerge(OpenApi.annotations({ title: "Daemon" })) {}

export class DaemonApi extends HttpApi.make("muster-daemon")
  .add(DaemonGroup.prefix("/api"))
  .add(NodeFilesGroup.prefix("/api"))
  .add(NodeBackupsGroup.prefix("/api"))
  .add(NodeUploadsGroup.prefix("/api"))
  .middleware(Failures)
  .annotateMerge(OpenApi.annotations({ title: "Muster, on a node" })) {}
