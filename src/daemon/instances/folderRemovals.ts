/** Removes server folders in the background. One renamed to `.removed-<server id>-<uuid>` has no server. */

import { randomUUID } from "node:crypto"
import { rmdirSync, unlinkSync } from "node:fs"
import { join } from "node:path"
import { Clock, Effect, Semaphore } from "effect"
import { ServerId, serverIdPattern } from "../../contract/domain/Id.ts"
import { backoff } from "../../shared/work/backoff.ts"
import { makeWorkQueue } from "../../shared/work/WorkQueue.ts"
import {
  IoError,
  ioSync,
  listFolder,
  listFolderSync,
  lstat,
  removeTree,
  rename,
  syncFolder
} from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { runProgram } from "../host/runTool.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import { openInstanceFile } from "../state/InstanceFile.ts"
import { OWNERSHIP_FILES } from "./serverUser.ts"

const REMOVED = ".removed-"
const CORRUPT = ".corrupt-"
/** Returns a new name for the folder of a server that is removed. */
const removedName = (serverId: ServerId): string => `${REMOVED}${serverId}-${randomUUID()}`
const isRemoved = (name: string): boolean => name.startsWith(REMOVED)
/** Whether a folder next to the servers has files of a former server. */
export const isAside = (name: string): boolean => isRemoved(name) || name.startsWith(CORRUPT)

type Files = InstanceFiles["Service"]

/** Reads a server's folder, if its state is usable. An unreadable folder is renamed, never deleted. */
const readServer = Effect.fnUntraced(function* (serversDir: string, id: ServerId, files: Files) {
  const folder = join(serversDir, id)
  if ((yield* lstat(join(folder, "server.json"))) === undefined) {
    yield* rename(folder, join(serversDir, removedName(id))) // interrupted before the creation was acknowledged
    return undefined
  }
  const opened = yield* Effect.result(openInstanceFile(folder))
  if (opened._tag === "Success" && opened.success.get().spec.id === id)
    return { id, folder, file: opened.success }
  const aside = `${CORRUPT}${id}-${yield* Clock.currentTimeMillis}`
  const reason = opened._tag === "Failure" ? opened.failure.message.split("\n")[0] : "it names another server"
  yield* Effect.logError(`the state of the server cannot be read and is kept as ${aside}: ${reason}`)
  yield* files.close(folder)
  yield* rename(folder, join(serversDir, aside))
  return undefined
})

/** Reads the servers of this node. The folder of an interrupted creation gets the name of a removed server. */
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

/** Folders that are removed at a time: a large one does not delay the next, and the disk has time for servers. */
const CONCURRENT = 2

export interface FolderRemovalsOptions {
  readonly serversDir: string
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  readonly collect: Effect.Effect<void>
}

/** Removes paths by `rm`: in this process, 300,000 files would delay every other file operation by up to 20 s. */
const removeByTool = Effect.fnUntraced(function* (paths: ReadonlyArray<string>) {
  const { code, stderr } = yield* runProgram([
    "rm",
    "--recursive",
    "--force",
    "--one-file-system",
    "--",
    ...paths
  ])
  if (code === 0) return
  const [line] = stderr.split("\n", 1)
  return yield* new IoError({ code: "UNKNOWN", message: line || `rm exited with ${code}` })
})

/** Removes a folder that has no other file than those. */
const removeLast = Effect.fnUntraced(function* (folder: string, files: ReadonlyArray<string>) {
  yield* ioSync(`remove ${folder}`, () => {
    for (const name of files) unlinkSync(join(folder, name))
    rmdirSync(folder)
  })
})

/** Makes callers share a run that begins after each of their calls. */
const sharedRun = <E>(run: Effect.Effect<void, E>): Effect.Effect<void, E> => {
  const lock = Semaphore.makeUnsafe(1)
  let [begun, succeeded] = [0, 0]
  return Effect.suspend(() => {
    const before = begun
    return lock.withPermit(
      Effect.suspend(() => {
        if (succeeded > before) return Effect.void
        const number = ++begun
        return Effect.tap(run, () =>
          Effect.sync(() => {
            succeeded = number
          })
        )
      })
    )
  })
}

/** Starts removals in the scope, first the unfinished ones of an earlier process, whose uids must be reserved. */
export const makeFolderRemovals = Effect.fnUntraced(function* (options: FolderRemovalsOptions) {
  const { collect, files, runtime, serversDir } = options
  const permits = yield* Semaphore.make(CONCURRENT)
  const synced = sharedRun(syncFolder(serversDir))
  /** Folders that were renamed by this process, with nothing mounted in them. */
  const unmounted = new Set<string>()

  const remove = Effect.fnUntraced(function* (folder: string) {
    if (!unmounted.delete(folder)) yield* files.close(folder)
    // Few: the process of the server cannot write there.
    const names = yield* listFolderSync(folder)
    const last = names.filter((name) => OWNERSHIP_FILES.includes(name))
    const paths = names.filter((name) => !last.includes(name)).map((name) => join(folder, name))
    if (paths.length > 0) {
      yield* Effect.catch(removeByTool(paths), (error) =>
        // Opens folders that are closed to an ordinary user.
        Effect.mapError(Effect.forEach(paths, removeTree, { discard: true }), () => error)
      )
    }
    yield* Effect.catch(removeLast(folder, last), () => removeTree(folder))
  })

  const queue = yield* makeWorkQueue({
    name: "removal of a server folder",
    fields: (folder: string) => ({ folder }),
    step: Effect.fnUntraced(function* (folder, attempt) {
      // The release waits for others, and needs no permit.
      yield* Effect.tapError(permits.withPermit(remove(folder)), ({ message }) =>
        attempt === 1
          ? Effect.logWarning(`the folder of a removed server cannot be deleted, retrying: ${message}`)
          : Effect.void
      )
      yield* files.forget(folder)
      yield* runtime.users.release(folder)
      yield* collect
      return "done" as const
    }),
    backoff: backoff({ first: "1 second", longest: "10 minutes" }),
    resume: Effect.map(listFolder(serversDir), (names) =>
      names.filter(isRemoved).map((name) => join(serversDir, name))
    )
  })

  return {
    /** Renames a server's folder, durably, and starts its removal. Requires that nothing is mounted in it. */
    begin: Effect.fnUntraced(function* (serverId: ServerId, folder: string) {
      const removed = join(serversDir, removedName(serverId))
      yield* files.moveAside(folder, removed)
      yield* runtime.users.rename(serverId, removed)
      unmounted.add(removed)
      queue.add(removed)
      yield* synced
    })
  }
})
