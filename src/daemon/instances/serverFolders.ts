/** The folders of servers as a start finds them. */
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { serverIdPattern } from "../../domain/Id.ts"
import { listFolder, lstat, removeTree, rename } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { openServerFile } from "../state/ServerFile.ts"

/** Beginning of the names of folders that are about to be removed. */
export const REMOVED = ".removed-"
const CORRUPT = ".corrupt-"
/** Whether a folder beside those of servers has the files of one that is no server any more. */
export const isAside = (name: string): boolean => name.startsWith(REMOVED) || name.startsWith(CORRUPT)

type Files = InstanceFiles["Service"]

/** Removes a server's folder, and what is mounted in it before; says why where it cannot. */
export const removeFor = (files: Files, folder: string) =>
  files.close(folder).pipe(
    Effect.andThen(removeTree(folder)),
    Effect.andThen(files.forget(folder)),
    Effect.catch((error) => Effect.logWarning(error.message))
  )

/** Reads a server's folder. Undefined: nothing usable; what cannot be read is put aside, never deleted. */
const readServer = Effect.fnUntraced(function* (servers_dir: string, id: string, files: Files) {
  const folder = join(servers_dir, id)
  if ((yield* lstat(join(folder, "server.json"))) === undefined) {
    yield* removeFor(files, folder) // cut off before anything was promised
    return undefined
  }
  const opened = yield* Effect.result(openServerFile(folder))
  if (opened._tag === "Success" && opened.success.get().spec.id === id)
    return { id, folder, file: opened.success }
  const aside = `${CORRUPT}${id}-${yield* Clock.currentTimeMillis}`
  const reason = opened._tag === "Failure" ? opened.failure.message.split("\n")[0] : "it names another server"
  yield* Effect.logError(`the state of ${id} cannot be read and is kept as ${aside}: ${reason}`)
  yield* files.close(folder)
  yield* rename(folder, join(servers_dir, aside))
  return undefined
})

/** The servers of this node; what was cut off while it was removed or made is removed. */
export const readServers = Effect.fnUntraced(function* (servers_dir: string, files: Files) {
  const names = yield* Effect.orDie(listFolder(servers_dir))
  for (const name of names) {
    if (!name.startsWith(REMOVED)) continue
    yield* removeFor(files, join(servers_dir, name))
  }
  const read = (id: string) =>
    Effect.catchTag(readServer(servers_dir, id, files), "IoError", (error) =>
      Effect.as(Effect.logError(`server ${id} is left out: ${error.message}`), undefined)
    )
  const servers = yield* Effect.forEach(
    names.filter((name) => serverIdPattern.test(name)),
    read,
    { concurrency: 16 }
  )
  return servers.filter((server) => server !== undefined)
})
