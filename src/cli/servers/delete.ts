import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { ask } from "../shared/musterClient.ts"
import { acted, bulkInput, confirmed, targetsOf } from "./bulk.ts"

/** `muster servers delete`. */
export const remove = Command.make(
  "delete",
  {
    ...bulkInput,
    force: Flag.Boolean("force").pipe(
      Flag.withDescription("Also if the node cannot be reached; the files are removed when the node returns"),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function* ({ force, ...input }) {
    const targets = yield* targetsOf(input)
    if (targets.servers.length === 0) return yield* Console.error("No servers match.")
    yield* confirmed("Delete with all files", targets, input.yes)
    yield* acted(() => "is deleted", targets, {
      one: (server) =>
        ask((muster) => muster.servers.remove({ params: { server }, query: force ? { force: "true" } : {} })),
      many: (selector) =>
        ask((muster) => muster.servers.removeMany({ payload: { selector, ...(force ? { force } : {}) } }))
    })
  })
).pipe(
  Command.withShortDescription("Delete servers with their files"),
  Command.withDescription("Delete servers with all of their files, whether they run or not."),
  Command.withExamples([
    { command: "muster servers delete survival-1", description: "A server, after confirmation" },
    {
      command: "muster servers delete --selector label=run=42 --yes",
      description: "Everything that a test run created"
    }
  ])
)
