import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { wrongUsage } from "./shared/CommandError.ts"
import { documented, documentedGroup, limitFlag, switchFlag } from "./shared/documented.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { objectCommand, outputFlags, printList, printOne } from "./shared/output.ts"
import { listing, rolloutFlags, startRollout, watchRollout } from "./shared/rollout.ts"
import { selectionOf, selectorFlag } from "./shared/selection.ts"

const rolloutArgument = Argument.String("rollout").pipe(Argument.withDescription("Id of the rollout"))

const waitFlag = switchFlag("wait", "Show the progress until the rollout is over or pauses")

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
  documented(
    "Give today's blueprint and software to the servers of a selector, a few at a time. Servers that run are restarted; all keep their data, ids and ports. The service carries the rollout out, also when this command ends.",
    {
      "muster rollouts start --selector blueprint=survival --dry-run": "What would change",
      "muster rollouts start --selector blueprint=survival --canary 2 --max-parallel 5 --wait --yes":
        "Two servers first, then five at a time"
    },
    "Give today's definitions to servers, a few at a time"
  )
)

const list = Command.make(
  "list",
  {
    limit: limitFlag("At most this many rollouts, 1 to 100; default 20", 20),
    ...outputFlags
  },
  Effect.fn(function* ({ limit, ...flags }) {
    const found = yield* ask((muster) => muster.rollouts.list({ query: { limit: String(limit) } }))
    yield* printList(flags, listing, found, "No rollouts.")
  })
).pipe(
  documented("List rollouts, newest first", {
    "muster rollouts list": "The last 20",
    "muster rollouts list -o wide": "With settings and failures"
  })
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
  documented(
    "Show the progress of a rollout, and why servers failed.",
    {
      "muster rollouts show yxr5c0mbys6m": "Its progress now",
      "muster rollouts show yxr5c0mbys6m --wait": "Until its end"
    },
    "Show the progress of a rollout"
  )
)

const change = (name: "pause" | "resume" | "abort", description: string) =>
  objectCommand(
    name,
    rolloutArgument,
    listing,
    (rollout) => ask((muster) => muster.rollouts[name]({ params: { rollout } })),
    description,
    {
      [`muster rollouts ${name} yxr5c0mbys6m`]: "By its id",
      [`muster rollouts ${name} yxr5c0mbys6m --json`]: "With the rollout as JSON"
    }
  )

export const rollouts = Command.make("rollouts").pipe(
  documentedGroup(
    "Start, watch, pause and end rollouts",
    "Start, watch, pause and end rollouts of a running service."
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
