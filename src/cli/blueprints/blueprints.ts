import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import type { BlueprintView } from "../../contract/domain/Blueprint.ts"
import { command, group } from "../shared/command.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { type Listing, listCommand, objectCommand, wide } from "../shared/output.ts"
import { reloadCommand } from "../shared/reloadCommand.ts"
import { rolloutFlags, startRollout } from "../shared/rollout.ts"
import { check } from "./check.ts"

const blueprintArgument = Argument.String("blueprint").pipe(Argument.withDescription("Id of the blueprint"))

const listing: Listing<BlueprintView> = {
  id: ({ metadata }) => metadata.id,
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
