import { Effect } from "effect"
import { Command } from "effect/cli"
import type { Server } from "../../domain/Server.ts"
import { documented } from "../shared/documented.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { type Listing, outputFlags, printOne } from "../shared/output.ts"
import { servers, shownFields } from "./listing.ts"

/** A server with the warnings of its node, which has to be called for them. */
export const shownServer: Listing<Server> = {
  ...servers,
  columns: [
    ...servers.columns,
    {
      name: "warnings",
      of: ({ stats }) => ({
        text: (stats?.warnings ?? []).map(({ detail }) => detail).join("; "),
        color: "yellow"
      })
    }
  ]
}

/** `muster servers show`. */
export const show = Command.make(
  "show",
  { server: serverArgument, ...outputFlags },
  Effect.fn(function* ({ server, ...flags }) {
    yield* printOne(flags, shownServer, yield* serverNamed(server, [...shownFields, "stats"]))
  })
).pipe(
  documented("Show a server: its address, limits, expiry, pending changes, last crash and warnings.", {
    "muster servers show survival-1": "A server by its name",
    "muster servers show k7f --json": "A server by the beginning of its id, as JSON"
  })
)
