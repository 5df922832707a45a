import { Console } from "effect"
import { Command } from "effect/cli"
import { version as ownVersion } from "../app/version.ts"
import { command } from "./shared/command.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"

/** `muster version`: the version of this command and of the service. */
export const version = command("version", {
  description:
    "Show the version of this command, then that of the service. Ends with 5 if the service cannot be reached; `muster --version` asks no service.",
  short: "Show the versions of this command and of the service",
  examples: {
    "muster version": "Both versions",
    "muster --version": "Of the command alone"
  },
  input: {},
  *run() {
    yield* Console.log(`muster ${ownVersion}`)
    const { version: running } = yield* ask((muster) => muster.system.info())
    yield* Console.log(`service ${running}`)
  }
}).pipe(Command.provide(CommandClient))
