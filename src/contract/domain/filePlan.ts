/** The origin and destination of the files of an instance (spec 4.7), for blueprint checks and instances. */
import { Result } from "effect"
import type { Copy, Mount, Volume } from "./Blueprint.ts"
import type { ServerDefinition } from "./ServerDefinition.ts"

export interface Target {
  readonly parts: ReadonlyArray<string>
  /** As the blueprint writes it. */
  readonly target: string
}

export interface CowVolume extends Target {
  readonly volume: Volume
  /** Index among the blueprint's volumes: the name of the volume's own folder. */
  readonly index: number
}

/** A part that other servers or the host share: volumes with `rw` or `ro`, and mounts. */
export interface Shared extends Target {
  readonly of: { readonly volume: Volume } | { readonly mount: Mount }
  readonly read_only: boolean
}

export interface CopyEntry extends Target {
  readonly copy: Copy
  /** The shared part in which the target lies, if any. */
  readonly within: Shared | undefined
}

export interface FilePlan {
  readonly cow: ReadonlyArray<CowVolume>
  /** Parents before their children. */
  readonly shared: ReadonlyArray<Shared>
  /** Without those that a read-only part would hide. No `parts`: into the instance folder itself. */
  readonly copies: ReadonlyArray<CopyEntry>
}

export type FileDefinition = Pick<ServerDefinition, "volumes" | "mounts" | "copy">

/** An entry that is not possible, or has no effect. */
export interface FileConflict {
  readonly entry: Volume | Mount | Copy
  /** The entry that it conflicts with, unless its own target is invalid. */
  readonly other: Volume | Mount | undefined
  readonly reason: string
  /** Whether a write would reach files that others use. If one entry only hides the other, the later one counts. */
  readonly impossible: boolean
}

/** A config patch whose file can never be written. */
export interface PatchConflict {
  readonly file: string
  readonly other: Volume | Mount
  readonly reason: string
}

export interface HiddenCopy {
  readonly copy: Copy
  readonly reason: string
}

const MAX_NAME_BYTES = 255
const MAX_PARTS = 64

const encoder = new TextEncoder()

/** The limit is in bytes: a UTF-16 code unit takes at most three. */
const isTooLong = (name: string): boolean =>
  name.length * 3 > MAX_NAME_BYTES && encoder.encode(name).length > MAX_NAME_BYTES

/** Returns the names that a relative path consists of; fails with the reason, in words that follow the path. */
export const pathParts = (path: string): Result.Result<ReadonlyArray<string>, string> => {
  if (path.includes("\0")) return Result.fail("contains a NUL character")
  if (path.startsWith("/")) return Result.fail("is absolute")
  const parts = path.split("/").filter((part) => part !== "" && part !== ".")
  if (parts.length === 0) return Result.fail("names no file")
  if (parts.includes("..")) return Result.fail("contains `..`")
  if (parts.some(isTooLong)) {
    return Result.fail(`has a name of more than ${MAX_NAME_BYTES} bytes`)
  }
  return parts.length > MAX_PARTS
    ? Result.fail(`is more than ${MAX_PARTS} names deep`)
    : Result.succeed(parts)
}

const CONTAINER_HOME = "/home/container"

const belowHome = (target: string): boolean =>
  target === CONTAINER_HOME || target.startsWith(`${CONTAINER_HOME}/`)

/** Returns a target as a path relative to the instance folder; an absolute one is as containers see it. */
const relativeTarget = (target: string): string =>
  (belowHome(target) ? target.slice(CONTAINER_HOME.length) : target).replace(/^\/+/, "")

/** Returns the place of a target in the instance folder. Fails with the reason. */
export const targetParts = (target: string): Result.Result<ReadonlyArray<string>, string> =>
  pathParts(relativeTarget(target))

/** Whether a target is the instance folder itself: `.`, `/`, `/home/container`. */
export const isHome = (target: string): boolean => /^(?:\.?(?:\/|$))*$/.test(relativeTarget(target))

/** Folders of a container that a mount must not hide. */
const SYSTEM_FOLDERS: ReadonlySet<string> = new Set(
  "bin boot dev etc home lib lib32 lib64 libx32 opt proc root run sbin srv sys tmp usr var".split(" ")
)
const KERNEL_FOLDERS: ReadonlySet<string> = new Set(["dev", "proc", "sys"])

/** Returns where else a container sees a mount, unless the target is relative, below home or a system folder. */
export const containerPath = ({ target }: Mount): string | undefined => {
  if (!target.startsWith("/") || belowHome(target)) return undefined
  const parts = pathParts(relativeTarget(target))
  if (Result.isFailure(parts)) return undefined
  const [top = ""] = parts.success
  const system = KERNEL_FOLDERS.has(top) || (parts.success.length === 1 && SYSTEM_FOLDERS.has(top))
  return system ? undefined : `/${parts.success.join("/")}`
}

/** Whether one place is the other or above it. */
export const isAbove = (above: ReadonlyArray<string>, parts: ReadonlyArray<string>): boolean =>
  above.length <= parts.length && above.every((part, index) => parts[index] === part)

interface Placed extends Target {
  readonly entry: Volume | Mount | Copy
  readonly name: string
}

/** A volume or mount. It takes its place for itself; only `cow` volumes may lie over each other. */
interface Taker extends Placed {
  readonly entry: Volume | Mount
  readonly shared: Shared | undefined
}

/** Whether both entries bring the same files. */
const isSame = (a: Volume | Mount, b: Volume | Mount): boolean =>
  "name" in a === "name" in b && a.source === b.source && a.mode === b.mode

const keyOf = (parts: ReadonlyArray<string>): string => parts.join("/")

