import { Effect } from "effect"
import { Command } from "effect/cli"
import { LoggingLayer } from "../app/logging.ts"
import { RecentLog } from "../app/RecentLog.ts"
import { runService } from "../app/service.ts"
import { TelemetryLayer } from "../app/telemetry.ts"
import { withSettings } from "../shared/config/help.ts"
import { ServiceConfig, settings } from "../shared/config/service.ts"
import { documented } from "./shared/documented.ts"

export const serve = Command.make(
  "serve",
  {},
  Effect.fn(function* () {
    const loaded = yield* ServiceConfig.load
    const { add } = yield* RecentLog
    yield* runService(loaded).pipe(
      Effect.provide(TelemetryLayer("muster", loaded)),
      Effect.provide(LoggingLayer(loaded, add))
    )
  })
).pipe(
  Command.provide(RecentLog.layer),
  documented(
    withSettings("Run the service.", settings),
    {
      "muster serve": "With the defaults, on this machine",
      "MUSTER_PORT=5621 MUSTER_DATA_DIR=/var/lib/muster muster serve": "With another port and data folder"
    },
    "Run the service"
  )
)
