/** The base folders of software: their names, by what their scripts read (spec 4.6), and their generations. */
import { createHash, randomUUID } from "node:crypto"
import * as fs from "node:fs"
import { basename, dirname, join } from "node:path"
import { Effect, Result, Semaphore } from "effect"
import { scriptHash } from "../../contract/domain/compareDefinitions.ts"
import { isOfDaemon, namesRead, upperCased } from "../../contract/domain/environment.ts"
import { memoryLimitMib } from "../../contract/domain/Limits.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { InstallScript } from "../../contract/domain/Software.ts"
import { inScope } from "../../shared/work/inScope.ts"
import { contextOf } from "../configPatch/placeholders.ts"
import {
  type IoError,
  ioSync,
  listFolder,
  lstatSync,
  makeClosedFolder,
  makeFolder,
  orMissing,
  removeTree,
  rename
} from "../disk/fsio.ts"
import { generationsDir } from "../files/treeRecord.ts"

const DEFAULT_BUILD = "latest"

/** Variables of a script that no variable of a blueprint replaces. */
const own = ["HOME", "INSTALL_DIR", "SOFTWARE_ID", "VERSION", "SERVER_ID", "SERVER_IP", "SERVER_PORT"]

const variablesRead = ({ spec, install }: { readonly spec: ServerSpec; readonly install: InstallScript }) => {
  const { env, limits } = spec.definition
  const context = contextOf(spec)
  // A placeholder without a value is an error of the start, not of the installation.
  const expanded = Result.isSuccess(context) ? context.success.env : upperCased(env)
  const names = Object.keys(upperCased(env)).filter((name) => !own.includes(name) && !isOfDaemon(name))
  const values: Readonly<Record<string, string>> = Object.fromEntries([
    ...names.map((name) => [name, expanded[name] ?? ""] as const),
    ["SERVER_MEMORY", String(memoryLimitMib(limits))]
  ])
  return namesRead(install, values)
    .toSorted()
    .map((name) => [name, values[name] ?? ""] as const)
}

export const scriptVariables = (
  spec: ServerSpec,
  install: InstallScript
): Readonly<Record<string, string>> => ({
  BUILD_NUMBER: DEFAULT_BUILD,
  ...Object.fromEntries(variablesRead({ spec, install }))
})

const nameOf = (spec: ServerSpec): string => {
  const { install_script: install, version } = spec.definition
  if (install === null || install.skip_scripts) return version
  const read = variablesRead({ spec, install })
  const made = [scriptHash(spec.definition), read]
  const hash = createHash("sha256").update(JSON.stringify(made)).digest("hex").slice(0, 16)
  return `${version}@${hash}`
}

const known = new WeakMap<ServerSpec, string>()

/** Returns the name of a base: the version and, with a script, `@` and a hash of it and the variables it reads. */
export const baseName = (spec: ServerSpec): string => {
  const name = known.get(spec) ?? nameOf(spec)
  known.set(spec, name)
  return name
}

/** Returns the version in the name of a base with a script. */
export const variantOf = (name: string): string | undefined =>
  name.includes("@") ? name.slice(0, name.indexOf("@")) : undefined

export interface Base {
  readonly folder: string
  readonly generation: string
}

const LINK = ".link-"

/** The unused bases of a version that stay, of those with scripts. */
const VARIANTS_KEPT = 4

export interface BasesOptions {
  readonly baseDir: string
  readonly used: Effect.Effect<ReadonlySet<string>, IoError>
  readonly logOf: (software: string, name: string) => string
}

