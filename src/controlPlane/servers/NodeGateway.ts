import { Clock, Context, Effect, Layer, Stream } from "effect"
import { crashLines } from "../../contract/domain/CrashRecord.ts"
import {
  type Conflict,
  type InvalidRequest,
  NotFound,
  type Unavailable
} from "../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import { LIVE, type Report } from "../../contract/domain/NodeMessages.ts"
import { cleanText, timeOfEvent } from "../../contract/domain/NodeText.ts"
import { isRestartPending } from "../../contract/domain/RunRule.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import {
  ControlPlane,
  type ControlPlaneError,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../contract/nodeApi/ControlPlaneApi.ts"
import type { DaemonError } from "../../contract/nodeApi/Daemon.ts"
import { inSpan } from "../../shared/observability/trace.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { Journal } from "../store/journal/Journal.ts"
import { NodeReconciler } from "./controllers/NodeReconciler.ts"
import { InstallProgresses } from "./list/InstallProgresses.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { ServerLifecycle } from "./state/ServerLifecycle.ts"

/** Fails so that the daemon keeps a message that cannot be stored now, and repeats it. */
const refuse = (error: InvalidRequest | Unavailable) =>
  Effect.fail(new ControlPlaneUnavailable({ detail: error.detail }))

/** Fails without a repetition: nothing has changed, and it would not help. */
const refuseForGood = ({ detail }: NotFound | Conflict) =>
  Effect.fail(new ControlPlaneUnavailable({ detail, refuses: "message" }))

const isMissing = (error: DaemonError): boolean => error._tag === "DaemonRefused" && error.status === 404

const notSent = (error: DaemonError) =>
  new ControlPlaneUnavailable({
    detail: error._tag === "NodeUnreachable" ? `node is not connected: ${error.node_id}` : error.detail
  })

/** Cleans the texts of a report: those of a daemon in this process do not pass the schemas of the wire. */
const received = (report: Report, receipt: number): Report => {
  switch (report.type) {
    case "status": {
      const { restart } = report
      return restart === undefined || isRestartPending(restart)
        ? report
        : { ...report, restart: { ...restart, reason: cleanText(restart.reason) } }
    }
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
      const { details } = report
      return details === undefined
        ? { ...report, crash }
        : { ...report, crash, details: { ...details, lines: crashLines(details.lines) } }
    }
  }
}

/** The entry point of the messages of nodes, remote or embedded. Callers have checked the sender. */
export class NodeGateway extends Context.Service<
  NodeGateway,
  ControlPlane["Service"] & {
    /** Deregisters a node. `boot_id` defaults to the last registration's. */
    disconnect(node_id: NodeId, boot_id?: string): Effect.Effect<void, ControlPlaneError>
    servers(node_id: NodeId): Effect.Effect<ReadonlyArray<ServerRecord>>
    /** The record of a server on a node. @error NotFound also if it is on another node */
    server(node_id: NodeId, server_id: ServerId): Effect.Effect<ServerRecord, NotFound | Unavailable>
  }
