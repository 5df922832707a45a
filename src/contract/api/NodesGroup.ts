import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { DrainPlan, drainOptions, NOTIFY_SECONDS } from "../domain/Drain.ts"
import { Conflict, NotFound, Unavailable } from "../domain/errors.ts"
import { NodeId } from "../domain/Id.ts"
import { Node, NodeDetail, SettingView, SystemInfo } from "../domain/Node.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { nodeExample, systemExample } from "./examples.ts"
import { Authorization, Policy, route } from "./middleware.ts"
import { flag, names, trueOrNot } from "./query.ts"
import { SftpAddress } from "./SftpGroup.ts"

const params = { node: NodeId.annotate({ description: "The id of the node." }) }

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
    HttpApiEndpoint.get("list", "/nodes", {
      query: { ids_only: trueOrNot("`true`: ids only; anything else: whole nodes.") },
      success: Schema.Union([
        Schema.Array(Node).annotate({ examples: [[nodeExample]] }),
        Schema.Array(NodeId)
      ])
    }).annotateMerge(route("List nodes; with ids_only=true their ids only", { right: "read" })),
    HttpApiEndpoint.get("get", "/nodes/:node", {
      params,
      success: NodeDetail,
      error: NotFound
    }).annotateMerge(route("One node with its state and load", { right: "read" })),
    HttpApiEndpoint.get("system", "/nodes/:node/system", {
      params,
      success: SystemInfo.annotate({ examples: [systemExample] }),
      error: NotFound
    }).annotateMerge(route("Version of the daemon of a node, and its host", { right: "read" })),
    HttpApiEndpoint.patch("drained", "/nodes/:node/drained", {
      params,
      payload: DrainRequest,
      query: {
        dry_run: flag("`true`: changes nothing; the 200 has what a drain with `move` would do now.")
      },
      success: [NodeDetail, DrainPlan],
      error: NotFound
    }).annotateMerge(
      route("Drain a node, or put it back into placement", { right: "change", audited: "node.drain" })
    ),
    HttpApiEndpoint.delete("remove", "/nodes/:node", {
      params,
      query: { force: flag("`true`: also while the node is connected; default `false`.") },
      success: HttpApiSchema.Empty(200),
      error: [NotFound, Conflict]
    }).annotateMerge(route("Remove a node that owns no servers", { audited: "node.delete" }))
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
    HttpApiEndpoint.get("info", "/system", {
      query: {
        include: names(
          ["sftp", "keep_deleted"],
          "`sftp`: adds where users reach SFTP, and its host key. `keep_deleted`: adds `keep_deleted_seconds`, for how long deleted servers can be undeleted."
        )
      },
      success: ServiceInfo.annotate({ examples: [systemExample] })
    }).annotateMerge(route("Version of the service and its host", { right: "read" })),
    HttpApiEndpoint.get("settings", "/system/settings", {
      success: Schema.Array(SettingView)
    }).annotateMerge(
      route("Settings of this replica and their origins; secrets are null. Only for AppAdmin")
    ),
    HttpApiEndpoint.get("log", "/system/log", { success: Schema.Array(Schema.String) }).annotateMerge(
      route("The last 1,000 lines of the log of this replica, oldest first. Only for AppAdmin")
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
    HttpApiEndpoint.get("banner", "/", { success: Html }).annotateMerge(route("Banner page")),
    HttpApiEndpoint.get("nodesPage", "/nodes", { success: Html }).annotateMerge(route("Node list page")),
    HttpApiEndpoint.get("healthz", "/healthz", { success: Health }).annotateMerge(
      route("The process lives", { answersEarly: true })
    ),
    HttpApiEndpoint.get("readyz", "/readyz", { success: Health, error: Unavailable }).annotateMerge(
      route("The service can serve", { answersEarly: true })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Pages and health" })) {}

/** Prometheus metrics (spec 1.10). */
export class MetricsGroup extends HttpApiGroup.make("metrics")
  .add(
    HttpApiEndpoint.get("page", "/metrics", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" }))
    }).annotateMerge(route("Metrics in the Prometheus text format"))
  )
  .middleware(Authorization)
  .annotate(Policy, { scopes: ["Metrics", "AppAdmin"], answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Metrics" })) {}
