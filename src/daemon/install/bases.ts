import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { Effect, Semaphore } from "effect"
import {
  type IoError,
  io,
  listFolder,
  lstat,
  makeClosedFolder,
  makeFolder,
  orMissing,
  removeTree,
  rename
} from "../disk/fsio.ts"
import { generationsDir } from "../files/treeRecord.ts"

/** A base folder as it was made once: instances may have it as a layer, so nothing in it is ever changed. */
export interface Base {
  readonly folder: string
  /** Its name among all that were made on this node. */
  readonly generation: string
}

/** Prefix of links that are about to take their place. */
const LINK = ".link-"

export interface BasesOptions {
  readonly base_dir: string
  /** Names of the generations that instances have as a layer. */
  readonly used: Effect.Effect<ReadonlySet<string>, IoError>
}

/**
 * The base folders of a node. `<software>/<version>` is a link to the generation that new instances start from; a new
 * one takes its place in one step, and an old one stays as long as somebody uses it.
 */
export const openBases = Effect.fnUntraced(function* ({ base_dir, used }: BasesOptions) {
  const generations = generationsDir(base_dir)
  yield* makeClosedFolder(generations)
  for (const name of yield* listFolder(generations)) {
    if (name.startsWith(LINK)) yield* removeTree(join(generations, name))
  }
  const pins = new Map<string, number>()
  const collecting = yield* Semaphore.make(1)
  const looking = yield* Semaphore.make(1)
  const linkOf = (software: string, version: string) => join(base_dir, software, version)
  const baseOf = (generation: string): Base => ({ folder: join(generations, generation), generation })
  const newName = (software: string, version: string) => `${software}-${version}-${randomUUID().slice(0, 8)}`

  /** Makes the link mean the generation, in one step. */
  const point = Effect.fnUntraced(function* (link: string, generation: string) {
    const aside = join(generations, `${LINK}${randomUUID()}`)
    yield* io(`create link ${link}`, () => fs.symlink(join("..", basename(generations), generation), aside))
    yield* rename(aside, link)
  })

  /** The generation that is current; undefined where there is none. A folder of an earlier version becomes one. */
  const current = Effect.fnUntraced(function* (software: string, version: string) {
    const link = linkOf(software, version)
    const stats = yield* lstat(link)
    if (stats?.isDirectory()) {
      const generation = newName(software, version)
      yield* rename(link, join(generations, generation))
      yield* point(link, generation)
      return baseOf(generation)
    }
    if (stats === undefined) return undefined
    const base = baseOf(basename(yield* io(link, () => fs.readlink(link))))
    return (yield* lstat(base.folder))?.isDirectory() ? base : undefined
  }, looking.withPermit)

  /** Keeps a generation for the scope. */
  const pin = (base: Base) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        pins.set(base.generation, (pins.get(base.generation) ?? 0) + 1)
        return base
      }),
      () =>
        Effect.sync(() => {
          const left = (pins.get(base.generation) ?? 1) - 1
          if (left > 0) pins.set(base.generation, left)
          else pins.delete(base.generation)
        })
    )

  /** A folder that has been made becomes the current generation, kept for the scope. */
  const publish = Effect.fnUntraced(function* (software: string, version: string, made: string) {
    const base = yield* pin(baseOf(newName(software, version)))
    yield* rename(made, base.folder)
    yield* makeFolder(dirname(linkOf(software, version)))
    yield* point(linkOf(software, version), base.generation)
    return base
  })

  const currentOnes = Effect.gen(function* () {
    const found = new Set<string>()
    for (const software of yield* listFolder(base_dir)) {
      if (software.startsWith(".")) continue
      for (const version of yield* listFolder(join(base_dir, software))) {
        const to = yield* io(version, () => fs.readlink(linkOf(software, version))).pipe(
          Effect.catchIf(
            (error) => error.code === "EINVAL",
            () => Effect.succeed("") // of an earlier version of this service
          ),
          orMissing("")
        )
        found.add(basename(to))
      }
    }
    return found
  })

  /** Removes generations that nobody uses. What is pinned or made meanwhile stays: it is looked at before and after. */
  const collect = Effect.gen(function* () {
    const candidates = yield* listFolder(generations)
    const pinned = new Set(pins.keys())
    const kept = [yield* currentOnes, yield* used, yield* currentOnes, pinned]
    for (const name of candidates) {
      if (name.startsWith(LINK) || pins.has(name) || kept.some((names) => names.has(name))) continue
      yield* removeTree(join(generations, name))
    }
  }).pipe(
    collecting.withPermit,
    Effect.catch((error: IoError) => Effect.logWarning(`old base folders stay: ${error.message}`))
  )

  return { collect, current, pin, publish }
})

export type Bases = Effect.Success<ReturnType<typeof openBases>>
