/** `muster backups create`. */
import { Effect } from "effect"
import type { Operation } from "../../contract/domain/Operation.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { labelFlag, labelsOf } from "../servers/patch.ts"
import { listing } from "../shared/backup.ts"
import { command, given, switchFlag, textFlag } from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { endOf } from "../shared/operation.ts"
import { outputFlags, printOne } from "../shared/output.ts"
import { secondsFlag } from "../shared/times.ts"

/** Returns the backup that an operation makes. */
const madeBy = Effect.fnUntraced(function* ({ id }: Operation, server: Server["id"]) {
  const newest = yield* ask((muster) =>
    muster.backups.listOf({ params: { server }, query: { limit: "100" } })
  )
  const made = newest.find(({ operation_id }) => operation_id === id)
  if (made !== undefined) return made
  return yield* new CommandError({
    status: "notFound",
    message: `the backup of operation ${id} was deleted meanwhile.`
  })
})

export const create = command("create", {
  description:
    "Back up all files of a server, whether it runs or not, and wait until the backup is done. For one that is certain to be consistent, stop the server first.",
  short: "Back up the files of a server",
  examples: {
    'muster backups create lobby --name "before the event" --pin': "Kept until a caller deletes it",
    "muster backups create lobby --expires 7d": "Deleted after a week",
    "muster backups create k7f --background -o id": "Print the id, and do not wait"
  },
  input: {
    server: serverArgument,
    name: textFlag("name", "A name, which need not be unique"),
    target: textFlag(
      "target",
      "Where it is stored; default: as the blueprint says, else on the node of the server"
    ),
    label: labelFlag,
    pin: switchFlag("pin", "Do not delete the backup when it expires"),
    expires: secondsFlag("expires", "Delete the backup after this time: 12h, 7d", "365d"),
    background: switchFlag("background", "End once the work has begun, without waiting for it"),
    ...outputFlags
  },
  *run({ background, expires, label, name, pin, server, target, ...flags }) {
    const { id } = yield* serverNamed(server)
    const payload = {
      ...given({ name, target, expires_in: expires }),
      ...(label.length === 0 ? {} : { labels: yield* labelsOf(label) }),
      ...(pin ? { pinned: true } : {})
    }
    const begun = yield* ask((muster) => muster.backups.create({ params: { server: id }, payload }))
    if (!background) yield* endOf(begun)
    yield* printOne(flags, listing, yield* madeBy(begun, id))
  }
})
