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
