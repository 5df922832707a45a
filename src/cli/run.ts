/** Parses the command line and runs the command that it names. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Effect, Exit, Layer, Runtime } from "effect"
import { Command } from "effect/cli"
import { takeSecrets } from "../app/secretVariables.ts"
import { version } from "../app/version.ts"
import { explainFailure, UsageErrors } from "./failures.ts"

const commands = {
  init: Effect.promise(() => import("./init.ts").then(({ init }) => init)),
  serve: Effect.promise(() => import("./serve.ts").then(({ serve }) => serve)),
  node: Effect.promise(() => import("./node.ts").then(({ node }) => node)),
  nodes: Effect.promise(() => import("./nodes.ts").then(({ nodes }) => nodes)),
  keys: Effect.promise(() => import("./keys.ts").then(({ keys }) => keys)),
  db: Effect.promise(() => import("./db.ts").then(({ db }) => db))
}

const isCommand = (word: string | undefined): word is keyof typeof commands =>
  word !== undefined && Object.hasOwn(commands, word)

/** Loads the named command only; without a name, all of them, for the help and for suggestions. */
const named = (word: string | undefined) =>
  Effect.all(isCommand(word) ? [commands[word]] : Object.values(commands))

/** A service that stops on request ends with 0, not with the 130 of an interrupted command. */
const endOf: Runtime.Teardown = (exit, end) =>
  Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause) ? end(0) : Runtime.defaultTeardown(exit, end)

named(process.argv[2]).pipe(
  Effect.flatMap((subcommands) =>
    Command.make("muster").pipe(
      Command.withDescription("Control plane for game servers"),
      Command.withSubcommands(subcommands),
      Command.run({ version })
    )
  ),
  explainFailure,
  Effect.provide([
    NodeServices.layer,
    UsageErrors,
    Layer.succeed(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: takeSecrets() }))
  ]),
  NodeRuntime.runMain({ disableErrorReporting: true, teardown: endOf })
)
