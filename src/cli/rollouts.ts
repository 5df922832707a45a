import { Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { commandSettings } from "../config/command.ts"
import { withSettings } from "../config/help.ts"
import { wrongUsage } from "./shared/CommandError.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { outputFlags, printList, printOne } from "./shared/output.ts"
import { listing, rolloutFlags, startRollout, watchRollout } from "./shared/rollout.ts"
import { selectionOf, selectorFlag } from "./shared/selection.ts"

const rolloutArgument = Argument.String("rollout").pipe(Argument.withDescription("Id of the rollout"))

const waitFlag = Flag.Boolean("wait").pipe(
  Flag.withDescription("Show the progress until the rollout is over or pauses"),
  Flag.withDefault(false)
)

const start = Command.make(
  "start",
  { selector: selectorFlag, ...rolloutFlags },
  Effect.fn(function* ({ selector, ...input }) {
    if (selector.length === 0) {
      return yield* wrongUsage("Select servers, such as with --selector blueprint=survival.")
    }
    yield* startRollout(yield* selectionOf(selector), input)
  })
).pipe(
  Command.withShortDescription("Give today's definitions to servers, a few at a time"),
  Command.withDescription(
    "Give today's blueprint and software to the servers of a selector, a few at a time. Servers that run are restarted; all keep their data, ids and ports. The service carries the rollout out, also when this command ends."
  ),
  Command.withExamples([
    {
      command: "muster rollouts start --selector blueprint=survival --dry-run",
      description: "What would change"
    },
    {
      command: "muster rollouts start --selector blueprint=survival --canary 2 --max-parallel 5 --wait --yes",
      description: "Two servers first, then five at a time"
    }
  ])
)

const list = Command.make(
  "list",
  {
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("At most this many rollouts, 1 to 100; default 20"),
      Flag.withDefault(20)
    ),
    ...outputFlags
  },
  Effect.fn(function* ({ limit, ...flags }) {
    const found = yield* ask((muster) => muster.rollouts.list({ query: { limit: String(limit) } }))
    yield* printList(flags, listing, found, "No rollouts.")
  })
).pipe(
  Command.withDescription("List rollouts, newest first"),
  Command.withExamples([
    { command: "muster rollouts list", description: "The last 20" },
    { command: "muster rollouts list -o wide", description: "With settings and failures" }
  ])
)

const show = Command.make(
  "show",
  { rollout: rolloutArgument, wait: waitFlag, ...outputFlags },
  Effect.fn(function* ({ rollout, wait, ...flags }) {
    const found = wait
      ? yield* watchRollout(rollout)
      : yield* ask((muster) => muster.rollouts.get({ params: { rollout } }))
    yield* printOne(flags, listing, found)
  })
).pipe(
  Command.withShortDescription("Show the progress of a rollout"),
  Command.withDescription("Show the progress of a rollout, and why servers failed."),
  Command.withExamples([
    { command: "muster rollouts show ro_5k2m", description: "Its progress now" },
    { command: "muster rollouts show ro_5k2m --wait", description: "Until its end" }
  ])
)

const change = (name: "pause" | "resume" | "abort", description: string) =>
  Command.make(
    name,
    { rollout: rolloutArgument, ...outputFlags },
    Effect.fn(function* ({ rollout, ...flags }) {
      yield* printOne(flags, listing, yield* ask((muster) => muster.rollouts[name]({ params: { rollout } })))
    })
  ).pipe(
    Command.withDescription(description),
    Command.withExamples([
      { command: `muster rollouts ${name} ro_5k2m`, description: "By its id" },
      { command: `muster rollouts ${name} ro_5k2m --json`, description: "With the rollout as JSON" }
    ])
  )

/** `muster rollouts`, against a running service. */
export const rollouts = Command.make("rollouts").pipe(
  Command.withShortDescription("Start, watch, pause and end rollouts"),
  Command.withDescription(
    withSettings("Start, watch, pause and end rollouts of a running service.", commandSettings)
  ),
  Command.withSubcommands([
    start,
    list,
    show,
    change("pause", "Change no further server until the rollout is resumed"),
    change("resume", "Continue a paused rollout; servers that failed are tried again, last"),
    change("abort", "End a rollout; the servers keep the definitions that they have")
  ]),
  Command.provide(CommandClient)
)
