import { resolve } from "node:path"
import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { CommandLogging } from "../app/logging.ts"
import { AS_THE_SERVICE, databaseOf, openDataDir } from "../app/storage.ts"
import { clientOf, mustExist } from "../controlPlane/store/layers/layerDatabase.ts"
import { backupDatabase, copyDatabase } from "../controlPlane/store/maintenance/copyDatabase.ts"
import { type DatabaseStatus, databaseStatus } from "../controlPlane/store/maintenance/tables.ts"
import {
  currentSchema,
  migrate as migrateSchema,
  schemaVersion
} from "../controlPlane/store/migrations/migrate.ts"
import {
  type DatabaseUrl,
  describeDatabase,
  parseDatabaseUrl,
  withoutSecrets
} from "../shared/config/DatabaseUrl.ts"
import { StartError } from "../shared/config/StartError.ts"
import { loadServiceSettings, settings as service } from "../shared/config/service.ts"
import { command, group, textArgument } from "./shared/command.ts"
import { formatOf, jsonOf, type Listing, outputFlags, printList, table } from "./shared/output.ts"
import { enterUserFolder } from "./shared/terminal.ts"

/** The database of the settings. Makes no folder: commands take an existing data folder for that of a service. */
const configured = Effect.map(loadServiceSettings, (settings) =>
  databaseOf(settings, resolve(settings.dataDir))
)

const migrate = command("migrate", {
  description: "Bring the schema of the database up to date",
  examples: {
    "muster db migrate": "The database of the settings",
    "MUSTER_DATABASE_URL=postgres://muster@db/muster muster db migrate":
      "PostgreSQL, before the first replica starts"
  },
  input: {},
  *run() {
    yield* openDataDir(yield* loadServiceSettings)
    const url = yield* configured
    const [before, after] = yield* Effect.gen(function* () {
      const found = yield* currentSchema
      yield* migrateSchema
      return [found, yield* currentSchema] as const
    }).pipe(Effect.provide(clientOf(url)))
    yield* Console.log(
      before === after
        ? `${describeDatabase(url)}: schema ${after}, nothing to do`
        : `${describeDatabase(url)}: schema ${before} -> ${after}`
    )
  }
}).pipe(Command.provide(CommandLogging))

const stateOf = ({ refusal, version }: DatabaseStatus): string => {
  if (refusal !== undefined) return `refused: ${refusal}`
  if (version === schemaVersion) return "up to date"
  if (version === 0) return "none yet: the first start, or `muster db migrate`, makes it"
  return "older: the next start, or `muster db migrate`, brings it up to date"
}

const tables: Listing<DatabaseStatus["counts"][number]> = {
  columns: {
    table: ({ table }) => table,
    rows: ({ rows }) => String(rows)
  }
}

const status = command("status", {
  description: "Show the database, its schema and its contents in numbers",
  examples: {
    "muster db status": "The database of the settings",
    "muster db status --json": "For programs",
    "MUSTER_DATA_DIR=/var/lib/muster muster db status": "That of another data folder"
  },
  input: outputFlags,
  *run(flags) {
    const url = yield* configured
    yield* mustExist(url, AS_THE_SERVICE)
    const found = yield* Effect.provide(databaseStatus, clientOf(url))
    const { counts, journal, known, version } = found
    const format = formatOf(flags)
    if (format === "json") return yield* Console.log(jsonOf({ database: describeDatabase(url), ...found }, 2))
    if (format === "jsonl" || format === "id") return yield* printList(flags, tables, counts, "No tables.")
    yield* Console.log(`Database: ${describeDatabase(url)}`)
    yield* Console.log(`Schema: ${version} (this version has ${known}), ${stateOf(found)}`)
    if (journal !== undefined) yield* Console.log(`Journal: ${journal.oldest} to ${journal.newest}`)
    if (counts.length > 0) yield* printList(flags, tables, counts, "")
  }
}).pipe(Command.provide(CommandLogging))

const named = (text: string): Effect.Effect<DatabaseUrl, StartError> => {
  const url = parseDatabaseUrl(text)
  if (url === undefined) {
    return Effect.fail(
      new StartError({
        message: `${withoutSecrets(text)} names no database: sqlite:file or postgres://user:password@host:port/database`
      })
    )
  }
  return Effect.succeed(url._tag === "Sqlite" ? { ...url, filename: resolve(url.filename) } : url)
}

const copy = command("copy", {
  description: "Copy an installation into another, empty database, and verify the copy",
  examples: {
    "muster db copy --from sqlite:data/muster.db --to postgres://muster@db/muster":
      "From SQLite to PostgreSQL",
    "muster db copy --from postgres://muster@db/muster --to sqlite:copy.db": "Into a file"
  },
  input: {
    from: Flag.String("from").pipe(
      Flag.withDescription("The database to copy: sqlite:file or postgres://...")
    ),
    to: Flag.String("to").pipe(Flag.withDescription("An empty database: sqlite:file or postgres://..."))
  },
  *run({ from, to }) {
    const [source, target] = [yield* named(from), yield* named(to)]
    const copied = yield* copyDatabase(source, target)
    yield* Console.log(
      table(
        ["table", "rows", "hash"],
        copied.map((one) => [one.table, String(one.rows), one.hash.slice(0, 16)])
      )
    )
    yield* Console.log(
      `Copied and verified: ${describeDatabase(source)} -> ${describeDatabase(target)}. Set MUSTER_DATABASE_URL to it.`
    )
    if (target._tag === "Sqlite") return
    yield* Console.log(
      "On PostgreSQL a service has no node of its own: for the servers of one, set MUSTER_EMBEDDED_NODE=true and keep its data folder."
    )
  }
}).pipe(Command.provide(CommandLogging))

const backup = command("backup", {
  description: "Write a copy of the SQLite database to a new file, while the service runs",
  examples: {
    "muster db backup muster-backup.db": "Into this folder",
    "MUSTER_DATA_DIR=/var/lib/muster muster db backup /backups/muster.db":
      "The database of another data folder"
  },
  input: { file: textArgument("file", "A new file") },
  *run({ file }) {
    const url = yield* configured
    if (url._tag === "Postgres") {
      return yield* new StartError({
        message: `${describeDatabase(url)}: back it up with pg_dump, or with \`muster db copy --to sqlite:${file}\` while no service runs`
      })
    }
    yield* enterUserFolder
    const target = resolve(file)
    yield* backupDatabase(url, target)
    yield* Console.log(`${target} is a copy of ${describeDatabase(url)}, and was checked.`)
  }
}).pipe(Command.provide(CommandLogging))

const { dataDir, databaseUrl } = service

/** `muster db migrate|status|copy|backup`. */
export const db = group("db", {
  short: "Migrate, inspect, copy and back up the database",
  description: "Migrate, inspect, copy and back up the database.",
  settings: { dataDir, databaseUrl },
  subcommands: [migrate, status, copy, backup]
})
