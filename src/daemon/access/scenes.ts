/** What accesses need of a server: its files, its room, and that nothing is left of the writes of a killed daemon (spec 10.5). */
import * as fs from "node:fs/promises"
import { Clock, Effect, Option } from "effect"
import { type FileRules, isWithin } from "../../contract/domain/Files.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { forEachName } from "../disk/fsio.ts"
import { enterAll, io, isTemporary, lstatIn, within } from "../disk/safePath.ts"
import { likelyKind } from "../files/fileContext.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import { type Scene, undoWrite } from "./changes.ts"
import type { AccessError } from "./refused.ts"
import { Room } from "./room.ts"
import { bytesOf, Site } from "./Site.ts"
import { Unfinished } from "./Unfinished.ts"

/** Returns the files of a server during an access. @param rules default: those of its blueprint */
export const makeSite = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  instance: Instance,
  rules?: FileRules
) {
  const { folder } = instance
  const { spec, status } = instance.file.get()
  // A reboot has unmounted the files of offline servers; no start may change the mounts of others.
  if (!isUp(status)) yield* files.open(folder, spec, likelyKind(spec), "kept")
  return new Site(folder, spec, yield* files.layout(folder, spec), rules ?? spec.definition.files ?? {})
})

/** Age of remnants, in ms. A younger one may be in use. */
const REMNANT_AGE = 24 * 3600 * 1000

/** Removes old temporary files from one folder of the server. */
const removeFrom = Effect.fnUntraced(function* (site: Site, names: ReadonlyArray<string>) {
  const path = `/${names.join("/")}`
  if (site.layout.shared.some(({ parts }) => isWithin(`/${parts.join("/")}`, path))) return
  const { handle } = yield* site.root({ path: "/", parts: [], shared: undefined })
  const folder = yield* enterAll(path, handle, names.map(bytesOf))
  if (Option.isNone(folder)) return
  const remnants: Array<string> = []
  yield* forEachName(`/proc/self/fd/${folder.value.fd}/.`, (name) => {
    if (isTemporary(name)) remnants.push(name)
  })
  const now = yield* Clock.currentTimeMillis
  for (const name of remnants) {
    const found = yield* lstatIn(path, folder.value, name)
    if (Option.isNone(found) || !found.value.isFile() || now - found.value.mtimeMs <= REMNANT_AGE) continue
    yield* io(path, () => fs.unlink(within(folder.value, name)))
  }
}, Effect.scoped)

/** Removes old temporary files from the folders of config files. */
const removeRemnants = (site: Site): Effect.Effect<void> => {
  const folders = Object.keys(site.spec.definition.configs).map((file) =>
    file
      .split("/")
      .slice(0, -1)
      .filter((name) => name !== "" && name !== ".")
      .join("/")
  )
  return Effect.forEach(
    new Set(folders),
    (folder) => Effect.ignore(removeFrom(site, folder === "" ? [] : folder.split("/"))),
    { discard: true }
  )
}

/** What all accesses to a server share, also the tasks that have its files for themselves. */
const kept = new WeakMap<Instance, Pick<Scene, "room" | "unfinished"> & { isTidy: boolean }>()

const keptOf = (files: InstanceFiles["Service"], instance: Instance) => {
  const known = kept.get(instance)
  if (known !== undefined) return known
  const made = { room: new Room(files), unfinished: new Unfinished(instance.folder), isTidy: false }
  kept.set(instance, made)
  instance.accesses.tidy = undoLeft(files, instance)
  return made
}

const notUndone = (error: AccessError) =>
  Effect.logWarning(`an unfinished write was not undone: ${"detail" in error ? error.detail : error._tag}`)

/** Undoes writes that were interrupted, or that a killed daemon has left, or completes them. */
export const undoLeft = (files: InstanceFiles["Service"], instance: Instance): Effect.Effect<void> =>
  Effect.suspend(() =>
    keptOf(files, instance).unfinished.undone((unmade, forget) =>
      Effect.flatMap(makeSite(files, instance), (site) => undoWrite({ site }, unmade, forget))
    )
  ).pipe(Effect.catch(notUndone))

/** Returns a function that makes the scene of an access: what was left of earlier writes is removed before. */
export const makeScenes = (files: InstanceFiles["Service"]) =>
  Effect.fnUntraced(function* (instance: Instance) {
    const site = yield* makeSite(files, instance)
    const known = keptOf(files, instance)
    const scene: Scene = { site, room: known.room, unfinished: known.unfinished }
    if (!known.isTidy) {
      known.isTidy = true
      yield* removeRemnants(site)
    }
    yield* undoLeft(files, instance)
    return scene
  })
