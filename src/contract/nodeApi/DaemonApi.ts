import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Failures, Policy, route } from "../api/middleware.ts"
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

const params = { id: ServerId }
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
    HttpApiEndpoint.get("system", "/system", { success: SystemInfo }).annotateMerge(
      route("Version of the daemon and its host")
    ),
    HttpApiEndpoint.get("list", "/servers", { success: Schema.Array(DaemonServer) }).annotateMerge(
      route("Contents of the daemon")
    ),
    HttpApiEndpoint.post("create", "/servers", {
      payload: ServerSpec,
      success: DaemonServer
    }).annotateMerge(route("Create and install a server; idempotent by id")),
    HttpApiEndpoint.post("register", "/register", {
      success: HttpApiSchema.Empty(202)
    }).annotateMerge(route("Register with the control plane again, which has just started")),
    HttpApiEndpoint.post("createMany", "/creations", {
      payload: Creations,
      success: CreationsAnswer
    }).annotateMerge(route("Create and install servers; each as if it were created alone")),
    HttpApiEndpoint.get("get", "/servers/:id", {
      params,
      success: DaemonServer
    }).annotateMerge(route("State of one server on the daemon")),
    HttpApiEndpoint.delete("remove", "/servers/:id", {
      params,
      query: {
        moved: flag("Whether the server is on another node."),
        kept: flag("Whether the files are kept for an undelete.")
      },
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(
      route(
        "End a server and remove its files; moved=true: it is on another node; kept=true: its files are kept; an unknown id is no error"
      )
    ),
    HttpApiEndpoint.post("power", "/servers/:id/power", {
      params,
      payload: Schema.Struct({ action: PowerAction, wait_seconds: WaitSeconds, by: text }),
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(route("Start, stop, restart, kill, pause or unpause")),
    HttpApiEndpoint.post("commands", "/servers/:id/commands", {
      params,
      payload: Schema.Struct({ commands: Schema.Array(Schema.String), by: text }),
      success: HttpApiSchema.NoContent
    }).annotateMerge(route("Write lines to the console")),
    HttpApiEndpoint.post("reset", "/servers/:id/reset", {
      params,
      success: HttpApiSchema.Empty(202)
    }).annotateMerge(route("Reset the files to those of the blueprint")),
    HttpApiEndpoint.post("reinstall", "/servers/:id/reinstall", {
      params,
      success: HttpApiSchema.Empty(202)
    }).annotateMerge(route("Run the install script again")),
    HttpApiEndpoint.post("hold", "/servers/:id/hold", {
      params,
      payload: Schema.Struct({ held: Schema.Boolean }),
      success: HeldServer
    }).annotateMerge(route("Keep a server still so that it can be moved, or not any more")),
    HttpApiEndpoint.get("files", "/servers/:id/files", {
      params,
      success: HttpApiSchema.StreamUint8Array({ contentType: "application/x-tar" })
    }).annotateMerge(route("The files of a held server that is offline, as an archive of GNU tar")),
    HttpApiEndpoint.get("status", "/servers/:id/status", {
      params,
      success: Schema.Struct({ status: ServerStatus })
    }).annotateMerge(route("Power and process status")),
    HttpApiEndpoint.get("stats", "/servers/:id/stats", {
      params,
      query: { update_disk_usage: flag("Whether the disk is measured again.") },
      success: ServerStats
    }).annotateMerge(route("Memory, CPU, network and disk in use; null for unknown figures")),
    HttpApiEndpoint.post("statsOfMany", "/stats", {
      payload: Schema.Struct({ ids: Schema.Array(ServerId).check(Schema.isMaxLength(MOST_STATS)) }),
      success: StatsById
    }).annotateMerge(route("Memory, CPU, network and disk in use by some servers; null: not here")),
    HttpApiEndpoint.get("logs", "/servers/:id/logs", {
      params,
      query: { ...lines, times: flag("Whether the lines have their times.") },
      success: LogPage
    }).annotateMerge(route("Console lines; page 1 is the newest; times=true: with their times")),
    HttpApiEndpoint.get("install", "/servers/:id/install", {
      params,
      success: InstallReport
    }).annotateMerge(route("Progress of the installation")),
    HttpApiEndpoint.get("installLogs", "/servers/:id/install/logs", {
      params,
      query: lines,
      success: LinePage
    }).annotateMerge(route("Output of the install script; page 1 is the oldest")),
    HttpApiEndpoint.get("console", "/servers/:id/console", {
      params,
      success: HttpApiSchema.Empty(101),
      error: UpgradeRequired
    }).annotateMerge(route("Console lines out, commands in, over WebSocket", { isStream: true }))
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
