/**
 * Folders that servers need below one that their user cannot enter, such as `/root`. In the server's namespace, an
 * empty folder with the needed ones covers it.
 */
import { realpathSync } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { Effect } from "effect"
import { io } from "../disk/fsio.ts"
import { isIn } from "../disk/mountTable.ts"

const OTHERS_ENTER = 0o001

/** Resolves the links of a path, if it exists. */
export const realPath = (path: string) =>
  Effect.orElseSucceed(
    io(`stat ${path}`, () => fs.realpath(path)),
    () => undefined
  )

/** Returns the first folder on a resolved path that other users cannot enter. */
export const closedAbove = Effect.fnUntraced(function* (path: string) {
  const parts = path.split("/").filter((part) => part !== "")
  for (let depth = 1; depth <= parts.length; depth++) {
    const folder = `/${parts.slice(0, depth).join("/")}`
    const stats = yield* io(`stat ${folder}`, () => fs.stat(folder))
    if (!stats.isDirectory()) return undefined
    if ((stats.mode & OTHERS_ENTER) === 0) return folder
  }
  return undefined
})

/** Resolves a link, if its target exists. Synchronous: threads take ten times as long for hundreds of links. */
const targetOf = (link: string): string | undefined => {
  try {
    return realpathSync.native(link)
  } catch {
    return undefined
  }
}

/** Returns the real folders of the programs on a search path, including the targets of links. */
const programFolders = Effect.fnUntraced(function* (search: string) {
  const places = new Map<string, string>()
  for (const folder of new Set(search.split(":").filter((part) => part.startsWith("/")))) {
    const real = yield* realPath(folder)
    if (real === undefined) continue
    places.set(folder, real)
    const entries = yield* Effect.orElseSucceed(
      io(`read ${real}`, () => fs.readdir(real, { withFileTypes: true })),
      () => []
    )
    for (const { name } of entries.filter((entry) => entry.isSymbolicLink())) {
      const target = targetOf(join(real, name))
      if (target !== undefined) places.set(dirname(target), dirname(target))
    }
  }
  return places
})

const hasLibraries = (prefix: string) =>
  Effect.match(
    io(`stat ${prefix}/lib`, () => fs.stat(join(prefix, "lib"))),
    { onSuccess: (stats) => stats.isDirectory(), onFailure: () => false }
  )

/** Returns the folder that programs need: the parent of `bin` if it has libraries, unless it is a home. */
const installed = Effect.fnUntraced(function* (folder: string, above: string, hidden: ReadonlyArray<string>) {
  const prefix = dirname(folder)
  const name = basename(folder)
  if (prefix === above || !isIn(prefix, above) || hidden.some((secret) => isIn(secret, prefix))) return folder
  if (name === ".bin" && basename(prefix) === "node_modules") return prefix
  const isPrefix = (name === "bin" || name === "sbin") && !basename(prefix).startsWith(".")
  return isPrefix && (yield* hasLibraries(prefix)) ? prefix : folder
})

/** A folder of programs, and the path at which it must be visible. */
export interface Programs {
  readonly from: string
  readonly to: string
}

/** Finds closed folders above programs, and programs they or `covered` hide. `closes`: servers have uids. */
export const reachPrograms = Effect.fnUntraced(function* (options: {
  readonly search: string
  readonly covered: ReadonlyArray<string>
  readonly hidden: ReadonlyArray<string>
  readonly closes: boolean
}) {
  const { closes, covered, hidden, search } = options
  const closed = new Set<string>()
  const programs = new Map<string, Programs>()
  const show = (from: string, to: string) => programs.set(`${from}\0${to}`, { from, to })
  const coverOf = Effect.fnUntraced(function* (path: string) {
    const gate = closes ? yield* Effect.orElseSucceed(closedAbove(path), () => undefined) : undefined
    if (gate !== undefined) closed.add(gate)
    return gate ?? covered.find((cover) => isIn(path, cover))
  })
  for (const [place, real] of yield* programFolders(search)) {
    const above = yield* coverOf(real)
    const near = yield* realPath(dirname(place))
    const aboveLink = place === real || near === undefined ? undefined : yield* coverOf(near)
    if (hidden.some((secret) => isIn(secret, real))) {
      if (above !== undefined) {
        yield* Effect.logWarning(
          `servers cannot use the programs in ${place}: the data folder is inside it; remove ${place} from PATH, or move the data folder`
        )
      }
      continue
    }
    if (above !== undefined) {
      const from = yield* installed(real, above, hidden)
      show(from, from)
    }
    if (near !== undefined && aboveLink !== undefined) show(real, join(near, basename(place)))
  }
  const list = [...programs.values()]
  // Excludes folders that another one contains.
  const needed = list.filter(
    (one) =>
      !list.some(
        (other) => other !== one && other.from === other.to && isIn(one.to, other.to) && one.from === one.to
      )
  )
  return { closed: [...closed], programs: needed }
})
