import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { documented } from "../shared/documented.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"

/** `muster servers send`. */
export const send = Command.make(
  "send",
  {
    server: serverArgument,
    command: Argument.String("command").pipe(
      Argument.withDescription("The line to write; several words are one line"),
      Argument.atLeast(1)
    )
  },
  Effect.fn(function* ({ command, server }) {
    const { id } = yield* serverNamed(server)
    yield* ask((muster) =>
      muster.servers.commands({ params: { server: id }, payload: { commands: [command.join(" ")] } })
    )
  })
).pipe(
  documented(
    "Write a line to the console of a server that runs. `servers logs` shows the response.",
    {
      "muster servers send survival-1 say hello": "The line `say hello`",
      "muster servers send k7f -- op alice -f": "After --, words may begin with a dash"
    },
    "Write a line to the console of a server"
  )
)
