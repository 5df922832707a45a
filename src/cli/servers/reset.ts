import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import { documented } from "../shared/documented.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { confirm, yesFlag } from "../shared/terminal.ts"
import { described } from "./bulk.ts"

/** `muster servers reset`. */
export const reset = Command.make(
  "reset",
  { server: serverArgument, yes: yesFlag },
  Effect.fn(function* ({ server, yes }) {
    const found = yield* serverNamed(server)
    yield* confirm(`Stop ${described([found])} and delete everything that it has written?`, yes)
    yield* ask((muster) => muster.servers.reset({ params: { server: found.id } }))
    yield* Console.log(`${found.id} is being reset`)
  })
).pipe(
  documented(
    "Stop a server, delete everything that it has written, its world too, except in writable volumes and mounts, and restore the files of its blueprint. The server stays offline.",
    {
      "muster servers reset survival-1": "After confirmation",
      "muster servers reset k7f --yes && muster servers start k7f": "With a new world, without a question"
    },
    "Restore the files of the blueprint of a server"
  )
)
