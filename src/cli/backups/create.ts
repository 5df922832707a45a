/** `muster backups create`. */
import { Console, Effect } from "effect"
import { Flag } from "effect/cli"
import type { BackupRequest } from "../../contract/domain/Backup.ts"
import type { Operation } from "../../contract/domain/Operation.ts"
import { QuiesceMode } from "../../contract/domain/Quiesce.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { labelFlag, labelsOf } from "../servers/patch.ts"
import { acted, targetsOf } from "../servers/power.ts"
import { listing } from "../shared/backup.ts"
import { command, given, switchFlag, textFlag } from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { selectorFlag, serverArguments, serverNamed } from "../shared/named.ts"
import { endOf } from "../shared/operation.ts"
import { type OutputOptions, outputFlags, printOne } from "../shared/output.ts"
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

/** Backs up one server, and prints the backup. */
const createOne = Effect.fnUntraced(function* (
  text: string,
  payload: BackupRequest,
  { background, ...flags }: OutputOptions & { readonly background: boolean }
) {
  const { id } = yield* serverNamed(text)
  const begun = yield* ask((muster) => muster.backups.create({ params: { server: id }, payload }))
  if (!background) yield* endOf(begun)
  yield* printOne(flags, listing, yield* madeBy(begun, id))
})

export const create = command("create", {
  description:
    "Back up all files of servers, whether they run or not. A running server of software with `quiesce` saves its files first and then holds still; `--quiesce stop` stops any server for the copy, and starts it again. With one server, the command waits until the backup is done, and prints it. With several or --selector, it prints each server whose backup has begun; a node makes one backup at a time, and `muster backups list` shows them.",
  short: "Back up the files of servers",
  examples: {
    'muster backups create lobby --name "before the event" --pin': "Kept until a caller deletes it",
    "muster backups create lobby --expires 7d": "Deleted after a week",
    "muster backups create lobby --quiesce stop": "Stop the server for the copy",
    "muster backups create k7f --background -o id": "Print the id, and do not wait",
    "muster backups create --selector label=team=a --target offsite": "All servers of a team"
  },
  input: {
    server: serverArguments,
    selector: selectorFlag,
    name: textFlag("name", "A name, which need not be unique"),
    target: textFlag(
      "target",
      "Where it is stored; default: as the blueprint says, else on the node of the server"
    ),
    label: labelFlag,
    pin: switchFlag("pin", "Do not delete the backup when it expires"),
    expires: secondsFlag("expires", "Delete the backup after this time: 12h, 7d", "365d"),
    quiesce: Flag.Literals("quiesce", QuiesceMode.literals).pipe(
      Flag.withDescription(
        "How a running server holds still for the copy: as its software says (auto, the default), stopped and started again, with frozen processes, or not at all"
      ),
      Flag.optional
    ),
    background: switchFlag("background", "End once the work has begun, without waiting for it"),
    ...outputFlags
  },
  *run({ background, expires, label, name, pin, quiesce, selector, server, target, ...flags }) {
    const payload = {
      ...given({ name, target, expires_in: expires, quiesce }),
      ...(label.length === 0 ? {} : { labels: yield* labelsOf(label) }),
      ...(pin ? { pinned: true } : {})
    }
    const [only, ...others] = server
    if (only !== undefined && others.length === 0 && selector.length === 0)
      return yield* createOne(only, payload, { background, ...flags })
    const targets = yield* targetsOf({ server, selector, yes: true })
    if (targets.servers.length === 0) return yield* Console.error("No servers match.")
    yield* acted(() => "is being backed up", targets, {
      one: (id) => ask((muster) => Effect.asVoid(muster.backups.create({ params: { server: id }, payload }))),
      many: (chosen) =>
        ask((muster) => muster.backups.createMany({ payload: { selector: chosen, ...payload } }))
    })
  }
})
