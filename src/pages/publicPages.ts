import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { DatabaseFull, Unavailable } from "../domain/errors.ts"
import type { SystemInfo } from "../domain/SystemInfo.ts"
import { GracefulStop } from "../http/GracefulStop.ts"
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
export const MetricsHandlers = HttpApiBuilder.group(
  ApplicationApi,
  "metrics",
  Effect.fn(function* (handlers) {
    const observe = yield* makeObserve
    return handlers.handleAll({
      page: Effect.fnUntraced(function* () {
        yield* observe
        return HttpServerResponse.text(yield* PrometheusMetrics.format(), {
          contentType: "text/plain; version=0.0.4; charset=utf-8"
        })
      })
    })
  })
)
