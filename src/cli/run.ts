/** Parses the command line and runs the command that it names. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Effect, Exit, Layer, Runtime } from "effect"
import { Command } from "effect/cli"
import { takeSecrets } from "../app/secretVariables.ts"
import { version } from "../app/version.ts"
import { explainFailure, UsageErrors } from "./shared/failures.ts"

const commands = {
  init: Effect.promise(() => import("./init.ts").then(({ init }) => init)),
  serve: Effect.promise(() => import("./serve.ts").then(({ serve }) => serve)),
  node: Effect.promise(() => import("./node.ts").then(({ node }) => node)),
  events: Effect.promise(() => import("./events.ts").then(({ events }) => events)),
  nodes: Effect.promise(() => import("./nodes/nodes.ts").then(({ nodes }) => nodes)),
  servers: Effect.promise(() => import("./servers/servers.ts").then(({ servers }) => servers)),
  keys: Effect.promise(() => import("./keys.ts").then(({ keys }) => keys)),
  db: Effect.promise(() => import("./db.ts").then(({ db }) => db))
}

const isCommand = (word: string | undefined): word is keyof typeof commands =>
  word !== undefined && Object.hasOwn(commands, word)

/** Loads the named command only; without a name, all of them, for the help and for suggestions. */
const named = (word: string | undefined) =>
  Effect.all(isCommand(word) ? [commands[word]] : Object.values(commands))

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

named(word).pipe(
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
