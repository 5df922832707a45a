import { Context, type Effect, type Stream } from "effect"
import type { RegistrationRequired } from "../api/ControlPlane.ts"
import type { Conflict, NotFound, Unavailable } from "../domain/errors.ts"
import type { Node, NodeDetail } from "../domain/Node.ts"
import type { Heartbeat, Registration } from "../domain/NodeMessages.ts"
import type { HostInfo } from "../domain/SystemInfo.ts"

/** A node came (again), went silent for 30 s, or has been gone for `node_lost_after`. */
export interface NodeChange {
  readonly node_id: string
  readonly kind: "connected" | "lost" | "given-up"
}

/**
 * The nodes that servers can be placed on, and whether they live (node-protocol; decisions, section 2).
 * Reads touch memory only.
 */
export class NodeRegistry extends Context.Service<
  NodeRegistry,
  {
    /** Known nodes, by name, then id (contract 4.2). */
    readonly list: Effect.Effect<ReadonlyArray<Node>>
    get(id: string): Effect.Effect<NodeDetail, NotFound>
    /** Host information of the node's last registration. */
    system(id: string): Effect.Effect<HostInfo, NotFound>
    /** Display name; the id itself for a node that is not known any more. */
    nameOf(id: string): string
    isConnected(id: string): boolean
    /** A daemon makes itself known; answers the token that the daemon is to be called with. */
    register(registration: Registration): Effect.Effect<{ readonly token: string }, Unavailable>
    heartbeat(id: string, heartbeat: Heartbeat): Effect.Effect<void, RegistrationRequired>
    /** Fails unless `boot_id` is that of the node's last registration. */
    checkBoot(id: string, boot_id: string): Effect.Effect<void, RegistrationRequired>
    disconnect(id: string, boot_id: string): Effect.Effect<void, RegistrationRequired | Unavailable>
    setDrained(id: string, drained: boolean): Effect.Effect<NodeDetail, NotFound | Unavailable>
    /** Forgets a node. @error Conflict it owns servers */
    remove(id: string): Effect.Effect<void, NotFound | Conflict | Unavailable>
    /** Changes from now on, each exactly once, subscribed when the stream starts. */
    readonly changes: Stream.Stream<NodeChange>
  }
>()("muster/nodes/NodeRegistry") {}
