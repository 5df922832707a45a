import { Clock, Effect, Layer, Stream } from "effect"
import { ControlPlane, ControlPlaneUnavailable, RegistrationRequired } from "../api/ControlPlane.ts"
import type { DaemonError } from "../api/Daemon.ts"
import type { InvalidRequest, Unavailable } from "../domain/errors.ts"
import type { Report } from "../domain/NodeMessages.ts"
import { cleanText, timeOfEvent } from "../domain/NodeText.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { Journal } from "../store/journal/Journal.ts"
import { NodeReconciler } from "./controllers/NodeReconciler.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"
import { ServerManager } from "./ServerManager.ts"

/** What cannot be stored now is not answered: the daemon keeps it and tries again. */
const refuse = (error: InvalidRequest | Unavailable) =>
  Effect.fail(new ControlPlaneUnavailable({ detail: error.detail }))

const isWithout = (error: DaemonError): boolean => error._tag === "DaemonRefused" && error.status === 404

/** Why the node that a server comes from does not send its files. */
const notSent = (error: DaemonError) =>
  new ControlPlaneUnavailable({
    detail: error._tag === "NodeUnreachable" ? `node is not connected: ${error.node_id}` : error.detail
  })

/** A report as it is recorded: a daemon in this process does not go through the schemas of the wire. */
const received = (report: Report, receipt: number): Report => {
  switch (report.type) {
    case "status":
      return report
    case "install-status": {
      const { failure_reason } = report.install
      return failure_reason === undefined
        ? report
        : { ...report, install: { ...report.install, failure_reason: cleanText(failure_reason) } }
    }
    case "crash": {
      const { reason, timestamp } = report.crash
      const crash = {
        ...report.crash,
        reason: cleanText(reason),
        timestamp: timeOfEvent(timestamp, receipt)
      }
      return { ...report, crash }
    }
  }
}

/** The control plane as daemons see it, in this process (node-protocol, "Daemon -> control plane"). */
export const ControlPlaneLive = Layer.effect(
  ControlPlane,
  Effect.gen(function* () {
    const daemons = yield* DaemonClient
    const index = yield* ServerIndex
    const journal = yield* Journal
    const reconciler = yield* NodeReconciler
    const registry = yield* NodeRegistry
    const lifecycle = yield* ServerLifecycle
    const servers = yield* ServerManager

    /** Nothing of a server is left where it comes from: it cannot arrive, and is looked for, and lost, there. */
    const goesBack = (server_id: string, from: string) =>
      Effect.catch(
        lifecycle.refuseInstall(server_id, `node ${registry.nameOf(from)} does not have its files any more`),
        (error) => Effect.logDebug(`${server_id} goes back later: ${error.detail}`)
      )

    return ControlPlane.of({
      register: Effect.fn("NodeReports.register")((registration) =>
        reconciler.register(registration).pipe(
          Effect.tapErrorTag("InvalidRequest", (error) =>
            Effect.logError(`node ${registration.id} cannot be registered: ${error.detail}`)
          ),
          Effect.catch(refuse)
        )
      ),
      heartbeat: (node_id, heartbeat) =>
        Effect.catchTag(registry.heartbeat(node_id, heartbeat), "Unavailable", refuse),
      disconnect: (node_id, boot_id) =>
        Effect.catchTag(registry.disconnect(node_id, boot_id), "Unavailable", refuse),
      report: Effect.fn("NodeReports.report")(function* (node_id, boot_id, report) {
        const { server_id } = report
        const now = yield* Clock.currentTimeMillis
        const known = yield* registry
          .checkBoot(node_id, boot_id)
          .pipe(
            Effect.andThen(servers.apply(node_id, received(report, now))),
            Effect.catchTag("Unavailable", refuse)
          )
        // What becomes of such a server, its node is told when it registers.
        if (!known && reconciler.isNews(node_id, boot_id, server_id)) {
          yield* Effect.logInfo(`node ${node_id} has ${server_id}, which is not known: it is to register`)
          return yield* new RegistrationRequired({ node_id })
        }
      }),
      files: Effect.fn("NodeReports.files")(function* (node_id, server_id) {
        const known = yield* index.originOf(node_id, server_id)
        // The node may have been told by a replica that knows more.
        if (known === undefined) yield* Effect.catch(journal.catchUp, refuse)
        const from = known ?? (yield* index.originOf(node_id, server_id))
        if (from === undefined) {
          return yield* new ControlPlaneUnavailable({
            detail: `server does not come to node ${node_id}: ${server_id}`
          })
        }
        return yield* daemons.of(from).pipe(
          Effect.flatMap((daemon) => daemon.files(server_id)),
          Effect.tapError((error) => (isWithout(error) ? goesBack(server_id, from) : Effect.void)),
          Effect.map(Stream.mapError(notSent)),
          Effect.mapError(notSent)
        )
      })
    })
  })
)
