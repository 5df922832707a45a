import { Argument, Command } from "effect/cli"
import type { Software } from "../contract/domain/Software.ts"
import { group } from "./shared/command.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { type Listing, listCommand, objectCommand, wide } from "./shared/output.ts"
import { reloadCommand } from "./shared/reloadCommand.ts"

const listing: Listing<Software> = {
  id: ({ id }) => id,
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name,
    runtimes: ({ runtimes }) => runtimes.join(","),
    images: wide(({ images }) => Object.keys(images).join(",")),
    invocation: wide(({ process }) => process.invocation)
  }
}

const list = listCommand(
  listing,
  ask((muster) => muster.blueprints.softwareList()),
  "No software.",
  {
    description: "List software",
    examples: {
      "muster software list": "All software",
      "muster software list -o id": "The ids"
    }
  }
)

const show = objectCommand(
  "show",
  Argument.String("software").pipe(Argument.withDescription("Id of the software")),
  listing,
  (software) => ask((muster) => muster.blueprints.software({ params: { software } })),
  {
    description: "Show a software definition",
    examples: {
      "muster software show paper": "The main fields",
      "muster software show paper --json": "The whole definition"
    }
  }
)

const reload = reloadCommand(
  "software",
  (muster) => muster.blueprints.softwareReload(),
  "Software is reloaded.",
  {
    description:
      "Sync the sources of software and read its files again, all or nothing. An invalid file is named with line, column and reason.",
    short: "Sync the sources of software and read its files again",
    examples: {
      "muster software reload": "After a change of files",
      "muster software reload && muster blueprints reload": "Software first, then blueprints"
    }
  }
)

export const software = group("software", {
  short: "List, show and reload software",
  description: "List, show and reload software of a running service.",
  subcommands: [list, show, reload]
}).pipe(Command.provide(CommandClient))
