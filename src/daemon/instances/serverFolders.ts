/** The folders of servers at a start. */

import { randomUUID } from "node:crypto"
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { ServerId, serverIdPattern } from "../../domain/Id.ts"
import { listFolder, lstat, rename } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { openServerFile } from "../state/storedServer.ts"

const REMOVED = ".removed-"
const CORRUPT = ".corrupt-"
/** Returns a new name for the folder of a server that is removed. */
export const removedName = (serverId: ServerId): string => `${REMOVED}${serverId}-${randomUUID()}`
/** Whether a folder is that of a removed server. */
export const isRemoved = (name: string): boolean => name.startsWith(REMOVED)
/** Whether a folder next to the servers has files of a former server. */
export const isAside = (name: string): boolean => isRemoved(name) || name.startsWith(CORRUPT)

type Files = InstanceFiles["Service"]

/** Reads a server's folder; undefined: it has no usable state. An unreadable folder is renamed, never deleted. */
const readServer = Effect.fnUntraced(function* (serversDir: string, id: ServerId, files: Files) {
  const folder = join(serversDir, id)
  if ((yield* lstat(join(folder, "server.json"))) === undefined) {
    yield* rename(folder, join(serversDir, removedName(id))) // interrupted before the creation was acknowledged
    return undefined
  }
  const opened = yield* Effect.result(openServerFile(folder))
  if (opened._tag === "Success" && opened.success.get().spec.id === id)
    return { id, folder, file: opened.success }
  const aside = `${CORRUPT}${id}-${yield* Clock.currentTimeMillis}`
  const reason = opened._tag === "Failure" ? opened.failure.message.split("\n")[0] : "it names another server"
  yield* Effect.logError(`the state of the server cannot be read and is kept as ${aside}: ${reason}`)
  yield* files.close(folder)
  yield* rename(folder, join(serversDir, aside))
  return undefined
})

/** Reads the servers of this node. Renames the folder of an interrupted creation to that of a removed server. */
export const readServers = Effect.fnUntraced(function* (serversDir: string, files: Files) {
  const names = yield* Effect.orDie(listFolder(serversDir))
  const read = (id: ServerId) =>
    Effect.catchTag(readServer(serversDir, id, files), "IoError", (error) =>
      Effect.as(Effect.logError(`the server is skipped: ${error.message}`), undefined)
    ).pipe(Effect.annotateLogs({ server_id: id }))
  const servers = yield* Effect.forEach(
    names.filter((name) => serverIdPattern.test(name)).map((name) => ServerId.make(name)),
    read,
    { concurrency: 16 }
  )
  return servers.filter((server) => server !== undefined)
})
