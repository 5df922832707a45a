/** `muster blueprints` and `muster software`: the definitions of a service. */
import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import type { MusterClient } from "../../client/index.ts"
import type { BlueprintView, DefinitionWarning } from "../../contract/domain/Blueprint.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { command, group, type Texts, textArgument } from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { type Listing, listCommand, objectCommand, wide } from "../shared/output.ts"
import { rolloutFlags, startRollout } from "../shared/rollout.ts"
import { note } from "../shared/terminal.ts"
import { check } from "./check.ts"

/** A command `reload`, which prints the warnings about the definitions of a folder. */
const reloadCommand = <E extends object, R>(
  of: DefinitionWarning["folder"],
  reload: (muster: MusterClient["Service"]) => Effect.Effect<void, E, R>,
  done: string,
  texts: Texts
) =>
  command("reload", {
    ...texts,
    input: {},
    *run() {
      yield* Effect.mapError(
        ask(reload),
        ({ message, status }) =>
          // Invalid files are no mistake in the command line: they fail, as `muster blueprints check` does.
          new CommandError({ status: status === "usage" ? "failed" : status, message })
      )
      yield* Console.log(done)
      const warnings = yield* ask((muster) => muster.blueprints.warnings())
      for (const { detail, folder } of warnings) if (folder === of) yield* note(`warning: ${detail}`)
    }
  })

const blueprintArgument = textArgument("blueprint", "Id of the blueprint")

const listing: Listing<BlueprintView> = {
  columns: {
    id: ({ metadata }) => metadata.id,
    name: ({ metadata }) => metadata.name,
    software: ({ server }) => `${server.software} ${server.version}`,
    memory: ({ server }) =>
      server.limits.memory_limit === undefined ? "" : `${server.limits.memory_limit} MiB`,
    saved: ({ save }) => (save ? "yes" : "no"),
    type: wide(({ metadata }) => metadata.type),
    starts: wide(({ start }) => (start === true ? "yes" : "no")),
    image: wide(({ server }) => server.image)
  }
}

const PAGE = 1000

const allBlueprints = Effect.gen(function* () {
  const all: Array<BlueprintView> = []
  for (let page = 1; ; page++) {
    const { data, meta } = yield* ask((muster) =>
      muster.blueprints.list({ query: { page: String(page), limit: String(PAGE) } })
    )
    all.push(...data)
    if (page >= meta.pagination.total_pages) return all
  }
})

const list = listCommand(listing, allBlueprints, "No blueprints. `muster init` writes examples.", {
  description: "List blueprints",
  examples: {
    "muster blueprints list": "All blueprints",
    "muster blueprints list -o wide": "With images"
  }
})

const show = objectCommand(
  "show",
  blueprintArgument,
  listing,
  (blueprint) => ask((muster) => muster.blueprints.get({ params: { blueprint } })),
  {
    description: "Show a blueprint",
    examples: {
      "muster blueprints show demo": "The main fields",
      "muster blueprints show demo --json": "The whole blueprint, with its mixins merged"
    }
  }
)

const reload = reloadCommand(
  "blueprints",
  (muster) => muster.blueprints.reload(),
  "Blueprints are reloaded.",
  {
    description:
      "Sync the sources of blueprints and read their files again, all or nothing. An invalid file is named with line, column and reason. Servers keep their definitions; `muster blueprints rollout` gives them the new ones.",
    short: "Sync the sources of blueprints and read their files again",
    examples: {
      "muster blueprints reload": "After a change of files",
      "muster blueprints check ./blueprints && muster blueprints reload": "Only if the files are valid"
    }
  }
)

const rollout = command("rollout", {
  description:
    "Give today's blueprint and software to all servers of the blueprint, a few at a time. Servers that run are restarted; all keep their data, ids and ports.",
  short: "Give today's blueprint to its servers, a few at a time",
  examples: {
    "muster blueprints rollout survival --dry-run": "What would change",
    "muster blueprints rollout survival --max-parallel 5 --on-failure rollback --wait --yes":
      "Five at a time, and back to the earlier definitions after a failure"
  },
  input: { blueprint: blueprintArgument, ...rolloutFlags },
  *run({ blueprint, ...input }) {
    yield* startRollout({ blueprint_id: blueprint }, input)
  }
})

/** `muster blueprints`: `check` needs no service. */
export const blueprints = group("blueprints", {
  short: "List, check, reload and roll out blueprints",
  description: "List, check, reload and roll out blueprints.",
  subcommands: [
    list.pipe(Command.provide(CommandClient)),
    show.pipe(Command.provide(CommandClient)),
    check,
    reload.pipe(Command.provide(CommandClient)),
    rollout.pipe(Command.provide(CommandClient))
  ]
})

const softwareListing: Listing<Software> = {
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name,
    runtimes: ({ runtimes }) => runtimes.join(","),
    images: wide(({ images }) => Object.keys(images).join(",")),
    invocation: wide(({ process }) => process.invocation)
  }
}

const listSoftware = listCommand(
  softwareListing,
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

const showSoftware = objectCommand(
  "show",
  textArgument("software", "Id of the software"),
  softwareListing,
  (software) => ask((muster) => muster.blueprints.software({ params: { software } })),
  {
    description: "Show a software definition",
    examples: {
      "muster software show paper": "The main fields",
      "muster software show paper --json": "The whole definition"
    }
  }
)

const reloadSoftware = reloadCommand(
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
  subcommands: [listSoftware, showSoftware, reloadSoftware]
}).pipe(Command.provide(CommandClient))
