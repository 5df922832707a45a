import { Clock, Effect } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { DatabaseFull, Unavailable } from "../../contract/domain/errors.ts"
import type { SettingView, SystemInfo } from "../../contract/domain/Node.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { makeObserveProcess, observeForExporter } from "../../shared/observability/observations.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { BlueprintStore, SoftwareStore } from "../blueprints/BlueprintStore.ts"
import { GracefulStop, Started } from "../http/GracefulStop.ts"
import { metricsPage } from "../http/requestMetrics.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { SftpListener } from "../sftp/SftpListener.ts"
import { DatabaseDisk } from "../store/disk/DatabaseDisk.ts"
import { Store } from "../store/Store.ts"
import { makeObserve } from "./gauges.ts"
import { bannerPage, nodesPage, pageResponse } from "./publicHtml.ts"

const shuttingDown = new Unavailable({
  detail: "shutting down",
  hint: "Send requests to another replica, or wait until the service is back."
})

/** `/`, `/nodes`, `/healthz`, `/readyz` (spec 1.10). */
export const PublicPagesHandlers = (system: SystemInfo, publicPages: "banner" | "all") =>
  handlersOf(
    ApplicationApi,
    "beside",
    Effect.fn(function* (handlers) {
      const nodes = yield* NodeRegistry
      const store = yield* Store
      const disk = yield* DatabaseDisk
      const { isStopping } = yield* GracefulStop
      const startup = yield* Started
      const servers = yield* ServerManager
      const blueprints = yield* BlueprintStore
      const software = yield* SoftwareStore
      const started = yield* elapsedMillis
      // A page without a key must not make the service compare all definitions with each request.
      const definitionWarnings = yield* Effect.cachedWithTTL(
        Effect.map(
          Effect.all([blueprints.warnings, software.warnings]),
          (lists) => new Set(lists.flat()).size
        ),
        "10 seconds"
      )
      const overview = Effect.all({
        uptime: Effect.map(elapsedMillis, (now) => now - started),
        nodes: nodes.details,
        servers: servers.counts,
        definitionWarnings,
        isDatabaseFull: Effect.sync(disk.isFull)
      })
      return handlers.handleAll({
        banner: () =>
          Effect.map(publicPages === "all" ? overview : Effect.undefined, (shown) =>
            pageResponse(bannerPage(system.version, shown))
          ),
        nodesPage: Effect.fnUntraced(function* () {
          return pageResponse(nodesPage(yield* nodes.details, publicPages, yield* Clock.currentTimeMillis))
        }),
        healthz: () => Effect.succeed({ status: "ok" as const }),
        readyz: () =>
          Effect.suspend(() => {
            if (isStopping()) return Effect.fail(shuttingDown)
            return startup.isDone() ? store.ping : Effect.fail(Unavailable.starting())
          }).pipe(
            Effect.andThen(
              Effect.suspend(() => (disk.isFull() ? Effect.fail(DatabaseFull.of()) : Effect.void))
            ),
            Effect.as({ status: "ok" as const })
          )
      })
    })
  )

export interface ServiceInspection {
  readonly settings: ReadonlyArray<SettingView>
  readonly log: Effect.Effect<ReadonlyArray<string>>
}

/**
 * `GET /api/system` (spec 1.1), and the settings and the log of this replica.
 * @param keepDeleted the time for which deleted servers are kept, in ms
 */
export const SystemHandlers = (
  system: SystemInfo,
  { log, settings }: ServiceInspection,
  keepDeleted: number
) =>
  handlersOf(
    ApplicationApi,
    "system",
    Effect.fn(function* (handlers) {
      const { included } = yield* SftpListener
      return handlers.handleAll({
        info: ({ query, request }) =>
          Effect.sync(() => ({
            ...system,
            ...included(query, request),
            ...(query.include?.split(",").includes("keep_deleted") === true
              ? { keep_deleted_seconds: keepDeleted / 1000 }
              : {})
          })),
        settings: () => Effect.succeed(settings),
        log: () => log
      })
    })
  )

/** `GET /metrics` (spec 1.10). */
export const MetricsHandlers = ({ version }: SystemInfo) =>
  handlersOf(
    ApplicationApi,
    "metrics",
    Effect.fn(function* (handlers) {
      const observe = Effect.andThen(yield* makeObserve, yield* makeObserveProcess(version))
      yield* observeForExporter(observe)
      return handlers.handleAll({ page: () => Effect.andThen(observe, metricsPage) })
    })
  )
