import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { documented } from "../shared/documented.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"

/** `muster servers reinstall`. */
export const reinstall = Command.make(
  "reinstall",
  {
    server: serverArgument,
    definition: Flag.Literals("definition", ["today", "kept"]).pipe(
      Flag.withDescription(
        "`today`: blueprint and software as they are now; `kept`: the definition of the server; default: today, or kept if the blueprint does not exist any more"
      ),
      Flag.optional
    )
  },
  Effect.fn(function* ({ definition, server }) {
    const { id } = yield* serverNamed(server)
    const payload = definition._tag === "Some" ? { definition: definition.value } : {}
    yield* ask((muster) => muster.servers.reinstall({ params: { server: id }, payload }))
    yield* Console.log(`${id} installs`)
  })
).pipe(
  documented(
    "Run the install script of an offline server again, as after a failed installation. The files that a saved server has written stay.",
    {
      "muster servers reinstall survival-1": "With today's definition",
      "muster servers install-log survival-1 -f": "Follow it"
    },
    "Run the install script of a server again"
  )
)
