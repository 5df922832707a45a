import { Context, Effect, Layer } from "effect"
import { auditNodeCall } from "../../contract/domain/AuditedRequest.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { type Daemon, NodeUnreachable } from "../../contract/nodeApi/Daemon.ts"

type Find = (node_id: NodeId) => Daemon | undefined

const nowhere: Find = () => undefined

/** Reaches the daemons of connected nodes, attached in this process or remote at their registered address. */
export class DaemonClient extends Context.Service<DaemonClient>()("muster/nodes/DaemonClient", {
  make: Effect.sync(() => {
    const attached = new Map<NodeId, Daemon>()
    let find = nowhere
    return {
      /** Returns the attached daemon of a node, else the remote one. The entry of an audited request notes the call. */
      of: (node_id: NodeId): Effect.Effect<Daemon, NodeUnreachable> =>
        Effect.suspend(() => {
          const daemon = attached.get(node_id) ?? find(node_id)
          return daemon === undefined
            ? Effect.fail(new NodeUnreachable({ node_id }))
            : Effect.as(auditNodeCall, daemon)
        }),
      /** Makes a daemon reachable until the scope closes. A later one of the same node replaces it. */
      attach: (node_id: NodeId, daemon: Daemon) =>
        Effect.acquireRelease(
          Effect.sync(() => void attached.set(node_id, daemon)),
          () =>
            Effect.sync(() => {
              if (attached.get(node_id) === daemon) attached.delete(node_id)
            })
        ),
      /** Whether the daemon of the node is attached: it is in this process. */
      isAttached: (node_id: NodeId): boolean => attached.has(node_id),
      callsOthers: (): boolean => find !== nowhere,
      /** Sets the search for nodes that are not attached, until the scope closes. */
      elsewhere: (other: Find) =>
        Effect.acquireRelease(
          Effect.sync(() => {
            find = other
          }),
          () =>
            Effect.sync(() => {
              if (find === other) find = nowhere
            })
        )
    }
  })
}) {
  static readonly layer = Layer.effect(DaemonClient, DaemonClient.make)
}
