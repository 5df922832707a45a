import { Effect } from "effect"
import { Command } from "effect/cli"
import { LoggingLayer } from "../app/logging.ts"
import { runService } from "../app/service.ts"
import { ServiceConfig } from "../config/service.ts"

/** `muster serve`: runs the service. */
export const serve = Command.make(
  "serve",
  {},
  Effect.fn(function* () {
    const settings = yield* ServiceConfig.load
    yield* runService(settings).pipe(Effect.provide(LoggingLayer(settings)))
  })
).pipe(Command.withDescription("Run the service"))
