/** What the methods of `InstanceFiles` share, and the mounts of these files. */
import * as fs from "node:fs/promises"
import { join, sep } from "node:path"
import { Effect, Result, Semaphore } from "effect"
import type { Copy, Mount } from "../../contract/domain/Blueprint.ts"
import { type FileDefinition, isAbove, isHome, targetParts } from "../../contract/domain/filePlan.ts"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { closeFolder, type IoError, io, makePassage } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copiesOf } from "./copyInside.ts"
import type { DiskLimits } from "./diskLimits.ts"
import type { FileLayout } from "./fileLayout.ts"
import { mounterOf, unmountBelow } from "./mounts.ts"
import { type LayerFolders, mountTree } from "./overlayTree.ts"
import { chownParts, chownTree, foreignParts, ownerFor } from "./owners.ts"
import {
  instanceFolder,
  mountedFolders,
  openShared,
  type SharedOwner,
  share,
  sharingFor
} from "./sharedFiles.ts"
import { entriesOf, type FileSources, filePlan, mountSource, type Source } from "./sources.ts"
import type { Storage } from "./storageProbe.ts"
import { readTreeRecord, TREE, type TreeRecord } from "./treeRecord.ts"

export const makeVolumeWriters = ({ volumesDir }: { readonly volumesDir: string }) => {
  const known = new Map<string, ServerSpec>()

  const writersOf = Effect.fnUntraced(function* (folder: string, real: string) {
    const others = [...known].filter(([other]) => other !== folder)
    const found = yield* Effect.filter(others, ([, { definition }]) =>
      Effect.map(writtenVolumes(definition.volumes), (paths) => paths.includes(real))
    )
    return found.map(([, { id }]) => id)
  })

  const writtenVolumes = Effect.fnUntraced(function* (volumes: ServerSpec["definition"]["volumes"]) {
    const names = new Set(volumes.flatMap(({ mode, source }) => (mode === "rw" ? [source] : [])))
    const found = yield* Effect.forEach(names, (source) =>
      io(source, () => fs.realpath(join(volumesDir, source))).pipe(Effect.orElseSucceed(() => undefined))
    )
    return found.filter((path) => path !== undefined)
  })

  /** Returns whether to copy a volume: one that a server of this node writes must not change while it is a layer. */
  const isWritten = Effect.gen(function* () {
    const found = yield* writtenVolumes([...known.values()].flatMap((spec) => spec.definition.volumes))
    const parts = found.map((path) => path.split(sep))
    return ({ real }: Source) => {
      const own = real.split(sep)
      return parts.some((one) => isAbove(one, own) || isAbove(own, one))
    }
  })

  return {
    writersOf,
    isWritten,
    register: (folder: string, spec: ServerSpec) => {
      known.set(folder, spec)
    },
    forget: (folder: string) => {
      known.delete(folder)
    }
  }
}
type VolumeWriters = ReturnType<typeof makeVolumeWriters>

const MAX_ENTRIES = 1000

/** Returns the regular files and folders of a host folder as mounts; `places`: the targets that other entries have. */
const mountsOf = (
  { mode, source, target }: Mount,
  places: ReadonlyArray<ReadonlyArray<string>>,
  sources: FileSources
): Effect.Effect<ReadonlyArray<Mount>, Effect.Error<ReturnType<typeof mountSource>>> =>
  Effect.gen(function* () {
    const { real, what } = yield* mountSource({ source }, sources)
    const entries = yield* entriesOf(real, what, MAX_ENTRIES, "state.mounts", "mount them one by one")
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
        return within ? mountsOf(place, places, sources) : Effect.succeed([place])
      }
    )
    return mounts.flat()
  })

/** Returns a definition whose mounts at the instance folder are replaced by mounts of their entries. */
const withHomeEntries = Effect.fnUntraced(function* (definition: FileDefinition, sources: FileSources) {
  if (!definition.mounts.some(({ target }) => isHome(target))) return definition
  const { copy, volumes } = definition
  const places = [...volumes, ...definition.mounts, ...copy].flatMap(({ target }) => {
    const parts = targetParts(target)
    return Result.isSuccess(parts) ? [parts.success] : []
  })
  const mounts = yield* Effect.forEach(definition.mounts, (mount) =>
    isHome(mount.target) ? mountsOf({ ...mount, target: "." }, places, sources) : Effect.succeed([mount])
  )
  return { ...definition, mounts: mounts.flat() }
})

