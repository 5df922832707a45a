import { Context, Effect, Layer, type Scope } from "effect"
import { type Daemon, NodeUnreachable } from "../api/Daemon.ts"

/**
 * How the control plane reaches the daemons of connected nodes. An embedded daemon attaches itself; a remote one
 * is attached by its registration.
 */
export class DaemonClient extends Context.Service<
  DaemonClient,
  {
    /** The daemon of a node that is attached now. */
    of(node_id: string): Effect.Effect<Daemon, NodeUnreachable>
    /** Makes a daemon reachable until the scope closes; a later one of the same node replaces it. */
    attach(node_id: string, daemon: Daemon): Effect.Effect<void, never, Scope.Scope>
  }
>()("muster/nodes/DaemonClient") {
  static readonly layer = Layer.sync(DaemonClient, () => {
    const attached = new Map<string, Daemon>()
    return DaemonClient.of({
      of: (node_id) =>
        Effect.suspend(() => {
          const daemon = attached.get(node_id)
          return daemon === undefined ? Effect.fail(new NodeUnreachable({ node_id })) : Effect.succeed(daemon)
        }),
      attach: (node_id, daemon) =>
        Effect.acquireRelease(
          Effect.sync(() => void attached.set(node_id, daemon)),
          () =>
            Effect.sync(() => {
              if (attached.get(node_id) === daemon) attached.delete(node_id)
            })
        )
    })
  })
}
