/** The folders of servers at a start. */
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { serverIdPattern } from "../../domain/Id.ts"
import { listFolder, lstat, removeTree, rename } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { openServerFile } from "../state/ServerFile.ts"

/** The prefix of folders that are about to be deleted. */
export const REMOVED = ".removed-"
const CORRUPT = ".corrupt-"
/** Whether a folder next to the servers has files of a former server. */
export const isAside = (name: string): boolean => name.startsWith(REMOVED) || name.startsWith(CORRUPT)

type Files = InstanceFiles["Service"]

/** Unmounts and removes a server's folder; logs a failure. */
export const removeFor = (files: Files, folder: string) =>
  files.close(folder).pipe(
    Effect.andThen(removeTree(folder)),
    Effect.andThen(files.forget(folder)),
    Effect.catch((error) => Effect.logWarning(error.message))
  )

/** Reads a server's folder; undefined: it has no usable state. An unreadable folder is renamed, never deleted. */
const readServer = Effect.fnUntraced(function* (serversDir: string, id: string, files: Files) {
  const folder = join(serversDir, id)
  if ((yield* lstat(join(folder, "server.json"))) === undefined) {
    yield* removeFor(files, folder) // interrupted before the creation was acknowledged
    return undefined
  }
  const opened = yield* Effect.result(openServerFile(folder))
  if (opened._tag === "Success" && opened.success.get().spec.id === id)
    return { id, folder, file: opened.success }
  const aside = `${CORRUPT}${id}-${yield* Clock.currentTimeMillis}`
  const reason = opened._tag === "Failure" ? opened.failure.message.split("\n")[0] : "it names another server"
  yield* Effect.logError(`the state of ${id} cannot be read and is kept as ${aside}: ${reason}`)
  yield* files.close(folder)
  yield* rename(folder, join(serversDir, aside))
  return undefined
})

/** Reads the servers of this node, and deletes the folders of interrupted creations and removals. */
export const readServers = Effect.fnUntraced(function* (serversDir: string, files: Files) {
  const names = yield* Effect.orDie(listFolder(serversDir))
  for (const name of names) {
    if (!name.startsWith(REMOVED)) continue
    yield* removeFor(files, join(serversDir, name))
  }
  const read = (id: string) =>
    Effect.catchTag(readServer(serversDir, id, files), "IoError", (error) =>
      Effect.as(Effect.logError(`server ${id} is skipped: ${error.message}`), undefined)
    )
  const servers = yield* Effect.forEach(
    names.filter((name) => serverIdPattern.test(name)),
    read,
    { concurrency: 16 }
  )
  return servers.filter((server) => server !== undefined)
})
