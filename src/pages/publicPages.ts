import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { DatabaseFull, Unavailable } from "../domain/errors.ts"
import type { SystemInfo } from "../domain/SystemInfo.ts"
import { GracefulStop } from "../http/GracefulStop.ts"
import { metricsPage } from "../http/metrics.ts"
import { makeObserveProcess } from "../http/processFigures.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { DatabaseDisk } from "../store/disk/DatabaseDisk.ts"
import { Store } from "../store/Store.ts"
import { makeObserve } from "./gauges.ts"
import { bannerPage, nodesPage, pageResponse } from "./html.ts"

const shuttingDown = new Unavailable({
  detail: "shutting down",
  hint: "Send requests to another replica, or wait until the service is back."
})

/** `/`, `/nodes`, `/healthz`, `/readyz` (contract 4.11; decisions, section 7). */
export const PublicPagesHandlers = (system: SystemInfo, publicPages: "banner" | "all") =>
  HttpApiBuilder.group(
    ApplicationApi,
    "beside",
    Effect.fn(function* (handlers) {
      const nodes = yield* NodeRegistry
      const store = yield* Store
      const disk = yield* DatabaseDisk
      const { isStopping } = yield* GracefulStop
      const banner = pageResponse(bannerPage(system.version))
      return handlers.handleAll({
        banner: () => Effect.succeed(banner),
        nodesPage: () =>
          Effect.map(nodes.details, (details) => pageResponse(nodesPage(details, publicPages))),
        healthz: () => Effect.succeed({ status: "ok" as const }),
        readyz: () =>
          Effect.suspend(() => (isStopping() ? Effect.fail(shuttingDown) : store.ping)).pipe(
            Effect.andThen(
              Effect.suspend(() => (disk.isFull() ? Effect.fail(DatabaseFull.of()) : Effect.void))
            ),
            Effect.as({ status: "ok" as const })
          )
      })
    })
  )

/** `GET /api/system` (contract 4.3). */
export const SystemHandlers = (system: SystemInfo) =>
  HttpApiBuilder.group(
    ApplicationApi,
    "system",
    Effect.fn(function* (handlers) {
      return handlers.handleAll({ info: () => Effect.succeed(system) })
    })
  )

/** `GET /metrics` (decisions, section 7). */
export const MetricsHandlers = ({ version }: SystemInfo) =>
  HttpApiBuilder.group(
    ApplicationApi,
    "metrics",
    Effect.fn(function* (handlers) {
      const observe = Effect.andThen(yield* makeObserve, yield* makeObserveProcess(version))
      return handlers.handleAll({ page: () => Effect.andThen(observe, metricsPage) })
    })
  )
