/**
 * Files that share their blocks with those of a server, and that no one else has: the server goes on while they are packed
 * (spec 12.3).
 */
import { closeSync, constants, copyFileSync, openSync } from "node:fs"
import { Effect } from "effect"
import { IoError, ioSync } from "../disk/fsio.ts"
import { FOLDER, type Name, within } from "../disk/safePath.ts"
import { type WalkError, type Walked, withFile } from "../packed/walk.ts"

/** Entries that are in memory until they are packed. */
const MOST = 60_000

/** Opens folders of the layer of a server, without following links. The last one stays open. */
const makeFolders = (layer: Name) => {
  const root = openSync(layer, FOLDER)
  let last: { readonly key: string; readonly fd: number } | undefined
  return (names: ReadonlyArray<string>): number => {
    const key = names.join("/")
    if (last?.key === key) return last.fd
    if (last !== undefined) closeSync(last.fd)
    last = undefined
    let fd = openSync(`/proc/self/fd/${root}/.`, FOLDER)
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

/** The files of one server that are held in a folder. @param layer of an overlay, whose files share blocks with no others */
export class Hold {
  readonly #folder: string
  readonly #open: ReturnType<typeof makeFolders> | undefined
  readonly #steps: Array<Effect.Effect<void, WalkError>> = []

  constructor(folder: string, layer: Name | undefined) {
    this.#folder = folder
    this.#open = layer === undefined ? undefined : makeFolders(layer)
  }

  /** What is to be done with what is held, in order. */
  get steps(): ReadonlyArray<Effect.Effect<void, WalkError>> {
    return this.#steps
  }

  push(step: Effect.Effect<void, WalkError>): void {
    this.#steps.push(step)
  }

  /** Makes a file that shares the blocks of another one; returns its path. @error IoError the file system cannot do that */
  file({ name, path, real }: Pick<Walked, "name" | "path" | "real">): Effect.Effect<string, IoError> {
    if (this.#steps.length >= MOST)
      return Effect.fail(new IoError({ code: "E2BIG", message: `the server has more than ${MOST} entries` }))
    const held = `${this.#folder}/${this.#steps.length}`
    const source = ioSync(path, () => {
      if (this.#open === undefined) return real
      const names = name.toString("latin1").split("/")
      const fd = this.#open(names.slice(0, -1))
      return within({ fd }, Buffer.from(names.at(-1) ?? "", "latin1"))
    })
    const share = (from: Name) =>
      withFile({ path, real: from }, (fd) =>
        copyFileSync(`/proc/self/fd/${fd}`, held, constants.COPYFILE_FICLONE_FORCE)
      )
    return Effect.as(Effect.flatMap(source, share), held)
  }
}
