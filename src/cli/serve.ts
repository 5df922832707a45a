import { Effect } from "effect"
import { Command } from "effect/cli"
import { LoggingLayer } from "../app/logging.ts"
import { runService } from "../app/service.ts"
import { withSettings } from "../config/help.ts"
import { ServiceConfig, settings } from "../config/service.ts"

/** `muster serve`: runs the service. */
export const serve = Command.make(
  "serve",
  {},
  Effect.fn(function* () {
    const loaded = yield* ServiceConfig.load
    yield* runService(loaded).pipe(Effect.provide(LoggingLayer(loaded)))
  })
).pipe(
  Command.withShortDescription("Run the service"),
  Command.withDescription(withSettings("Run the service.", settings))
)
