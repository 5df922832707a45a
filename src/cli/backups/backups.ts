/** `muster backups`: backups of the files of servers. Read first: `shared/backup.ts`. */
import { Console, Effect, Option } from "effect"
import { Argument, Command } from "effect/cli"
import { BackupKind, type BackupRequest, BackupState } from "../../contract/domain/Backup.ts"
import type { Operation } from "../../contract/domain/Operation.ts"
import { QuiesceMode } from "../../contract/domain/Quiesce.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { labelFlag, labelsOf } from "../servers/patch.ts"
import { acted, targetsOf } from "../servers/power.ts"
import { restoreBackup } from "../servers/restore.ts"
import { askFor, backupArgument, backupNamed, listing, serverIdNamed } from "../shared/backup.ts"
import {
  choiceFlag,
  command,
  given,
  group,
  limitFlag,
  severalFlag,
  switchFlag,
  textFlag
} from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { nodeNamed, selectorFlag, serverArguments, serverNamed } from "../shared/named.ts"
import { endOf, listing as operationListing, waitedFor } from "../shared/operations.ts"
import { type OutputOptions, objectCommand, outputFlags, printList, printOne } from "../shared/output.ts"
import { confirm, yesFlag } from "../shared/terminal.ts"
import { secondsFlag, sinceFlag } from "../shared/times.ts"
import { files, get } from "./get.ts"
import { targets } from "./targets.ts"