/** Returns the runtime of a server as its definition suggests; the start decides. */
export const likelyKind = ({ definition }: ServerSpec): RuntimeKind =>
  definition.image !== "" && definition.runtimes.includes("docker") ? "docker" : "process"

export const makePlanOf = (sources: FileSources) =>
  Effect.fnUntraced(function* ({ definition }: ServerSpec, when?: NonNullable<Copy["when"]>) {
    const copy = when === undefined ? [] : yield* copiesOf(definition.copy, when, sources)
    const given = yield* withHomeEntries({ ...definition, copy }, sources)
    return yield* Effect.fromResult(filePlan(given))
  })

/** Puts the rest of a part of a backup in place (spec 12.5), and removes {@link PART}. */
export type FinishPart = (
  folder: string,
  spec: ServerSpec,
  layout: FileLayout
) => Effect.Effect<void, IoError>

/** What the methods of `InstanceFiles` share, once the features of the file system are known. */
export interface FileContext {
  readonly at: LayerFolders
  readonly storage: Storage
  readonly limits: DiskLimits
  readonly writers: VolumeWriters
  readonly planOf: ReturnType<typeof makePlanOf>
  /** The user of containers, who owns the volumes that servers write. */
  readonly volumesUser: RunUser
  readonly permits: ReturnType<typeof makePermits>
  readonly finishPart: FinishPart
}

export const makePermits = () => ({
  /** Bounds the servers whose files are mounted at a time. */
  mount: Semaphore.makeUnsafe(4),
  /** A separate limit: a server whose files are ready does not wait for changes of owners. */
  chown: Semaphore.makeUnsafe(4)
})

export const sharedOwner = (
  { storage, volumesUser, writers }: FileContext,
  folder: string,
  user: RunUser | undefined
): SharedOwner => ({
  owner: ownerFor(user),
  hasOwnUid: user?.own === true,
  volumes: volumesUser,
  mapped: storage.mapped.binds,
  writers: (real) => writers.writersOf(folder, real)
})

/**
 * Mounts the files of a server, and returns the shared folders among them.
 * @param made the record of layers that were just made for the owner, with nothing mounted
 */
export const present = Effect.fnUntraced(function* (
  context: FileContext,
  folder: string,
  spec: ServerSpec,
  kind: RuntimeKind,
  user: RunUser | undefined,
  made?: TreeRecord
) {
  const { at, limits, permits, planOf, storage } = context
  const { binds, mapped } = storage
  yield* limits.confirm(folder, spec)
  const plan = yield* planOf(spec)
  const to = sharedOwner(context, folder, user)
  const { hasOwnUid, owner } = to
  const files = instanceFolder(folder)
  const tree = join(folder, TREE)
  const record = made ?? (yield* readTreeRecord(tree))
  const foreign = owner === undefined || made !== undefined ? [] : yield* foreignParts(folder, files, owner)
  if (owner !== undefined && foreign.length > 0) {
    yield* unmountBelow(folder)
    yield* permits.chown.withPermit(chownParts(foreign, owner))
  }
  if (hasOwnUid) yield* makePassage(folder)
  if (record === undefined && !binds) {
    if (hasOwnUid) yield* closeFolder(files)
    return yield* share(files, yield* openShared(plan, at.sources, to), sharingFor(kind), to)
  }
  if (made === undefined) {
    const there = yield* mountedFolders(files, record, plan, at.sources, to)
    if (there !== undefined) return there
    yield* unmountBelow(folder)
  }
  return yield* Effect.gen(function* () {
    const shared = yield* openShared(plan, at.sources, to)
    const mounter = mounterOf(mapped.layers || mapped.binds)
    if (record !== undefined) {
      yield* mountTree(files, tree, record, { at, owner, mapped: mapped.layers }, mounter)
      // Without mapping, the base is copied for the server.
      if (!mapped.layers && owner !== undefined && owner.uid !== 0) yield* chownTree(files, owner)
    }
    if (hasOwnUid) yield* closeFolder(files)
    return yield* share(files, shared, binds ? mounter : sharingFor(kind), to)
  }).pipe(
    Effect.scoped,
    permits.mount.withPermit,
    Effect.onError(() => Effect.ignore(unmountBelow(folder)))
  )
}, Effect.scoped)
