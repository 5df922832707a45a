import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import { version as ownVersion } from "../app/version.ts"
import { documented } from "./shared/documented.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"

/** `muster version`: the version of this command and of the service. */
export const version = Command.make(
  "version",
  {},
  Effect.fn(function* () {
    yield* Console.log(`muster ${ownVersion}`)
    const { version: running } = yield* ask((muster) => muster.system.info())
    yield* Console.log(`service ${running}`)
  })
).pipe(
  documented(
    "Show the version of this command, then that of the service. Ends with 5 if the service cannot be reached; `muster --version` asks no service.",
    {
      "muster version": "Both versions",
      "muster --version": "Of the command alone"
    },
    "Show the versions of this command and of the service"
  ),
  Command.provide(CommandClient)
)
