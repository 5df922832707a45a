import { Effect } from "effect"
import { Command } from "effect/cli"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { outputFlags, printOne } from "../shared/output.ts"
import { servers, shownFields } from "./listing.ts"

/** `muster servers show`. */
export const show = Command.make(
  "show",
  { server: serverArgument, ...outputFlags },
  Effect.fn(function* ({ server, ...flags }) {
    yield* printOne(flags, servers, yield* serverNamed(server, shownFields))
  })
).pipe(
  Command.withShortDescription("Show a server"),
  Command.withDescription("Show a server: its address, limits, expiry, pending changes and last crash."),
  Command.withExamples([
    { command: "muster servers show survival-1", description: "A server by its name" },
    { command: "muster servers show k7f --json", description: "A server by the beginning of its id, as JSON" }
  ])
)
