/**
 * Copies of the files of a server that share their blocks with the originals, so that the server can go on while the copies
 * are packed (spec 12.3).
 */
import { chmodSync, closeSync, constants, copyFileSync, openSync } from "node:fs"
import { Effect, Result } from "effect"
import { IoError, ioSync, toIoError } from "../disk/fsio.ts"
import { FOLDER, type Name, within } from "../disk/safePath.ts"
import { type Walked, withFile } from "../packed/walk.ts"

/** Opens folders below another one, without following links. The last one stays open until the thread ends. */
const makeFolders = (top: Name) => {
  let last: { readonly key: string; readonly fd: number } | undefined
  return (names: ReadonlyArray<string>): number => {
    const key = names.join("/")
    if (last?.key === key) return last.fd
    if (last !== undefined) closeSync(last.fd)
    last = undefined
    let fd = openSync(top, FOLDER)
    for (const name of names) {
      const outer = fd
      try {
        fd = openSync(within({ fd: outer }, Buffer.from(name, "latin1")), FOLDER)
      } finally {
        closeSync(outer)
      }
    }
    last = { key, fd }
    return fd
  }
}

const OWN_FILE = 0o600

/** Its code is none of a path that has changed: btrfs refuses files without checksums with EINVAL. */
const refused = (path: string) => (cause: unknown) =>
  new IoError({ code: "EHELD", message: toIoError(`share the blocks of ${path}`, cause).message })

/**
 * Returns a function that copies a file into a folder and returns the path of the copy. It fails where the file system cannot
 * share blocks. @param top the folder of the files: of an overlay its layer, because its own files cannot share blocks
 */
export const makeHold = (folder: string, top: Name) => {
  const open = makeFolders(top)
  let copies = 0
  return ({ name, path }: Pick<Walked, "name" | "path">): Effect.Effect<string, IoError> => {
    const copy = `${folder}/${copies++}`
    const share = (fd: number) => {
      copyFileSync(`/proc/self/fd/${fd}`, copy, constants.COPYFILE_FICLONE_FORCE)
      // A copy has the permissions of the file, also the set-id bits.
      chmodSync(copy, OWN_FILE)
    }
    const source = ioSync(path, () => {
      const names = name.toString("latin1").split("/")
      return within({ fd: open(names.slice(0, -1)) }, Buffer.from(names.at(-1) ?? "", "latin1"))
    })
    const shared = (real: Name) =>
      withFile({ path, real }, (fd) => Result.try({ try: () => share(fd), catch: refused(path) }))
    return Effect.as(Effect.flatMap(Effect.flatMap(source, shared), Effect.fromResult), copy)
  }
}