/** Returns the backup that an operation makes. */
const madeBy = Effect.fnUntraced(function* ({ id }: Operation, server: Server["id"]) {
  const newest = yield* ask((muster) =>
    muster.backups.listOf({ params: { server }, query: { limit: "100" } })
  )
  const made = newest.find(({ operation_id }) => operation_id === id)
  if (made !== undefined) return made
  return yield* CommandError.notFound(`the backup of operation ${id} was deleted meanwhile.`)
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
    "muster backups create lobby --kind full": "All files, also those of its base",
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
    kind: choiceFlag(
      "kind",
      BackupKind.literals,
      "written: only what the server has written over its base, which the target stores once; the default where servers share their bases. full: all files, the default elsewhere"
    ),
    quiesce: choiceFlag(
      "quiesce",
      QuiesceMode.literals,
      "How a running server holds still for the copy: as its software says (auto, the default), stopped and started again, with frozen processes, or not at all"
    ),
    background: switchFlag("background", "End once the work has begun, without waiting for it"),
    ...outputFlags
  },
  *run({ background, expires, kind, label, name, pin, quiesce, selector, server, target, ...flags }) {
    const payload = {
      ...given({ name, target, kind, expires_in: expires, quiesce }),
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

const list = command("list", {
  description: "List backups, newest first, also those of deleted servers",
  examples: {
    "muster backups list": "The last 20",
    "muster backups list --server lobby --state done": "The finished ones of a server",
    "muster backups list --blueprint survival --since 24h -o wide": "The last day of a blueprint"
  },
  input: {
    server: textFlag(
      "server",
      "Only those of a server: its id, the beginning of one, or its name; the id of a deleted one"
    ),
    blueprint: textFlag("blueprint", "Only those of servers of a blueprint"),
    label: severalFlag(
      "label",
      "Only those whose labels meet a condition, repeatable: team=a, team!=a, team",
      64
    ),
    state: choiceFlag("state", BackupState.literals, "Only those in a state"),
    target: textFlag("target", "Only those of a target"),
    since: sinceFlag("Only those that were begun at this time or later"),
    limit: limitFlag("At most this many backups, 1 to 100; default 20", 20),
    ...outputFlags
  },
  *run({ blueprint, label, limit, server, since, state, target, ...flags }) {
    const server_id = yield* Effect.transposeOption(Option.map(server, serverIdNamed))
    const query = {
      limit: String(limit),
      ...(label.length === 0 ? {} : { label }),
      ...given({ server_id, blueprint_id: blueprint, since, state, target })
    }
    const found = yield* ask((muster) => muster.backups.list({ query }))
    yield* printList(flags, listing, found, "No backups. `muster backups create` makes one.")
  }
})

const show = objectCommand(
  "show",
  backupArgument,
  listing,
  askFor((backup) => ask((muster) => muster.backups.get({ params: { backup } }))),
  {
    description: "Show the state and the figures of a backup",
    examples: {
      "muster backups show lobby:latest": "The newest good one of a server",
      "muster backups show 5hq1 --json": "With all fields"
    }
  }
)

const verify = command("verify", {
  description:
    "Read every part of a backup, and compare it with its SHA-256. The command fails with the name of a part that is damaged or missing.",
  short: "Check a backup",
  examples: {
    "muster backups verify lobby:latest": "The newest good one of a server",
    "muster backups verify 5hq1 && echo good": "In a script"
  },
  input: { backup: backupArgument },
  *run({ backup: text }) {
    const backup = yield* backupNamed(text)
    yield* waitedFor(yield* ask((muster) => muster.backups.verify({ params: { backup: backup.id } })))
  }
})

const drill = command("drill", {
  description:
    "Make a server of a backup, wait until it runs, and delete it with its files. The backup then has the result. Needs the rights restore and create.",
  short: "Try whether a server of a backup starts",
  examples: {
    "muster backups drill lobby:latest --wait": "Fail with the reason if the server does not run",
    "muster backups drill 5hq1 --node n2": "On a node; print the operation, and do not wait"
  },
  input: {
    backup: backupArgument,
    node: textFlag("node", "The node of the server: its id, or the beginning of one; default: any that fits"),
    wait: switchFlag("wait", "Wait for the result"),
    ...outputFlags
  },
  *run({ backup: text, node, wait, ...flags }) {
    const backup = yield* backupNamed(text)
    const payload = Option.isSome(node) ? { node_id: (yield* nodeNamed(node.value)).id } : {}
    const begun = yield* ask((muster) => muster.backups.drill({ params: { backup: backup.id }, payload }))
    if (!wait) return yield* printOne(flags, operationListing, begun)
    yield* endOf(begun)
    yield* printOne(
      flags,
      listing,
      yield* ask((muster) => muster.backups.get({ params: { backup: backup.id } }))
    )
  }
})

const pinning = (name: "pin" | "unpin", pinned: boolean, description: string) =>
  objectCommand(
    name,
    backupArgument,
    listing,
    askFor((backup) => ask((muster) => muster.backups.patch({ params: { backup }, payload: { pinned } }))),
    {
      description,
      examples: {
        [`muster backups ${name} lobby:latest`]: "The newest good one of a server",
        [`muster backups ${name} 5hq1 --json`]: "With the backup as JSON"
      }
    }
  )

const NAMED = 5

const remove = command("delete", {
  description: "Delete backups, pinned ones, too. A node that is away removes the files later.",
  short: "Delete backups",
  examples: {
    "muster backups delete 5hq1": "Asks first",
    'muster backups delete lobby:"before the event" 7xk2 --yes': "Without a question"
  },
  input: { backup: backupArgument.pipe(Argument.atLeast(1)), yes: yesFlag },
  *run({ backup: texts, yes }) {
    const found = yield* Effect.forEach(texts, backupNamed)
    const shown = found
      .slice(0, NAMED)
      .map(
        ({ created_at, id, server_id, server_name }) => `${id} of ${server_name ?? server_id}, ${created_at}`
      )
    const more = found.length > NAMED ? `; and ${found.length - NAMED} more` : ""
    yield* confirm(`Delete ${shown.join("; ")}${more}?`, yes)
    for (const { id } of found) {
      yield* ask((muster) => muster.backups.remove({ params: { backup: id } }))
      yield* Console.log(`${id} is deleted`)
    }
  }
})

export const backups = group("backups", {
  short: "Back up the files of servers",
  description:
    "Make, list, check, download, restore and delete backups of the files of servers. Backups stay when their server is deleted.",
  subcommands: [
    create,
    list,
    show,
    verify,
    drill,
    files,
    get,
    restoreBackup,
    pinning("pin", true, "Pin a backup, so that it stays when it expires"),
    pinning("unpin", false, "Unpin a backup; it is deleted when it expires"),
    remove,
    targets
  ]
}).pipe(Command.provide(CommandClient))
