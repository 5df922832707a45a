import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Data, Effect } from "effect"
import {
  type IoError,
  io,
  lstat,
  makeClosedFolder,
  mountTable,
  openFile,
  orMissing,
  readText
} from "../disk/fsio.ts"
import { mountOf } from "../disk/mountTable.ts"
import { remedyOf } from "../disk/remedy.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { readProc } from "./procfs.ts"

/** The subfolders of a data folder. `base` and `servers` are for this service alone; in `lost` it removes nothing. */
export const FOLDERS = { base: "base", lost: "lost", servers: "servers", volumes: "volumes" } as const

/** The data folder is in use by another process of this service, or unusable. */
class DataFolderUnusable extends Data.TaggedError("DataFolderUnusable")<{
  readonly message: string
}> {}

/** Bytes of every lock: one lock replaces another in place, so that a full disk needs no room for it. */
const LENGTH = 64
const NO_LOCK = ""

const ownLock = () => `${process.pid} ${readProc(process.pid)?.start ?? "0"}`

/** Whether another live process holds a lock, identified by pid and start time. */
const isHeld = (lock: string): boolean => {
  const [pid, start] = lock.split(" ")
  return lock !== ownLock() && start !== undefined && readProc(Number(pid))?.start === start
}

const writeLock = Effect.fnUntraced(function* (path: string, lock: string) {
  const text = `${lock.padEnd(LENGTH - 1)}\n`
  if ((yield* lstat(path)) === undefined) return yield* writeAtomic(path, text)
  const file = yield* openFile(path, "r+")
  yield* io(`write ${path}`, () => file.write(text, 0))
  yield* io(`write ${path}`, () => file.datasync())
}, Effect.scoped)

/** Returns the mount point of a folder's file system; the folder itself if it is unknown. */
const fileSystemOf = Effect.fnUntraced(function* (folder: string) {
  const real = yield* io(`stat ${folder}`, () => fs.realpath(folder))
  return mountOf(real, yield* mountTable)?.path ?? folder
})

const unusable = Effect.fnUntraced(function* (dataDir: string, error: IoError) {
  const mountPoint = yield* Effect.orElseSucceed(fileSystemOf(dataDir), () => dataDir)
  const next = error.code === "ENOSPC" ? `free space on the file system at ${mountPoint}` : remedyOf(error)
  const message = next === undefined ? error.message : `${error.message}; ${next}, then start again`
  return yield* new DataFolderUnusable({ message })
})

/**
 * Claims the data folder for the scope, for one daemon alone. The lock file stays, so a later claim needs no room.
 */
export const claimDataFolder = (dataDir: string) =>
  Effect.acquireRelease(
    Effect.gen(function* () {
      const path = join(dataDir, "daemon.lock")
      yield* makeClosedFolder(dataDir)
      const lock = (yield* readText(path).pipe(orMissing(NO_LOCK))).trim()
      if (isHeld(lock)) {
        return yield* new DataFolderUnusable({
          message: `${dataDir} is in use by process ${lock.split(" ")[0]}; stop it or choose another data folder`
        })
      }
      // This process holds the lock; its first claim releases it.
      if (lock === ownLock()) return undefined
      yield* writeLock(path, ownLock())
      return path
    }).pipe(Effect.catchTag("IoError", (error: IoError) => unusable(dataDir, error))),
    (path) => (path === undefined ? Effect.void : Effect.ignore(writeLock(path, NO_LOCK)))
  )