/** Returns the uppermost of `places` that is a place or above it. */
const holderOf = <A>(places: ReadonlyMap<string, A>, parts: ReadonlyArray<string>): A | undefined => {
  let key = ""
  for (const part of parts) {
    key = key === "" ? part : `${key}/${part}`
    const found = places.get(key)
    if (found !== undefined) return found
  }
  return undefined
}

const shown = (path: string): string => `\`${path.length > 80 ? `${path.slice(0, 80)}...` : path}\``

const volumeName = ({ mode, name }: Volume): string => `volume ${shown(name)} (${mode})`
const mountName = ({ mode, source }: Mount): string => `mount ${shown(source)} (${mode})`

/** Reads the targets of a definition. A mount at the folder itself is left to daemon/files/fileContext.ts. */
export const planFiles = (
  definition: FileDefinition
): {
  readonly plan: FilePlan
  readonly conflicts: ReadonlyArray<FileConflict>
  readonly hidden: ReadonlyArray<HiddenCopy>
} => {
  const conflicts: Array<FileConflict> = []
  const placed = <A extends Volume | Mount | Copy>(
    entry: A,
    name: string
  ): (Placed & { entry: A }) | undefined => {
    const parts = targetParts(entry.target)
    if (Result.isSuccess(parts)) return { entry, name, target: entry.target, parts: parts.success }
    const reason = `the target ${shown(entry.target)} of ${name} ${parts.failure}`
    conflicts.push({ entry, other: undefined, reason, impossible: true })
    return undefined
  }

  const cow: Array<CowVolume> = []
  const takers: Array<Taker> = []
  for (const [index, volume] of definition.volumes.entries()) {
    const at = placed(volume, volumeName(volume))
    if (at === undefined) continue
    const { parts, target } = at
    const shared = { of: { volume }, target, parts, read_only: volume.mode === "ro" }
    takers.push({ ...at, shared: volume.mode === "cow" ? undefined : shared })
    if (volume.mode === "cow") cow.push({ volume, index, target, parts })
  }
  for (const mount of definition.mounts) {
    if (isHome(mount.target)) continue
    const at = placed(mount, mountName(mount))
    if (at === undefined) continue
    const { parts, target } = at
    takers.push({ ...at, shared: { of: { mount }, target, parts, read_only: mount.mode === "ro" } })
  }

  const taken = new Map<string, Taker>()
  const places = new Map<string, Taker & { readonly shared: Shared }>()
  for (const taker of takers) {
    const { entry, name, parts, shared, target } = taker
    const before = taken.get(keyOf(parts))
    const apart = shared !== undefined || before?.shared !== undefined
    if (before !== undefined && apart && !isSame(before.entry, entry)) {
      const reason = `the target ${shown(target)} of ${name} is that of ${before.name}, too: only \`cow\` volumes can have one together`
      conflicts.push({ entry, other: before.entry, reason, impossible: false })
    }
    if (before === undefined || shared !== undefined) taken.set(keyOf(parts), taker)
    if (shared !== undefined) places.set(keyOf(parts), { ...taker, shared })
  }

  const visible = cow.filter(({ parts }) => !places.has(keyOf(parts)))
  const shared = [...places.values()].sort((a, b) => a.parts.length - b.parts.length)
  const hidden: Array<HiddenCopy> = []
  const copies = definition.copy.flatMap((copy): ReadonlyArray<CopyEntry> => {
    const { source, target } = copy
    if (isHome(target)) return [{ copy, target, parts: [], within: undefined }]
    const at = placed(copy, `copy ${shown(source)}`)
    if (at === undefined) return []
    const holder = holderOf(places, at.parts)
    if (holder?.shared.read_only !== true) {
      return [{ copy, target, parts: at.parts, within: holder?.shared }]
    }
    const reason = `copy ${shown(source)} has no effect: its target ${shown(target)} lies in ${shown(holder.target)} of ${holder.name}, which is read-only`
    hidden.push({ copy, reason })
    return []
  })
  const refuseWithin = ({ entry, name, parts, target }: Placed) => {
    const holder = holderOf(places, parts)
    if (holder === undefined || holder.entry === entry) return
    const reason = `the target ${shown(target)} of ${name} lies in ${shown(holder.target)} of ${holder.name}, which is shared`
    conflicts.push({ entry, other: holder.entry, reason, impossible: true })
  }
  for (const { parts, target, volume } of visible) {
    refuseWithin({ entry: volume, name: volumeName(volume), parts, target })
  }
  for (const one of shared) refuseWithin(one)

  const plan = {
    cow: visible,
    shared: shared.map((one) => one.shared),
    copies
  }
  return { plan, conflicts, hidden }
}

const entryOf = ({ of }: Shared): { readonly entry: Volume | Mount; readonly name: string } =>
  "volume" in of
    ? { entry: of.volume, name: volumeName(of.volume) }
    : { entry: of.mount, name: mountName(of.mount) }

/** Returns the files that lie where no write is possible. */
export const patchConflicts = (plan: FilePlan, files: Iterable<string>): ReadonlyArray<PatchConflict> => {
  const closed = new Map(
    plan.shared.filter(({ read_only }) => read_only).map((shared) => [keyOf(shared.parts), shared])
  )
  const conflicts: Array<PatchConflict> = []
  for (const file of files) {
    const parts = pathParts(file)
    const holder = Result.isSuccess(parts) ? holderOf(closed, parts.success) : undefined
    if (holder === undefined) continue
    const { entry, name } = entryOf(holder)
    const reason = `the file ${shown(file)} lies in ${shown(holder.target)} of ${name}, which is read-only: no patch can change it`
    conflicts.push({ file, other: entry, reason })
  }
  return conflicts
}
