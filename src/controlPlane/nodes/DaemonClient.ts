import { Context, Effect, Layer, type Scope } from "effect"
import { auditNodeCall } from "../../contract/domain/AuditedRequest.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { type Daemon, NodeUnreachable } from "../../contract/nodeApi/Daemon.ts"

/** Reaches the daemons of connected nodes, attached in this process or remote at their registered address. */
export class DaemonClient extends Context.Service<
  DaemonClient,
  {
    /** Returns the attached daemon of a node, else the remote one. The entry of an audited request notes the call. */
    of(node_id: NodeId): Effect.Effect<Daemon, NodeUnreachable>
    /** Makes a daemon reachable until the scope closes. A later one of the same node replaces it. */
    attach(node_id: NodeId, daemon: Daemon): Effect.Effect<void, never, Scope.Scope>
    /** Whether the daemon of the node is attached: it is in this process. */
    isAttached(node_id: NodeId): boolean
    callsOthers(): boolean
    /** Sets the search for nodes that are not attached, until the scope closes. */
    elsewhere(find: (node_id: NodeId) => Daemon | undefined): Effect.Effect<void, never, Scope.Scope>
  }
>()("muster/nodes/DaemonClient") {
  static readonly layer = Layer.sync(DaemonClient, () => {
    const attached = new Map<NodeId, Daemon>()
    const nowhere = (): Daemon | undefined => undefined
    let find: (node_id: NodeId) => Daemon | undefined = nowhere
    return DaemonClient.of({
      of: (node_id) =>
        Effect.suspend(() => {
          const daemon = attached.get(node_id) ?? find(node_id)
          return daemon === undefined
            ? Effect.fail(new NodeUnreachable({ node_id }))
            : Effect.as(auditNodeCall, daemon)
        }),
      attach: (node_id, daemon) =>
        Effect.acquireRelease(
          Effect.sync(() => void attached.set(node_id, daemon)),
          () =>
            Effect.sync(() => {
              if (attached.get(node_id) === daemon) attached.delete(node_id)
            })
        ),
      isAttached: (node_id) => attached.has(node_id),
      callsOthers: () => find !== nowhere,
      elsewhere: (other) =>
        Effect.acquireRelease(
          Effect.sync(() => {
            find = other
          }),
          () =>
            Effect.sync(() => {
              if (find === other) find = nowhere
            })
        )
    })
  })
}
