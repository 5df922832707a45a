import { Command } from "effect/cli"
import { command, group, limitFlag, switchFlag, textArgument } from "./shared/command.ts"
import { wrongUsage } from "./shared/failures.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { selectionOf, selectorFlag } from "./shared/named.ts"
import { objectCommand, outputFlags, printList, printOne } from "./shared/output.ts"
import { listing, rolloutFlags, startRollout, watchRollout } from "./shared/rollout.ts"

const rolloutArgument = textArgument("rollout", "Id of the rollout")

const waitFlag = switchFlag("wait", "Show the progress until the rollout is over or pauses")

const start = command("start", {
  description:
    "Give today's blueprint and software to the servers of a selector, a few at a time. Servers that run are restarted; all keep their data, ids and ports. The service carries the rollout out, also when this command ends.",
  short: "Give today's definitions to servers, a few at a time",
  examples: {
    "muster rollouts start --selector blueprint=survival --dry-run": "What would change",
    "muster rollouts start --selector blueprint=survival --canary 2 --max-parallel 5 --wait --yes":
      "Two servers first, then five at a time"
  },
  input: { selector: selectorFlag, ...rolloutFlags },
  *run({ selector, ...input }) {
    if (selector.length === 0) {
      return yield* wrongUsage("Select servers, such as with --selector blueprint=survival.")
    }
    yield* startRollout(yield* selectionOf(selector), input)
  }
})

const list = command("list", {
  description: "List rollouts, newest first",
  examples: {
    "muster rollouts list": "The last 20",
    "muster rollouts list -o wide": "With settings and failures"
  },
  input: {
    limit: limitFlag("At most this many rollouts, 1 to 100; default 20", 20),
    ...outputFlags
  },
  *run({ limit, ...flags }) {
    const found = yield* ask((muster) => muster.rollouts.list({ query: { limit: String(limit) } }))
    yield* printList(flags, listing, found, "No rollouts.")
  }
})

const show = command("show", {
  description: "Show the progress of a rollout, and why servers failed.",
  short: "Show the progress of a rollout",
  examples: {
    "muster rollouts show yxr5c0mbys6m": "Its progress now",
    "muster rollouts show yxr5c0mbys6m --wait": "Until its end"
  },
  input: { rollout: rolloutArgument, wait: waitFlag, ...outputFlags },
  *run({ rollout, wait, ...flags }) {
    const found = wait
      ? yield* watchRollout(rollout)
      : yield* ask((muster) => muster.rollouts.get({ params: { rollout } }))
    yield* printOne(flags, listing, found)
  }
})

const change = (name: "pause" | "resume" | "abort", description: string) =>
  objectCommand(
    name,
    rolloutArgument,
    listing,
    (rollout) => ask((muster) => muster.rollouts[name]({ params: { rollout } })),
    {
      description: description,
      examples: {
        [`muster rollouts ${name} yxr5c0mbys6m`]: "By its id",
        [`muster rollouts ${name} yxr5c0mbys6m --json`]: "With the rollout as JSON"
      }
    }
  )

export const rollouts = group("rollouts", {
  short: "Start, watch, pause and end rollouts",
  description: "Start, watch, pause and end rollouts of a running service.",
  subcommands: [
    start,
    list,
    show,
    change("pause", "Change no further server until the rollout is resumed"),
    change("resume", "Continue a paused rollout; servers that failed are tried again, last"),
    change("abort", "End a rollout; the servers keep the definitions that they have")
  ]
}).pipe(Command.provide(CommandClient))
