/**
 * Folders of targets of the type `node` (spec 12.6). The control plane names them, and only those below a folder that the
 * node's own setting names are written: a control plane that was taken over reaches no other part of the host.
 */
import type { FileHandle } from "node:fs/promises"
import { Effect, Option } from "effect"
import { isWithin } from "../../contract/domain/Files.ts"
import { IoError, io } from "../disk/fsio.ts"
import { openRoot } from "../disk/safePath.ts"
import { enterOwn, type OpenFolder } from "./target.ts"

const SETTING = "MUSTER_NODE_BACKUP_FOLDERS"
const OTHERS = 0o077
const OWN = 0o700

/** A disk that is not mounted is no folder without backups. */
const away = (folder: string, next: string) =>
  new IoError({ code: "AWAY", message: `the folder ${folder} does not exist`, next })

/** Lets only the user of the daemon into a folder. */
const closeTo = Effect.fnUntraced(function* (folder: string, handle: FileHandle, rootOwner: number) {
  const { mode, uid } = yield* io(`look at ${folder}`, () => handle.stat())
  // A server of network files may give every file to one user, then also the folder of the setting.
  if (uid !== process.geteuid?.() && uid !== rootOwner)
    return yield* new IoError({
      code: "REFUSED",
      message: `the folder ${folder} belongs to the user ${uid}`,
      next: "Give it to the user of the daemon, or name another folder."
    })
  if ((mode & OTHERS) === 0) return
  yield* Effect.ignore(io(`close ${folder}`, () => handle.chmod(OWN)))
  const closed = yield* io(`look at ${folder}`, () => handle.stat())
  if ((closed.mode & OTHERS) !== 0)
    return yield* new IoError({
      code: "REFUSED",
      message: `other users can read the folder ${folder}, and its file system keeps it so`,
      next: "Mount it with permissions for the user of the daemon alone."
    })
})

/** Returns how the folder of a target is opened. @param allowed the folders that the setting of the node names */
export const allowedFolder =
  (allowed: ReadonlyArray<string>, folder: string): OpenFolder =>
  (make) =>
    Effect.gen(function* () {
      const root = allowed.find((one) => isWithin(one, folder))
      if (root === undefined)
        return yield* new IoError({
          code: "REFUSED",
          message: `the setting ${SETTING} of the node does not allow ${folder}`,
          next: "Add the folder, or one above it, to the setting, and restart the node."
        })
      let handle = yield* openRoot(root).pipe(
        Effect.catchIf(
          ({ code }) => code === "ENOENT",
          () => away(root, `Mount its disk, or make the folder, which ${SETTING} names.`)
        )
      )
      const { uid } = yield* io(`look at ${root}`, () => handle.stat())
      let path = root
      for (const name of folder.slice(root.length).split("/").slice(1)) {
        path = `${path}/${name}`
        const next = yield* enterOwn(path, handle, name, make)
        if (Option.isNone(next)) return yield* away(path, "Mount its disk, if it is on another one.")
        handle = next.value
      }
      yield* closeTo(folder, handle, uid)
      return Option.some(handle)
    })
