import { join } from "node:path"
import { Data, Effect } from "effect"
import { type IoError, makeFolder, orMissing, readText, removeTree, writeAtomic } from "../disk/fsio.ts"
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

/**
 * Claims the data folder of a daemon for the scope: two daemons in one folder would take each other's servers for
 * their own. A lock of a process that has died is taken over.
 */
export const claimDataFolder = (data_dir: string) =>
  Effect.acquireRelease(
    Effect.gen(function* () {
      const path = join(data_dir, "daemon.lock")
      yield* makeFolder(data_dir)
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
    }).pipe(
      Effect.catchTag("IoError", (error: IoError) => new DataFolderUnusable({ message: error.message }))
    ),
    (path) => (path === undefined ? Effect.void : Effect.ignore(removeTree(path)))
  )
