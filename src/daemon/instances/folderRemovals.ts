/**
 * The removal of server folders in the background, however many files a server has made, however deep. A folder that is
 * renamed to `.removed-<server id>-<uuid>` has no server any more.
 */

import { rmdirSync, unlinkSync } from "node:fs"
import { join } from "node:path"
import { Effect, Semaphore } from "effect"
import type { ServerId } from "../../domain/Id.ts"
import { backoff } from "../../work/backoff.ts"
import { makeWorkQueue } from "../../work/WorkQueue.ts"
import { IoError, ioSync, listFolder, listFolderSync, removeTree, syncFolder } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { runProgram } from "../process/runTool.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import { isRemoved, removedName } from "./serverFolders.ts"
import { OWNERSHIP_FILES } from "./serverUser.ts"

/** Folders that are removed at a time: a large one does not delay the next, and the disk has time for servers. */
const CONCURRENT = 2

export interface FolderRemovalsOptions {
  readonly serversDir: string
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  /** Runs after each removal. */
  readonly collect: Effect.Effect<void>
}

/**
 * Removes paths by `rm` (coreutils). The file functions of Node.js share a few threads: the removal of 300,000 files in
 * this process delays every other file operation by up to 20 s.
 */
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

/**
 * Starts the removal of folders, first of those that an earlier process has not finished: their uids must be reserved. The
 * end of the scope interrupts it.
 */
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
      yield* runtime.releaseUser(folder)
      yield* collect
      return "done" as const
    }),
    backoff: backoff({ first: "1 second", longest: "10 minutes" }),
    resume: Effect.map(listFolder(serversDir), (names) =>
      names.filter(isRemoved).map((name) => join(serversDir, name))
    )
  })

  return {
    /**
     * Renames the folder of a server, on disk when this returns, and starts its removal. Requires that nothing is
     * mounted in it.
     */
    begin: Effect.fnUntraced(function* (serverId: ServerId, folder: string) {
      const removed = join(serversDir, removedName(serverId))
      yield* files.moveAside(folder, removed)
      yield* runtime.renameUser(serverId, removed)
      unmounted.add(removed)
      queue.add(removed)
      yield* synced
    })
  }
})
