import { Effect, Layer } from "effect"
import { ControlPlane, ControlPlaneUnavailable } from "../api/ControlPlane.ts"
import type { InvalidRequest, Unavailable } from "../domain/errors.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { Reconciler } from "./Reconciler.ts"
import { ServerManager } from "./ServerManager.ts"

/** What cannot be stored now is not answered: the daemon keeps it and tries again. */
const refuse = (error: InvalidRequest | Unavailable) =>
  Effect.fail(new ControlPlaneUnavailable({ detail: error.detail }))

/** The control plane as daemons see it, in this process (node-protocol, "Daemon -> control plane"). */
export const NodeReports = Layer.effect(
  ControlPlane,
  Effect.gen(function* () {
    const reconciler = yield* Reconciler
    const registry = yield* NodeRegistry
    const servers = yield* ServerManager

    return ControlPlane.of({
      register: Effect.fn("NodeReports.register")((registration) =>
        reconciler.register(registration).pipe(
          Effect.tapErrorTag("InvalidRequest", (error) =>
            Effect.logError(`node ${registration.id} cannot be registered: ${error.detail}`)
          ),
          Effect.catch(refuse)
        )
      ),
      heartbeat: (node_id, heartbeat) => registry.heartbeat(node_id, heartbeat),
      disconnect: (node_id, boot_id) =>
        Effect.catchTag(registry.disconnect(node_id, boot_id), "Unavailable", refuse),
      report: Effect.fn("NodeReports.report")(function* (node_id, boot_id, report) {
        yield* registry.checkBoot(node_id, boot_id)
        yield* Effect.catchTag(servers.apply(node_id, report), "Unavailable", refuse)
      })
    })
  })
)
