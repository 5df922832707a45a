/**
 * Mounts at the instance folder itself. The base and the server's own files stay visible beside them: instead of the
 * folder, its entries are mounted.
 */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Result } from "effect"
import type { Mount } from "../../domain/Blueprint.ts"
import { type FileDefinition, isHome, targetParts } from "../../domain/filePlan.ts"
import { io } from "../disk/fsio.ts"
import { isAbove, refuse } from "./filePlan.ts"
import { type FileSources, mountSource } from "./sources.ts"

/** The limit of entries of one folder. */
const MAX_ENTRIES = 1000

/** Returns the regular files and folders of a host folder as mounts; `places`: the targets that other entries have. */
const entriesOf = (
  { mode, source, target }: Mount,
  places: ReadonlyArray<ReadonlyArray<string>>,
  sources: FileSources
): Effect.Effect<ReadonlyArray<Mount>, Effect.Error<ReturnType<typeof mountSource>>> =>
  Effect.gen(function* () {
    const { real, what } = yield* mountSource({ source }, sources)
    const entries = yield* io(what, () => fs.readdir(real, { withFileTypes: true }))
    if (entries.length > MAX_ENTRIES) {
      return yield* refuse(
        `state.mounts: ${what} has more than ${MAX_ENTRIES} entries: mount them one by one`
      )
    }
    const mounts = yield* Effect.forEach(
      entries.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      (entry) => {
        const place: Mount = { source: join(source, entry.name), target: join(target, entry.name), mode }
        const parts = Result.getOrElse(targetParts(place.target), () => [])
        // A name that is not UTF-8 cannot be mounted.
        if (entry.name.includes("\ufffd")) return Effect.succeed([])
        const taken = places.some((other) => other.length === parts.length && isAbove(parts, other))
        if (taken || (!entry.isFile() && !entry.isDirectory())) return Effect.succeed([])
        // A mount would be in the way of what another entry has within it.
        const within = entry.isDirectory() && places.some((other) => isAbove(parts, other))
        return within ? entriesOf(place, places, sources) : Effect.succeed([place])
      }
    )
    return mounts.flat()
  })

/** Returns a definition whose mounts at the instance folder are replaced by mounts of their entries. */
export const withHomeEntries = Effect.fnUntraced(function* (
  definition: FileDefinition,
  sources: FileSources
) {
  if (!definition.mounts.some(({ target }) => isHome(target))) return definition
  const { copy, volumes } = definition
  const places = [...volumes, ...definition.mounts, ...copy].flatMap(({ target }) => {
    const parts = targetParts(target)
    return Result.isSuccess(parts) ? [parts.success] : []
  })
  const mounts = yield* Effect.forEach(definition.mounts, (mount) =>
    isHome(mount.target) ? entriesOf({ ...mount, target: "." }, places, sources) : Effect.succeed([mount])
  )
  return { ...definition, mounts: mounts.flat() }
})
