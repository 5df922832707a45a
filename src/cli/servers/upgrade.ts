import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import { changes } from "../shared/definitionChanges.ts"
import { documented, given, switchFlag, textFlag } from "../shared/documented.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { formatOf, jsonOf, outputFlags, printList } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"

/** `muster servers upgrade`. */
export const upgrade = Command.make(
  "upgrade",
  {
    server: serverArgument,
    blueprint: textFlag("blueprint", "Another blueprint; default: that of the server"),
    "dry-run": switchFlag("dry-run", "Show the changes, and make none"),
    ...outputFlags
  },
  Effect.fn(function* ({ blueprint, "dry-run": isPreview, server, ...flags }) {
    const { id } = yield* serverNamed(server)
    const found = yield* ask((muster) =>
      muster.servers.upgrade({
        params: { server: id },
        payload: {
          ...(isPreview ? { dry_run: true } : {}),
          ...given({ blueprint_id: blueprint })
        }
      })
    )
    if (formatOf(flags) === "json") yield* Console.log(jsonOf(found, 2))
    else yield* printList(flags, changes, found.changes, `${id} has today's definition.`)
    if (isPreview) yield* note("Nothing was changed.")
  })
).pipe(
  documented(
    "Resolve the blueprint of a server again. The server keeps its data, its id and its ports. A server that is up gets the new definition at its next start; `muster rollouts start` restarts many servers, a few at a time.",
    {
      "muster servers upgrade survival-1 --dry-run": "What would change",
      "muster servers upgrade survival-1 --blueprint survival-2": "Another blueprint"
    },
    "Give a server today's blueprint and software"
  )
)
