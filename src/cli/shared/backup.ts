/** Backups on the command line: how they are shown, and which one an argument means. */
import { Effect } from "effect"
import type { Backup, BackupState } from "../../contract/domain/Backup.ts"
import { textArgument } from "./command.ts"
import { CommandError, ifMissing, wrongUsage } from "./failures.ts"
import { ask } from "./musterClient.ts"
import { only, serverNamed } from "./named.ts"
import { type Listing, sizeText, wide } from "./output.ts"
import type { Color } from "./terminal.ts"

export const backupArgument = textArgument(
  "backup",
  "Id of the backup, the beginning of one, or its name; SERVER:latest is the newest good one of a server, SERVER:NAME one of a server"
)

const colors: Readonly<Record<BackupState, Color | undefined>> = {
  queued: undefined,
  quiescing: "yellow",
  copying: "yellow",
  done: "green",
  failed: "red",
  deleting: undefined
}

const bytesText = (bytes: number | undefined): string => (bytes === undefined ? "" : sizeText(bytes))

export const listing: Listing<Backup> = {
  columns: {
    id: ({ id }) => id,
    server: ({ server_id, server_name }) => server_name ?? server_id,
    name: ({ name }) => name ?? "",
    state: ({ state, verified }) =>
      verified?.ok === false && state === "done"
        ? { text: "damaged", color: "red" }
        : { text: state, color: colors[state] },
    begun: ({ created_at }) => created_at,
    size: ({ size_bytes }) => bytesText(size_bytes),
    stored: ({ stored_bytes }) => bytesText(stored_bytes),
    consistency: ({ consistency }) => consistency ?? "",
    kept: ({ expires_at, pinned }) =>
      pinned ? "pinned" : expires_at === undefined ? "" : `until ${expires_at}`,
    kind: wide(({ kind }) => kind ?? ""),
    base: wide(({ base }) => (base === undefined ? "" : `${base.software} ${base.version}`)),
    "server id": wide(({ server_id }) => server_id),
    blueprint: wide(({ blueprint_id }) => blueprint_id),
    labels: wide(({ labels }) =>
      Object.entries(labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(" ")
    ),
    target: wide(({ target }) => target),
    node: wide(({ node_id }) => node_id),
    files: wide(({ files }) => (files === undefined ? "" : String(files))),
    "changed files": wide(({ changed_files = 0 }) => (changed_files === 0 ? "" : String(changed_files))),
    sha256: wide(({ sha256 }) => sha256 ?? ""),
    ended: wide(({ finished_at }) => finished_at ?? ""),
    drill: wide(({ drill }) => (drill === undefined ? "" : `${drill.ok ? "ok" : "failed"} ${drill.at}`)),
    "drill failed": wide(({ drill }) => drill?.reason ?? ""),
    verified: wide(({ verified }) =>
      verified === undefined ? "" : `${verified.ok ? "ok" : "damaged"} ${verified.at}`
    ),
    schedule: wide(({ schedule }) => schedule?.name ?? ""),
    operation: wide(({ operation_id }) => operation_id),
    reason: ({ reason, verified }) => verified?.reason ?? reason ?? ""
  }
}

/** Backups of one page of the list. */
const PAGE = "100"

const LATEST = "latest"

const newestOf = Effect.fnUntraced(function* (server_id: string, server: string) {
  const done = yield* ask((muster) =>
    muster.backups.list({ query: { server_id, state: "done", limit: PAGE } })
  )
  const newest = done.find(({ verified }) => verified?.ok !== false)
  if (newest !== undefined) return newest
  return yield* CommandError.notFound(
    `no good backup of ${server}. \`muster backups list --server ${server}\` shows all of them.`
  )
})

/** Returns the id of a server. A text that names no server is returned: it may be the id of a deleted one. */
export const serverIdNamed = (text: string) =>
  serverNamed(text).pipe(
    Effect.map(({ id }): string => id),
    ifMissing(() => Effect.succeed(text))
  )

/** Returns the backup of an argument. Backups older than the last 100 are found by their id, or with their server. */
export const backupNamed = Effect.fnUntraced(function* (text: string) {
  if (text === LATEST) return yield* wrongUsage("Name the server of the latest backup: SERVER:latest.")
  const [, server, name = text] = /^([^:]+):(.+)$/.exec(text) ?? []
  const server_id = server === undefined ? undefined : yield* serverIdNamed(server)
  if (server !== undefined && server_id !== undefined && name === LATEST)
    return yield* newestOf(server_id, server)
  const query = { limit: PAGE, ...(server_id === undefined ? {} : { server_id }) }
  const all = yield* ask((muster) => muster.backups.list({ query }))
  return yield* only("backup", name, all, (backup) => backup.name ?? "").pipe(
    ifMissing(() => ask((muster) => muster.backups.get({ params: { backup: name } })))
  )
})

/** Calls a route with the id of the backup that an argument means. */
export const askFor =
  <A, E, R>(call: (backup: Backup["id"]) => Effect.Effect<A, E, R>) =>
  (text: string) =>
    Effect.flatMap(backupNamed(text), ({ id }) => call(id))
