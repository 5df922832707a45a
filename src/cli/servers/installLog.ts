import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { documented } from "../shared/documented.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { withCommands } from "../shared/routeCommands.ts"
import { note } from "../shared/terminal.ts"
import { followInstallation, installationPrinter, installLines } from "./installation.ts"

/** `muster servers install-log`. */
export const installLog = Command.make(
  "install-log",
  {
    server: serverArgument,
    follow: Flag.Boolean("follow").pipe(
      Flag.withAlias("f"),
      Flag.withDescription("Follow an installation to its end"),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function* ({ follow, server }) {
    const { id } = yield* serverNamed(server)
    if (follow) yield* followInstallation(installationPrinter(id, Console.log))
    else yield* Effect.forEach(yield* installLines(id, 0), (line) => Console.log(line), { discard: true })
    const report = yield* ask((muster) =>
      muster.servers.install({ params: { server: id }, query: { script: false } })
    )
    const { failure_reason, phase } = report
    yield* note(failure_reason === undefined ? phase : `${phase}: ${withCommands(failure_reason)}`)
  })
).pipe(
  documented(
    "Print the output of a server's installation. Standard error has the phase, and the reason of a failure.",
    {
      "muster servers install-log survival-1": "After a failed installation",
      "muster servers install-log k7f -f": "While it runs, with its steps"
    }
  )
)
