import { Context, Data, type Effect, Schema, type Scope, type Stream } from "effect"
import { HttpApi, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { endpoints } from "../api/endpoint.ts"
import { Authorization, Failures, Policy } from "../api/middleware.ts"
import { Allocations } from "../domain/Allocation.ts"
import { Conflict, NotFound } from "../domain/errors.ts"
import { NodeId, type ServerId } from "../domain/Id.ts"
import {
  Heartbeat,
  HeartbeatAnswer,
  Registration,
  RegistrationAnswer,
  type Report,
  Reports,
  ReportsAnswer,
  ServerSpec,
  type TakenPort,
  TakenPorts
} from "../domain/NodeMessages.ts"
import { NodeKey, ServerKey } from "../domain/NodeText.ts"
import { Paginated } from "../domain/Pagination.ts"
import { InstallScript } from "../domain/Software.ts"

/**
 * The daemon must repeat the message. `refuses` names the refused messages: all of the `node` until it registers, or
 * this one for good. `busy`: wait a second.
 */
export class ControlPlaneUnavailable extends Data.TaggedError("ControlPlaneUnavailable")<{
  readonly detail: string
  readonly refuses?: "node" | "message"
  readonly busy?: boolean
}> {}

/** The control plane does not know this node or this boot of it; the daemon registers again. */
export class RegistrationRequired extends Data.TaggedError("RegistrationRequired")<{
  readonly node_id: NodeId
}> {}

export type ControlPlaneError = ControlPlaneUnavailable | RegistrationRequired

/** The calls from a daemon to the control plane (spec 9.1), in process or over HTTP. */
export class ControlPlane extends Context.Service<
  ControlPlane,
  {
    register(registration: Registration): Effect.Effect<RegistrationAnswer, ControlPlaneUnavailable>
    heartbeat(node_id: NodeId, heartbeat: Heartbeat): Effect.Effect<void, ControlPlaneError>
    disconnect(node_id: NodeId, boot_id: string): Effect.Effect<void, ControlPlaneError>
    /**
     * Applies at most `MOST_REPORTS` reports, in order for each server, and returns each failure, which ends the
     * reports of its server. Repeated reports, and reports of deleted servers, succeed.
     */
    reports(
      node_id: NodeId,
      boot_id: string,
      reports: ReadonlyArray<Report>
    ): Effect.Effect<ReadonlyArray<ControlPlaneError | undefined>, ControlPlaneError>
    /** Replaces ports that a program has. Idempotent: ports that the server lost are ignored. Fails if none is free. */
    replacePorts(
      node_id: NodeId,
      boot_id: string,
      server_id: ServerId,
      taken: ReadonlyArray<TakenPort>
    ): Effect.Effect<Allocations, ControlPlaneError>
    /** The files of a server that migrates to this node. Fails if incomplete, or while the source is away. */
    files(
      node_id: NodeId,
      server_id: ServerId
    ): Effect.Effect<Stream.Stream<Uint8Array, ControlPlaneUnavailable>, ControlPlaneError, Scope.Scope>
  }
>()("muster/api/ControlPlane") {}

const text = Schema.optionalKey(Schema.String)
const ofNode = endpoints({ node: NodeId }, [Conflict])
const { get, post } = endpoints({ node: NodeId, server: ServerKey }, [NotFound])

/** The body of the install route: the script; null: the software has none. */
export const InstallConfiguration = Schema.Struct({
  install_script: Schema.NullOr(InstallScript)
}).annotate({ identifier: "InstallConfiguration" })

/** The calls from daemons to the control plane (spec 9.1). */
export class NodeGroup extends HttpApiGroup.make("node")
  .add(
    ofNode.post("register", "/nodes/:node/register", "Register a node, with a snapshot of its instances", {
      isRoutine: false,
      // 10,000 servers are 2-3 MB.
      largeBody: 8 * 1024 * 1024,
      // 50,000 servers have 500,000.
      mostValues: 1_000_000,
      rateLimit: { limit: 1, window: "1 second", detail: "a node registers at most once a second" },
      payload: Registration,
      success: RegistrationAnswer
    }),
    post("heartbeat", "/nodes/:node/internal/heartbeat", "Send a heartbeat; 404: register again", {
      payload: Heartbeat,
      // The empty schema is the last: it accepts every body.
      success: [HeartbeatAnswer, HttpApiSchema.Empty(200)]
    }),
    post(
      "disconnect",
      "/nodes/:node/internal/disconnect",
      "Deregister a node; with boot_id only if that start of the daemon is current",
      { query: { boot_id: text }, success: HttpApiSchema.Empty(200) }
    ),
    get("servers", "/nodes/:node/internal/servers", "Configuration of the node's servers", {
      query: { page: text, per_page: text },
      success: Paginated("ServerSpecPage", ServerSpec)
    }),
    get("server", "/nodes/:node/internal/servers/:server", "Configuration of one server", {
      success: ServerSpec
    }),
    get("install", "/nodes/:node/internal/servers/:server/install", "The install script of one server", {
      success: InstallConfiguration
    }),
    post(
      "ports",
      "/nodes/:node/internal/servers/:server/ports",
      "Replace ports of a server that another program of the node has",
      {
        isRoutine: false,
        payload: Schema.Struct({ boot_id: NodeKey, taken: TakenPorts }),
        success: Schema.Struct({ allocations: Allocations }),
        errors: [Conflict]
      }
    ),
    get(
      "files",
      "/nodes/:node/internal/servers/:server/files",
      "The files of a server that migrates to this node, as a GNU tar archive",
      { success: HttpApiSchema.StreamUint8Array({ contentType: "application/x-tar" }) }
    ),
    // A crash has up to 64 KiB of console lines.
    post("reports", "/nodes/:node/internal/events", "Send reports of several servers", {
      largeBody: 8 * 1024 * 1024,
      mostValues: 40_000,
      payload: Reports,
      success: ReportsAnswer
    })
  )
  .middleware(Authorization)
  .annotate(Policy, {
    scopes: ["Node"],
    isRoutine: true,
    answersEarly: true,
    // A newer daemon may send parameters that this version does not know.
    acceptsAnyQuery: true
  })
  .annotateMerge(OpenApi.annotations({ title: "Node" })) {}

/** The control plane's interface for daemons: routes for keys of scope `Node`. */
export class ControlPlaneApi extends HttpApi.make("muster-nodes")
  .add(NodeGroup.prefix("/api"))
  .middleware(Failures)
  .annotateMerge(OpenApi.annotations({ title: "Muster, for its daemons" })) {}
