import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { commandSettings } from "../config/command.ts"
import { withSettings } from "../config/help.ts"
import type { Software } from "../domain/Software.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { type Listing, outputFlags, printList, printOne } from "./shared/output.ts"
import { printWarnings, reloading } from "./shared/warnings.ts"

const listing: Listing<Software> = {
  id: ({ id }) => id,
  columns: [
    { name: "id", of: ({ id }) => id },
    { name: "name", of: ({ name }) => name },
    { name: "runtimes", of: ({ runtimes }) => runtimes.join(",") },
    { name: "images", wide: true, of: ({ images }) => Object.keys(images).join(",") },
    { name: "invocation", wide: true, of: ({ process }) => process.invocation }
  ]
}

const list = Command.make(
  "list",
  outputFlags,
  Effect.fn(function* (flags) {
    yield* printList(flags, listing, yield* ask((muster) => muster.blueprints.softwareList()), "No software.")
  })
).pipe(
  Command.withDescription("List software"),
  Command.withExamples([
    { command: "muster software list", description: "All software" },
    { command: "muster software list -o id", description: "The ids" }
  ])
)

const show = Command.make(
  "show",
  {
    software: Argument.String("software").pipe(Argument.withDescription("Id of the software")),
    ...outputFlags
  },
  Effect.fn(function* ({ software, ...flags }) {
    yield* printOne(
      flags,
      listing,
      yield* ask((muster) => muster.blueprints.software({ params: { software } }))
    )
  })
).pipe(
  Command.withDescription("Show a software definition"),
  Command.withExamples([
    { command: "muster software show paper", description: "The main fields" },
    { command: "muster software show paper --json", description: "The whole definition" }
  ])
)

const reload = Command.make(
  "reload",
  {},
  Effect.fn(function* () {
    yield* reloading(ask((muster) => muster.blueprints.softwareReload()))
    yield* Console.log("Software is reloaded.")
    yield* printWarnings("software")
  })
).pipe(
  Command.withShortDescription("Sync the sources of software and read its files again"),
  Command.withDescription(
    "Sync the sources of software and read its files again, all or nothing. An invalid file is named with line, column and reason."
  ),
  Command.withExamples([
    { command: "muster software reload", description: "After a change of files" },
    {
      command: "muster software reload && muster blueprints reload",
      description: "Software first, then blueprints"
    }
  ])
)

/** `muster software`, against a running service. */
export const software = Command.make("software").pipe(
  Command.withShortDescription("List, show and reload software"),
  Command.withDescription(
    withSettings("List, show and reload software of a running service.", commandSettings)
  ),
  Command.withSubcommands([list, show, reload]),
  Command.provide(CommandClient)
)
