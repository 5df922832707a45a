/** The commands of `muster`. A command is loaded when the command line names it: the rest would slow its start. */
import { Console, Effect, Layer } from "effect"
import { Argument, CliConfig, type CliError, CliOutput, Command, Completions, GlobalFlag } from "effect/cli"
import { version } from "../app/version.ts"
import { command } from "./shared/command.ts"
import { explainFailure } from "./shared/failures.ts"
import { SafeConsole } from "./shared/terminal.ts"

const others = {
  init: Effect.promise(() => import("./init.ts").then(({ init }) => init)),
  serve: Effect.promise(() => import("./serve.ts").then(({ serve }) => serve)),
  node: Effect.promise(() => import("./node.ts").then(({ node }) => node)),
  servers: Effect.promise(() => import("./servers/servers.ts").then(({ servers }) => servers)),
  files: Effect.promise(() => import("./files/files.ts").then(({ files }) => files)),
  sftp: Effect.promise(() => import("./sftp.ts").then(({ sftp }) => sftp)),
  backups: Effect.promise(() => import("./backups/backups.ts").then(({ backups }) => backups)),
  operations: Effect.promise(() => import("./shared/operations.ts").then(({ operations }) => operations)),
  events: Effect.promise(() => import("./events.ts").then(({ events }) => events)),
  nodes: Effect.promise(() => import("./nodes/nodes.ts").then(({ nodes }) => nodes)),
  blueprints: Effect.promise(() =>
    import("./blueprints/definitions.ts").then(({ blueprints }) => blueprints)
  ),
  rollouts: Effect.promise(() => import("./rollouts.ts").then(({ rollouts }) => rollouts)),
  schedules: Effect.promise(() => import("./schedules.ts").then(({ schedules }) => schedules)),
  software: Effect.promise(() => import("./blueprints/definitions.ts").then(({ software }) => software)),
  webhooks: Effect.promise(() => import("./webhooks.ts").then(({ webhooks }) => webhooks)),
  keys: Effect.promise(() => import("./keys/keys.ts").then(({ keys }) => keys)),
  quotas: Effect.promise(() => import("./quotas.ts").then(({ quotas }) => quotas)),
  audit: Effect.promise(() => import("./audit.ts").then(({ audit }) => audit)),
  config: Effect.promise(() => import("./system.ts").then(({ config }) => config)),
  debug: Effect.promise(() => import("./system.ts").then(({ debug }) => debug)),
  db: Effect.promise(() => import("./db.ts").then(({ db }) => db)),
  context: Effect.promise(() => import("./context.ts").then(({ context }) => context)),
  version: Effect.promise(() => import("./system.ts").then(({ version }) => version))
}

const shells = {
  shell: Argument.Literals("shell", ["bash", "zsh", "fish"]).pipe(
    Argument.withDescription("bash, zsh or fish")
  )
} as const

/** `muster completion`: a script for a shell, with all other commands. */
const completion = command("completion", {
  description: "Print a script with which bash, zsh or fish completes commands and flags.",
  short: "Print a completion script for a shell",
  examples: {
    "source <(muster completion bash)": "In ~/.bashrc",
    "muster completion fish > ~/.config/fish/completions/muster.fish": "For fish"
  },
  input: shells,
  *run({ shell }) {
    const all = [...(yield* Effect.all(Object.values(others))), Command.make("completion", shells)]
    const muster = Command.make("muster").pipe(Command.withSubcommands(all))
    yield* Console.log(Completions.generate("muster", shell, Completions.fromCommand(muster)))
  }
})

const commands = { ...others, completion: Effect.succeed(completion) }

const isCommand = (word: string | undefined): word is keyof typeof commands =>
  word !== undefined && Object.hasOwn(commands, word)

/** Returns the commands that the first word needs: the named one, none, or all for help, suggestions and completions. */
const needed = (word: string | undefined) =>
  isCommand(word) ? [commands[word]] : word === "--version" ? [] : Object.values(commands)

/** Prints a mistake in the command line in one line, without the whole help. */
const UsageErrors = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Console.error(
          [
            ...event.errors.map((error) => lineOf(error, event.commandPath)),
            `See ${event.commandPath.join(" ")} --help.`
          ].join("\n")
        )
      : CliOutput.defaultPresenter.present(event)
})

/** Returns what a mistake may have meant: flags, or the nearest command. */
const meant = (error: CliError.NonShowHelpErrors, path: ReadonlyArray<string>): ReadonlyArray<string> => {
  if (error._tag === "UnexpectedArgument") return [path.join(" ")]
  const suggestions = "suggestions" in error ? error.suggestions : []
  if (error._tag !== "UnknownSubcommand") return suggestions
  const nearest = suggestions.find((name) => name.startsWith(error.subcommand)) ?? suggestions[0]
  return nearest === undefined ? [] : [[...path, nearest].join(" ")]
}

const lineOf = (error: CliError.NonShowHelpErrors, path: ReadonlyArray<string>): string => {
  const suggestions = meant(error, path)
  const [first = ""] = error.message.split("\n")
  const line = first
    .replace(". Expected: Schema validation failed: ", "; ")
    .replace(/\. Expected (a string representing a finite number|an integer)/, "; expected a whole number")
    .replace(/\p{Cc}/gu, "")
  return suggestions.length === 0 ? line : `${line}. Did you mean ${suggestions.join(" or ")}?`
}

export const musterCommand = (word: string | undefined) =>
  Effect.map(Effect.all(needed(word)), (subcommands) =>
    Command.make("muster").pipe(
      Command.withDescription("Control plane for game servers"),
      Command.withSubcommands(subcommands)
    )
  )

/** Runs the command line of this process, whose first word is given. */
export const commandLine = (word: string | undefined) =>
  musterCommand(word).pipe(
    Effect.flatMap(Command.run({ version })),
    explainFailure,
    Effect.provide([
      UsageErrors,
      // A service writes its log in a form of its own.
      word === "serve" || word === "node" ? Layer.empty : SafeConsole,
      CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.LogLevel] })
    ])
  )
