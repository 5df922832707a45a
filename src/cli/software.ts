import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import type { Software } from "../contract/domain/Software.ts"
import { documented, documentedGroup } from "./shared/documented.ts"
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
  documented("List software", {
    "muster software list": "All software",
    "muster software list -o id": "The ids"
  })
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
  documented("Show a software definition", {
    "muster software show paper": "The main fields",
    "muster software show paper --json": "The whole definition"
  })
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
  documented(
    "Sync the sources of software and read its files again, all or nothing. An invalid file is named with line, column and reason.",
    {
      "muster software reload": "After a change of files",
      "muster software reload && muster blueprints reload": "Software first, then blueprints"
    },
    "Sync the sources of software and read its files again"
  )
)

/** `muster software`, against a running service. */
export const software = Command.make("software").pipe(
  documentedGroup("List, show and reload software", "List, show and reload software of a running service."),
  Command.withSubcommands([list, show, reload]),
  Command.provide(CommandClient)
)
