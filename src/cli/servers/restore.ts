/** `muster backups restore` and `muster servers restore`. */
import { Effect } from "effect"
import { Flag } from "effect/cli"
import type { RestorePlan } from "../../contract/api/BackupsGroup.ts"
import type { Backup } from "../../contract/domain/Backup.ts"
import { FilePath } from "../../contract/domain/Files.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { backupArgument, backupNamed } from "../shared/backup.ts"
import { command, switchFlag, textFlag } from "../shared/command.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { waitedFor } from "../shared/operations.ts"
import { type Listing, type OutputOptions, outputFlags, printOne, sizeText } from "../shared/output.ts"
import { confirm, firstOf, yesFlag } from "../shared/terminal.ts"

const choices = {
  path: Flag.String("path").pipe(
    Flag.withDescription("Restore only this file or folder of the backup, such as /world; repeatable"),
    Flag.withSchema(FilePath),
    Flag.between(0, 100)
  ),
  merge: switchFlag("merge", "Keep the files that the backup lacks"),
  definition: switchFlag("definition", "Also restore the definition and the overrides that the server had"),
  "no-safety": switchFlag("no-safety", "Do not back up the present files first"),
  start: switchFlag("start", "Start the server once its files are restored"),
  "dry-run": switchFlag("dry-run", "Show what would change, also while the server runs; nothing is changed"),
  yes: yesFlag,
  ...outputFlags
} as const

interface Choices extends OutputOptions {
  readonly "dry-run": boolean
  readonly path: ReadonlyArray<string>
  readonly merge: boolean
  readonly definition: boolean
  readonly "no-safety": boolean
  readonly start: boolean
  readonly yes: boolean
}

/** Paths of each kind that a dry run prints. */
const SHOWN = 5

const HOW =
  "The server must be offline. Its present files are backed up first, as a backup that expires after 7 days; until the restored files are whole, the server has its old ones. With --path, only these files and folders change; with --merge, files that the backup lacks stay."

const entries = ({ bytes, count, first }: RestorePlan["created"]): string => {
  if (count === 0) return "none"
  return `${count} (${sizeText(bytes)}): ${first.slice(0, SHOWN).map(legible).join(", ")}${count > SHOWN ? ", ..." : ""}`
}

const plans: Listing<RestorePlan> = {
  columns: {
    backup: ({ backup_id }) => backup_id,
    created: ({ created }) => entries(created),
    changed: ({ changed }) => entries(changed),
    removed: ({ removed }) => entries(removed),
    "left out": ({ covered }) => (covered === undefined ? "" : entries(covered)),
    unchanged: ({ unchanged: { bytes, count } }) => `${count} (${sizeText(bytes)})`,
    definition: ({ definition }) =>
      definition === undefined ? "" : definition.map(({ path }) => path).join(", ") || "none",
    "needs on disk": ({ free_bytes, needed_bytes }) => ({
      text: `${sizeText(needed_bytes)} of ${sizeText(free_bytes)} that are free`,
      color: needed_bytes > free_bytes ? "red" : undefined
    }),
    "must stop": ({ must_stop }) => (must_stop ? "yes: stop the server first" : ""),
    "backed up first": ({ safety }) => safety ?? "no"
  }
}

/** The files that a restore replaces, in words. */
const replacedOf = (path: ReadonlyArray<string>, isMerged: boolean): string => {
  if (path.length > 0) return firstOf(path)
  return isMerged ? "the files" : "all files"
}

/** Replaces files of a server by those of a backup, after a question, and waits for the end. */
const restored = Effect.fnUntraced(function* (
  server: Pick<Server, "id" | "name">,
  { created_at, id, name = id, server_id }: Backup,
  { definition, "dry-run": isPlan, merge, "no-safety": isUnsafe, path, start, yes, ...flags }: Choices
) {
  const payload = {
    ...{ backup_id: id, safety: !isUnsafe, start },
    ...(path.length === 0 ? {} : { paths: path }),
    ...(merge ? { mode: "merge" as const } : {}),
    ...(definition ? { definition: "backup" as const } : {})
  }
  const call = (query: { readonly dry_run?: true }) =>
    ask((muster) => muster.backups.restore({ params: { server: server.id }, payload, query }))
  if (isPlan) {
    const plan = yield* call({ dry_run: true })
    return "created" in plan ? yield* printOne(flags, plans, plan) : yield* Effect.die("it was not planned")
  }
  const of = server_id === server.id ? "" : ` of server ${server_id}`
  const kept = merge ? " Files that the backup lacks stay." : ""
  const lost = isUnsafe ? " They are not backed up first." : ""
  yield* confirm(
    `Replace ${replacedOf(path, merge)} of ${server.name ?? server.id} by those of the backup ${name}${of}, ${created_at}?${lost}${kept}`,
    yes
  )
  const begun = yield* call({})
  yield* "created" in begun ? Effect.die("the restore was only planned") : waitedFor(begun)
})

export const restoreBackup = command("restore", {
  description: `Replace the files of a server by those of a backup: of its own server, unless --server names another one. ${HOW}`,
  short: "Restore the files of a server",
  examples: {
    "muster backups restore lobby:latest": "Asks first",
    "muster backups restore lobby:latest --path /world --path /ops.json": "Only a folder and a file",
    "muster backups restore 5hq1 --server lobby2 --start --yes": "Onto another server, and start it"
  },
  input: {
    backup: backupArgument,
    server: textFlag("server", "The server that gets the files: its id, the beginning of one, or its name"),
    ...choices
  },
  *run({ backup: text, server, ...chosen }) {
    const backup = yield* backupNamed(text)
    const target = yield* serverNamed(server._tag === "Some" ? server.value : backup.server_id)
    yield* restored(target, backup, chosen)
  }
})

export const restoreServer = command("restore", {
  description: `Replace the files of a server by those of a backup. ${HOW}`,
  short: "Restore the files of a server from a backup",
  examples: {
    "muster servers restore lobby --from latest": "From its newest good backup, after a question",
    "muster servers restore lobby --from latest --dry-run": "Show which files would change",
    "muster servers restore lobby --from latest --path /plugins --merge":
      "Only a folder, whose new files stay",
    'muster servers restore lobby --from "before the event" --start --yes': "From a named one, and start it"
  },
  input: {
    server: serverArgument,
    from: Flag.String("from").pipe(
      Flag.withMetavar("backup"),
      Flag.withDescription(
        "`latest`: the newest good backup of the server; else the id of a backup, the beginning of one, or its name"
      )
    ),
    ...choices
  },
  *run({ from, server, ...chosen }) {
    const target = yield* serverNamed(server)
    const backup = yield* backupNamed(from.includes(":") ? from : `${target.id}:${from}`)
    yield* restored(target, backup, chosen)
  }
})