>()("muster/servers/NodeGateway") {
  static readonly layer = Layer.effect(
    NodeGateway,
    Effect.gen(function* () {
      const daemons = yield* DaemonClient
      const index = yield* ServerIndex
      const journal = yield* Journal
      const lifecycle = yield* ServerLifecycle
      const progresses = yield* InstallProgresses
      const reconciler = yield* NodeReconciler
      const registry = yield* NodeRegistry

      /** Returns a server whose files the source node has lost. The source is verified and found missing them. */
      const returnServer = (server_id: ServerId, from: NodeId) =>
        Effect.catch(
          lifecycle.refuseInstall(
            server_id,
            `node ${registry.nameOf(from)} does not have its files any more`
          ),
          (error) =>
            Effect.logDebug(`the server returns later: ${error.detail}`).pipe(
              Effect.annotateLogs({ server_id })
            )
        )

      const reports = Effect.fnUntraced(function* (
        node_id: NodeId,
        boot_id: string,
        reports: ReadonlyArray<Report>
      ) {
        const now = yield* Clock.currentTimeMillis
        yield* Effect.catchTag(registry.checkBoot(node_id, boot_id), "Unavailable", refuse)
        const lasting: Array<Report> = []
        for (const report of reports) {
          if (report.type === "install-status" && report.sequence === LIVE)
            yield* progresses.reported(node_id, report.server_id, report.install)
          else lasting.push(received(report, now))
        }
        if (lasting.length === 0) return reports.map(() => undefined)
        const unknown = yield* Effect.catch(lifecycle.reports(node_id, lasting), refuse)
        const news = new Set([...unknown].filter((id) => reconciler.isNews(node_id, boot_id, id)))
        if (news.size > 0) {
          const [server_id] = news
          const what = news.size === 1 ? "an unknown server" : `${news.size} unknown servers`
          yield* Effect.logInfo(`the node has ${what}: it must register`).pipe(
            Effect.annotateLogs({ node_id, server_id })
          )
        }
        return reports.map(({ server_id }) =>
          news.has(server_id) ? new RegistrationRequired({ node_id }) : undefined
        )
      }, inSpan("NodeGateway.reports"))

      return NodeGateway.of({
        register: Effect.fn("NodeGateway.register")((registration) =>
          reconciler.register(registration).pipe(
            Effect.tapErrorTag("InvalidRequest", (error) =>
              Effect.logError(`the node cannot be registered: ${error.detail}`).pipe(
                Effect.annotateLogs({ node_id: registration.id })
              )
            ),
            Effect.catch(refuse)
          )
        ),
        heartbeat: (node_id, heartbeat) =>
          Effect.catchTag(registry.heartbeat(node_id, heartbeat), "Unavailable", refuse),
        disconnect: (node_id, boot_id) =>
          registry.checkBoot(node_id, boot_id).pipe(
            Effect.flatMap((boot) => registry.disconnect(node_id, boot)),
            Effect.catchTag("Unavailable", refuse)
          ),
        reports,
        servers: (node_id) =>
          Effect.map(index.onNode(node_id), (records) =>
            records.toSorted((one, other) => (one.id < other.id ? -1 : 1))
          ),
        server: Effect.fnUntraced(function* (node_id, server_id) {
          const record = yield* index.lookUp(server_id, node_id)
          return record?.node_id === node_id ? record : yield* NotFound.server(server_id)
        }),
        replacePorts: Effect.fn("NodeGateway.replacePorts")((node_id, boot_id, server_id, taken) =>
          registry.checkBoot(node_id, boot_id).pipe(
            Effect.andThen(lifecycle.replacePorts(node_id, server_id, taken)),
            Effect.catchTags({
              NotFound: refuseForGood,
              Conflict: refuseForGood,
              Unavailable: refuse
            })
          )
        ),
        files: Effect.fn("NodeGateway.files")(function* (node_id, server_id) {
          const known = yield* index.originOf(node_id, server_id)
          // The replica that placed the server may be ahead of this one.
          if (known === undefined) yield* Effect.catch(journal.catchUp, refuse)
          const from = known ?? (yield* index.originOf(node_id, server_id))
          if (from === undefined) {
            return yield* new ControlPlaneUnavailable({
              detail: `server does not migrate to node ${node_id}: ${server_id}`
            })
          }
          return yield* daemons.of(from).pipe(
            Effect.flatMap((daemon) => daemon.exportFiles(server_id)),
            Effect.tapError((error) => (isMissing(error) ? returnServer(server_id, from) : Effect.void)),
            Effect.map(Stream.mapError(notSent)),
            Effect.mapError(notSent)
          )
        })
      })
    })
  )
}

export const ControlPlaneLive = Layer.effect(ControlPlane, NodeGateway)
