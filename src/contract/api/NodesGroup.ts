import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { DrainPlan, drainOptions, NOTIFY_SECONDS } from "../domain/Drain.ts"
import { Conflict } from "../domain/errors.ts"
import { NodeId } from "../domain/Id.ts"
import { Node, NodeDetail, SettingView, SystemInfo } from "../domain/Node.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { del, get, patch } from "./endpoint.ts"
import { nodeExample, systemExample } from "./examples.ts"
import { Authorization, Policy } from "./middleware.ts"
import { flag, names, trueOrNot } from "./query.ts"
import { SftpAddress } from "./SftpGroup.ts"

export const DrainRequest = Schema.Struct({
  drained: Schema.Boolean,
  ...optionalInputs({
    move: Schema.Boolean.annotate({
      description:
        "Whether its saved servers move to other nodes, two at a time, each stopped within its stop timeout; absent: as it was."
    }),
    parallel: drainOptions.parallel.annotate({
      description: "With `move`: servers that leave at a time; default 2."
    }),
    deadline: drainOptions.deadline.annotate({
      description:
        "With `move`: seconds until all remaining servers leave at once, and those that cannot leave or are not saved are stopped; default: never."
    }),
    notify: drainOptions.notify.annotate({
      description: "With `move`: a line for the console of each running server before it is stopped."
    }),
    notify_seconds: drainOptions.notify_seconds.annotate({
      description: `Seconds between the line and the stop; default ${NOTIFY_SECONDS}.`
    })
  })
}).annotate({ identifier: "DrainRequest" })
export type DrainRequest = typeof DrainRequest.Type

/** Nodes and the system they run on (spec 2). */
export class NodesGroup extends HttpApiGroup.make("nodes")
  .add(
    get("list", "/nodes", "List nodes; with ids_only=true their ids only", {
      right: "read",
      query: { ids_only: trueOrNot("`true`: ids only; anything else: whole nodes.") },
      success: Schema.Union([
        Schema.Array(Node).annotate({ examples: [[nodeExample]] }),
        Schema.Array(NodeId)
      ])
    }),
    get("get", "/nodes/:node", "One node with its state and load", { right: "read", success: NodeDetail }),
    get("system", "/nodes/:node/system", "Version of the daemon of a node, and its host", {
      right: "read",
      success: SystemInfo.annotate({ examples: [systemExample] })
    }),
    patch("drained", "/nodes/:node/drained", "Drain a node, or put it back into placement", {
      right: "change",
      audited: "node.drain",
      payload: DrainRequest,
      query: {
        dry_run: flag("`true`: changes nothing; the 200 has what a drain with `move` would do now.")
      },
      success: [NodeDetail, DrainPlan]
    }),
    del("remove", "/nodes/:node", "Remove a node that owns no servers", {
      audited: "node.delete",
      query: { force: flag("`true`: also while the node is connected; default `false`.") },
      success: HttpApiSchema.Empty(200),
      errors: [Conflict]
    })
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Nodes" })) {}

const ServiceInfo = Schema.Struct({
  ...SystemInfo.fields,
  /** Only with `include=sftp`; null if SFTP is off. */
  sftp: Schema.optionalKey(Schema.NullOr(SftpAddress)),
  /** Only with `include=keep_deleted`; 0: deleted servers are not kept. */
  keep_deleted_seconds: Schema.optionalKey(Schema.Finite)
}).annotate({ identifier: "ServiceInfo" })

/** Version and host of the service (spec 1.1), its settings and its log. */
export class SystemGroup extends HttpApiGroup.make("system")
  .add(
    get("info", "/system", "Version of the service and its host", {
      right: "read",
      query: {
        include: names(
          ["sftp", "keep_deleted"],
          "`sftp`: adds where users reach SFTP, and its host key. `keep_deleted`: adds `keep_deleted_seconds`, for how long deleted servers can be undeleted."
        )
      },
      success: ServiceInfo.annotate({ examples: [systemExample] })
    }),
    get(
      "settings",
      "/system/settings",
      "Settings of this replica and their origins; secrets are null. Only for AppAdmin",
      { success: Schema.Array(SettingView) }
    ),
    get(
      "log",
      "/system/log",
      "The last 1,000 lines of the log of this replica, oldest first. Only for AppAdmin",
      { success: Schema.Array(Schema.String) }
    )
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "System" })) {}

const Html = Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/html" }))
const Health = Schema.Struct({ status: Schema.Literal("ok") }).annotate({ identifier: "Health" })

/** Pages and health: no key (spec 1.10). */
export class PublicPagesGroup extends HttpApiGroup.make("beside", { topLevel: true })
  .add(
    get("banner", "/", "Banner page", { success: Html }),
    get("nodesPage", "/nodes", "Node list page", { success: Html }),
    get("healthz", "/healthz", "The process lives", { answersEarly: true, success: Health }),
    get("readyz", "/readyz", "The service can serve", {
      answersEarly: true,
      success: Health
    })
  )
  .annotateMerge(OpenApi.annotations({ title: "Pages and health" })) {}

/** Prometheus metrics (spec 1.10). */
export class MetricsGroup extends HttpApiGroup.make("metrics")
  .add(
    get("page", "/metrics", "Metrics in the Prometheus text format", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" }))
    })
  )
  .middleware(Authorization)
  .annotate(Policy, { scopes: ["Metrics", "AppAdmin"], answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Metrics" })) {}
