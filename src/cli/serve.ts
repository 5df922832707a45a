import { Effect } from "effect"
import { Command } from "effect/cli"
import { LoggingLayer, RecentLog } from "../app/logging.ts"
import { runService } from "../app/service.ts"
import { TelemetryLayer } from "../app/telemetry.ts"
import { loadServiceSettings, settings } from "../shared/config/service.ts"
import { command } from "./shared/command.ts"

export const serve = command("serve", {
  description: "Run the service.",
  settings: settings,
  short: "Run the service",
  examples: {
    "muster serve": "With the defaults, on this machine",
    "MUSTER_PORT=5621 MUSTER_DATA_DIR=/var/lib/muster muster serve": "With another port and data folder"
  },
  input: {},
  *run() {
    const loaded = yield* loadServiceSettings
    const { add } = yield* RecentLog
    yield* runService(loaded).pipe(
      Effect.provide(TelemetryLayer("muster", loaded)),
      Effect.provide(LoggingLayer(loaded, add))
    )
  }
}).pipe(Command.provide(RecentLog.layer))