/** Opens the base folders. `<software>/<name>` links to the newest generation; an old one stays while it is used. */
export const openBases = Effect.fnUntraced(function* ({ baseDir, logOf, used }: BasesOptions) {
  const generations = generationsDir(baseDir)
  yield* makeClosedFolder(generations)
  for (const name of yield* listFolder(generations)) {
    if (name.startsWith(LINK)) yield* removeTree(join(generations, name))
  }
  const pins = new Map<string, number>()
  const collectLock = yield* Semaphore.make(1)
  const linkOf = (software: string, name: string) => join(baseDir, software, name)
  const baseOf = (generation: string): Base => ({ folder: join(generations, generation), generation })
  const newGeneration = (software: string, name: string) => `${software}-${name}-${randomUUID().slice(0, 8)}`

  const setLink = Effect.fnUntraced(function* (link: string, generation: string) {
    const aside = join(generations, `${LINK}${randomUUID()}`)
    yield* ioSync(`create link ${link}`, () =>
      fs.symlinkSync(join("..", basename(generations), generation), aside)
    )
    yield* rename(aside, link)
  })

  const linked = (link: string) =>
    ioSync(link, () => fs.readlinkSync(link)).pipe(
      Effect.map((to) => basename(to)),
      orMissing(undefined)
    )

  const existing = Effect.fnUntraced(function* (base: Base) {
    return (yield* lstatSync(base.folder))?.isDirectory() ? base : undefined
  })

  const current = Effect.fnUntraced(function* (software: string, name: string) {
    const to = yield* linked(linkOf(software, name))
    return to === undefined ? undefined : yield* existing(baseOf(to))
  })

  const pin = (base: Base) =>
    inScope(
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

  /** Makes a folder the current generation, and pins it for the scope. */
  const publish = Effect.fnUntraced(function* (software: string, name: string, made: string) {
    const base = yield* pin(baseOf(newGeneration(software, name)))
    yield* rename(made, base.folder)
    yield* makeFolder(dirname(linkOf(software, name)))
    yield* setLink(linkOf(software, name), base.generation)
    return base
  })

  const currentGenerations = Effect.gen(function* () {
    const found = new Set<string>()
    for (const software of yield* listFolder(baseDir)) {
      if (software.startsWith(".")) continue
      for (const name of yield* listFolder(join(baseDir, software))) {
        const to = yield* linked(linkOf(software, name))
        if (to !== undefined) found.add(to)
      }
    }
    return found
  })

  /** Removes links to unused bases with scripts, except for the newest of each version. */
  const unlinkVariants = Effect.gen(function* () {
    for (const software of yield* listFolder(baseDir)) {
      if (software.startsWith(".")) continue
      const unused: Array<{ readonly name: string; readonly version: string; readonly made: number }> = []
      const variants = (yield* listFolder(join(baseDir, software))).flatMap((name) => {
        const version = variantOf(name)
        return version === undefined ? [] : [{ name, version }]
      })
      if (variants.length <= VARIANTS_KEPT) continue
      const inUse = yield* used
      for (const { name, version } of variants) {
        const base = yield* current(software, name)
        if (base !== undefined && (inUse.has(base.generation) || pins.has(base.generation))) continue
        unused.push({ name, version, made: (yield* lstatSync(linkOf(software, name)))?.mtimeMs ?? 0 })
      }
      unused.sort((a, b) => b.made - a.made)
      for (const [index, { name, version }] of unused.entries()) {
        const newer = unused.slice(0, index).filter((other) => other.version === version)
        if (newer.length < VARIANTS_KEPT) continue
        yield* removeTree(linkOf(software, name))
        yield* removeTree(logOf(software, name))
      }
    }
  })

  /** Removes unused generations. Pinned and published ones are read before and after the used ones, and stay. */
  const collect = Effect.gen(function* () {
    const names = yield* listFolder(generations)
    yield* unlinkVariants
    const pinned = new Set(pins.keys())
    const linked = yield* currentGenerations
    const candidates = names.filter(
      (name) => !name.startsWith(LINK) && !pinned.has(name) && !linked.has(name)
    )
    // The used ones are in the files of every server.
    if (candidates.length === 0) return
    const kept = [yield* used, yield* currentGenerations]
    for (const name of candidates) {
      if (pins.has(name) || kept.some((others) => others.has(name))) continue
      yield* removeTree(join(generations, name))
    }
  }).pipe(
    collectLock.withPermit,
    Effect.catch((error: IoError) => Effect.logWarning(`old base folders are not removed: ${error.message}`))
  )

  return { collect, current, pin, publish }
})
