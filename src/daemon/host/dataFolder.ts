import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Data, Effect } from "effect"
import {
  type IoError,
  io,
  makeClosedFolder,
  mountTable,
  orMissing,
  readText,
  removeTree,
  writeAtomic
} from "../disk/fsio.ts"
import { mountOf } from "../disk/mountTable.ts"
import { remedyOf } from "../disk/remedy.ts"
import { readProc } from "./procfs.ts"

/** The folders of a data folder. `base` and `servers` are for this service alone; from `lost` it removes nothing. */
export const FOLDERS = { base: "base", lost: "lost", servers: "servers", volumes: "volumes" } as const

/** Another process of this service works in the data folder, or the folder cannot be used. */
export class DataFolderUnusable extends Data.TaggedError("DataFolderUnusable")<{
  readonly message: string
}> {}

const own = () => `${process.pid} ${readProc(process.pid)?.start ?? "0"}\n`

/** Whether the process that a lock names still runs; pid and start time together name it for good. */
const holds = (lock: string): boolean => {
  const [pid, start] = lock.trim().split(" ")
  return lock !== own() && start !== undefined && readProc(Number(pid))?.start === start
}

/** Where the file system of a folder is mounted; the folder itself where that cannot be found out. */
const fileSystemOf = Effect.fnUntraced(function* (folder: string) {
  const real = yield* io(`look at ${folder}`, () => fs.realpath(folder))
  return mountOf(real, yield* mountTable)?.path ?? folder
})

/** The reason with what to do about it. */
const unusable = Effect.fnUntraced(function* (data_dir: string, error: IoError) {
  const place = yield* Effect.orElseSucceed(fileSystemOf(data_dir), () => data_dir)
  const next = error.code === "ENOSPC" ? `free space on the file system at ${place}` : remedyOf(error)
  const message = next === undefined ? error.message : `${error.message}; ${next}, then start again`
  return yield* new DataFolderUnusable({ message })
})

/**
 * Claims the data folder of a daemon for the scope: two daemons in one folder would take each other's servers for
 * their own. A lock of a process that has died is taken over.
 */
export const claimDataFolder = (data_dir: string) =>
  Effect.acquireRelease(
    Effect.gen(function* () {
      const path = join(data_dir, "daemon.lock")
      yield* makeClosedFolder(data_dir)
      const lock = yield* readText(path).pipe(orMissing(""))
      if (holds(lock)) {
        return yield* new DataFolderUnusable({
          message: `${data_dir} is in use by process ${lock.split(" ")[0]}; stop it or choose another data folder`
        })
      }
      // This process has it: who has taken it first gives it back.
      if (lock === own()) return undefined
      yield* writeAtomic(path, own())
      return path
    }).pipe(Effect.catchTag("IoError", (error: IoError) => unusable(data_dir, error))),
    (path) => (path === undefined ? Effect.void : Effect.ignore(removeTree(path)))
  )
