import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Console, Effect, Exit, Layer, Runtime } from "effect"
import { takeSecrets } from "../app/secretKey.ts"
import { version } from "../app/version.ts"
import { explainFailure } from "./shared/failures.ts"

const [word, ...others] = process.argv.slice(2)

const isService = word === "serve" || word === "node"

/** A service that stops on request ends with 0, not with the 130 of an interrupted command. */
const endOf: Runtime.Teardown = (exit, end) =>
  isService && Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
    ? end(0)
    : Runtime.defaultTeardown(exit, end)

/** The status of a program that SIGPIPE ends. */
const CLOSED_PIPE = 141

// A command ends quietly once the reader of its output is gone. A service outlives the reader of its log.
if (!isService) {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EPIPE") process.exit(CLOSED_PIPE)
    })
  }
}

/** Services without flags, and the version, need no parser of commands, which would slow their start. */
const program = Effect.gen(function* () {
  switch (others.length > 0 ? undefined : word) {
    case "serve":
      return yield* explainFailure((yield* Effect.promise(() => import("../app/service.ts"))).service)
    case "node":
      return yield* explainFailure((yield* Effect.promise(() => import("../app/node.ts"))).node)
    case "--version":
      return yield* Console.log(`muster v${version}`)
    default:
      return yield* (yield* Effect.promise(() => import("./commands.ts"))).commandLine(word)
  }
})

program.pipe(
  Effect.provide([
    NodeServices.layer,
    Layer.succeed(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: takeSecrets() }))
  ]),
  NodeRuntime.runMain({ disableErrorReporting: true, teardown: endOf })
)
