import { Context, Data, type Effect, type Scope, type Stream } from "effect"
import type { Heartbeat, Registration, RegistrationAnswer, Report } from "../domain/NodeMessages.ts"

/**
 * The control plane cannot take it now; the daemon tries again. `refuses`: it could, and does not want to: nothing of
 * this `node` before it has registered again, or this `message`, whenever it is repeated. `busy`: the node has asked a
 * moment ago, and asks again after a second.
 */
export class ControlPlaneUnavailable extends Data.TaggedError("ControlPlaneUnavailable")<{
  readonly detail: string
  readonly refuses?: "node" | "message"
  readonly busy?: boolean
}> {}

/** The control plane does not know this node or this boot of it; the daemon registers again. */
export class RegistrationRequired extends Data.TaggedError("RegistrationRequired")<{
  readonly node_id: string
}> {}

export type ControlPlaneError = ControlPlaneUnavailable | RegistrationRequired

/** What a daemon tells the control plane (node-protocol, "Daemon -> control plane"), in process or over HTTP. */
export class ControlPlane extends Context.Service<
  ControlPlane,
  {
    register(registration: Registration): Effect.Effect<RegistrationAnswer, ControlPlaneUnavailable>
    heartbeat(node_id: string, heartbeat: Heartbeat): Effect.Effect<void, ControlPlaneError>
    /** Good-bye. */
    disconnect(node_id: string, boot_id: string): Effect.Effect<void, ControlPlaneError>
    /**
     * Succeeds once the report is durable, or was a repetition, or is of a server that is gone. One of a server that the
     * control plane does not know makes the node register, to be told what becomes of it.
     */
    report(node_id: string, boot_id: string, report: Report): Effect.Effect<void, ControlPlaneError>
    /**
     * The files of a server that comes to this node from another one (`Daemon.files` of that). What breaks off ends
     * with a failure; it fails at once while the other node is away, and for servers that do not come to this node.
     */
    files(
      node_id: string,
      server_id: string
    ): Effect.Effect<Stream.Stream<Uint8Array, ControlPlaneUnavailable>, ControlPlaneError, Scope.Scope>
  }
>()("muster/api/ControlPlane") {}
