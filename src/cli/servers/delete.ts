import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import { documented, switchFlag } from "../shared/documented.ts"
import { ask } from "../shared/musterClient.ts"
import { acted, bulkInput, confirmed, targetsOf } from "./bulk.ts"

/** `muster servers delete`. */
export const remove = Command.make(
  "delete",
  {
    ...bulkInput,
    force: switchFlag(
      "force",
      "Also if the node cannot be reached; the files are removed when the node returns"
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
  documented(
    "Delete servers with all of their files, whether they run or not.",
    {
      "muster servers delete survival-1": "A server, after confirmation",
      "muster servers delete --selector label=run=42 --yes": "Everything that a test run created"
    },
    "Delete servers with their files"
  )
)
