import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Effect, Exit, Layer, Runtime } from "effect"
import { CliConfig, Command, GlobalFlag } from "effect/cli"
import { takeSecrets } from "../app/secretVariables.ts"
import { version } from "../app/version.ts"
import { musterCommand } from "./commands.ts"
import { explainFailure, UsageErrors } from "./shared/failures.ts"
import { SafeConsole } from "./shared/terminal.ts"

const word = process.argv[2]

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

musterCommand(word).pipe(
  Effect.flatMap(Command.run({ version })),
  explainFailure,
  Effect.provide([
    NodeServices.layer,
    UsageErrors,
    // A service writes its log in a form of its own.
    isService ? Layer.empty : SafeConsole,
    CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.LogLevel] }),
    Layer.succeed(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: takeSecrets() }))
  ]),
  NodeRuntime.runMain({ disableErrorReporting: true, teardown: endOf })
)
