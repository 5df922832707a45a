import { Context, Data, type Effect, type Scope, type Stream } from "effect"
import type { Allocations } from "../domain/Allocation.ts"
import type { NodeId, ServerId } from "../domain/Id.ts"
import type {
  Heartbeat,
  Registration,
  RegistrationAnswer,
  Report,
  TakenPort
} from "../domain/NodeMessages.ts"

/**
 * The control plane cannot accept the message now; the daemon repeats it. `refuses` names what it refuses:
 * every message of this `node` until it registers again, or this `message` for good. `busy`: the node waits for
 * a second.
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
    /** Deregisters the node. */
    disconnect(node_id: NodeId, boot_id: string): Effect.Effect<void, ControlPlaneError>
    /**
     * Applies reports, those of one server in their order; returns the failure of each, or undefined. A report
     * succeeds once it is durable, repeated, or about a deleted server. A failure ends the reports of its
     * server.
     *
     * @param reports at most `MOST_REPORTS`
     */
    reports(
      node_id: NodeId,
      boot_id: string,
      reports: ReadonlyArray<Report>
    ): Effect.Effect<ReadonlyArray<ControlPlaneError | undefined>, ControlPlaneError>
    /**
     * Replaces ports of a server that a program of the node has; returns the allocations of the record. A repetition
     * changes nothing: ports that the server does not have any more are ignored. Fails at once if no port is free.
     */
    replacePorts(
      node_id: NodeId,
      boot_id: string,
      server_id: ServerId,
      taken: ReadonlyArray<TakenPort>
    ): Effect.Effect<Allocations, ControlPlaneError>
    /**
     * The files of a server that migrates to this node (`Daemon.files` of the source node). An incomplete transfer ends
     * with a failure. Fails at once while the source node is not connected, and for other servers.
     */
    files(
      node_id: NodeId,
      server_id: ServerId
    ): Effect.Effect<Stream.Stream<Uint8Array, ControlPlaneUnavailable>, ControlPlaneError, Scope.Scope>
  }
>()("muster/api/ControlPlane") {}
