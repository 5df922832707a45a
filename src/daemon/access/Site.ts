/**
 * The files of one server during one access: where each path lies, and what the rules of the blueprint allow there
 * (spec 10.2, 10.4). All paths are walked by `disk/safePath.ts`, from an open root.
 */
import { type BigIntStats, constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Array as Arr, Effect, Option, type Scope } from "effect"
import {
  type FileEntry,
  type FileRules,
  isWithin,
  nameBytes,
  parentOf,
  shownName,
  whyNoPath
} from "../../contract/domain/Files.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { IoError } from "../disk/fsio.ts"
import {
  enter,
  enterAll,
  io,
  isTemporary,
  lstatIn,
  type Name,
  open,
  openRoot,
  type PathRefused,
  READ
} from "../disk/safePath.ts"
import type { FileLayout, SharedPart } from "../files/fileLayout.ts"
import { pathPatterns } from "./patterns.ts"
import { conflict, forbidden, noSuchPath, notAPath } from "./refused.ts"

type WalkError = FileRefused | PathRefused | IoError

/** The type of an overlay in `statfs`. */
const OVERLAYFS = 0x794c7630

/** A path that an access may reach. */
export interface Place {
  /** As callers see it. */
  readonly path: string
  /** The names below {@link root}; none for the root itself. */
  readonly parts: ReadonlyArray<Buffer>
  readonly shared: SharedPart | undefined
}

export interface Located {
  readonly folder: fs.FileHandle
  readonly name: Buffer
}

const targetOf = ({ parts }: SharedPart) => `/${parts.join("/")}`

export const bytesOf = (name: string): Buffer => Buffer.from(nameBytes(name))

/** Checks a path and returns its names and its one spelling, which rules are compared with. */
const namesOf = (path: string): Effect.Effect<ReadonlyArray<Buffer>, FileRefused> => {
  const why = whyNoPath(path)
  if (why !== undefined) return Effect.fail(notAPath(path, why))
  return Effect.succeed(path === "/" ? [] : path.slice(1).split("/").map(bytesOf))
}

export class Site {
  readonly folder: string
  readonly spec: ServerSpec
  readonly layout: FileLayout
  readonly #rules: FileRules
  readonly #isDenied: (path: string) => boolean
  readonly #isReadOnly: (path: string) => boolean

  constructor(folder: string, spec: ServerSpec, layout: FileLayout, rules: FileRules) {
    this.folder = folder
    this.spec = spec
    this.layout = layout
    this.#rules = rules
    this.#isDenied = pathPatterns(rules.deny ?? [])
    this.#isReadOnly = pathPatterns(rules.read_only ?? [])
  }

  /** Whether rules of the blueprint may forbid something within a folder. */
  get hasPatterns(): boolean {
    return (this.#rules.deny ?? []).length > 0 || (this.#rules.read_only ?? []).length > 0
  }

  #sharedOf(path: string): SharedPart | undefined {
    return this.layout.shared.findLast((part) => isWithin(targetOf(part), path))
  }

  /** Whether callers must not see a path. */
  isHidden(path: string): boolean {
    const isMount = this.#sharedOf(path)?.layer === "mount"
    return (isMount && this.#rules.mounts !== "read") || this.#isDenied(path)
  }

  /** Returns why a path cannot be written, if so. */
  whyNotWritable(path: string): string | undefined {
    if (this.isHidden(path)) return "callers may not reach it"
    if (this.#isReadOnly(path)) return "callers may not write it"
    const shared = this.#sharedOf(path)
    if (shared === undefined) return undefined
    if (shared.layer === "mount") return "mounts of the host are not written"
    if (this.#rules.volumes !== "write") return "callers may not write volumes"
    return shared.read_only ? "the volume is read-only for the server" : undefined
  }

  /** The volumes, mounts and overlays at or below a path, which stay where they are. */
  fixedWithin(path: string): string | undefined {
    const overlays = this.layout.written
      .map(({ target }) => `/${target.join("/")}`)
      .filter((it) => it !== "/")
    return [...this.sharedTargets, ...overlays].find((target) => isWithin(path, target))
  }

  /** Returns the place of a path. @error FileRefused 403 the rules hide it, 422 it is no path */
  readonly place = Effect.fnUntraced(function* (this: Site, given: string) {
    const names = yield* namesOf(given)
    const path = `/${names.map(shownName).join("/")}`
    if (names.some((name) => isTemporary(name.toString("latin1")))) return yield* noSuchPath(path)
    if (this.isHidden(path)) return yield* forbidden(path, "callers may not read it")
    const shared = this.#sharedOf(path)
    return { path, parts: names.slice(shared?.parts.length ?? 0), shared } satisfies Place
  })

  /** As {@link place}, of a path that is written. */
  readonly writable = Effect.fnUntraced(function* (this: Site, given: string) {
    const place = yield* this.place(given)
    const why = this.whyNotWritable(place.path)
    if (why !== undefined) return yield* forbidden(place.path, why)
    if (place.path === "/") return yield* conflict("/", "it is the folder of the server")
    return place
  })

  /** Whether a volume or mount lies at a path. */
  isSharedTarget(path: string): boolean {
    return this.layout.shared.some((part) => targetOf(part) === path)
  }

  /** The paths of volumes and mounts. */
  get sharedTargets(): ReadonlyArray<string> {
    return this.layout.shared.map(targetOf)
  }

  /** As {@link place}, of a path that exists. */
  readonly existing = Effect.fnUntraced(function* (this: Site, given: string) {
    const place = yield* this.place(given)
    if (place.parts.length === 0) return place
    const { folder, name } = yield* this.parent(place)
    return Option.isNone(yield* lstatIn(place.path, folder, name)) ? yield* noSuchPath(place.path) : place
  }, Effect.scoped)

  /** Opens the folder from which a place is walked; a file, if the shared part is one. */
  readonly root = Effect.fnUntraced(function* (this: Site, { path, shared }: Place) {
    if (shared !== undefined) {
      const { folder, handle } = yield* shared.open
      return {
        handle: yield* open(path, `/proc/self/fd/${handle.fd}`, READ & ~constants.O_NOFOLLOW),
        isFolder: folder
      }
    }
    const handle = yield* openRoot(this.layout.root)
    if (this.layout.written.length > 0) {
      const { type } = yield* io(path, () => fs.statfs(`/proc/self/fd/${handle.fd}/.`))
      // A write below an overlay that is being unmounted would be lost.
      if (type !== OVERLAYFS)
        return yield* new IoError({ code: "EBUSY", message: "the files of the server are not mounted" })
    }
    return { handle, isFolder: true }
  })

  /** Opens the folder of a place. `onMade`: missing folders are made. */
  readonly parent = Effect.fnUntraced(function* (
    this: Site,
    place: Place,
    onMade?: (folder: fs.FileHandle, name: Name) => void
  ): Effect.fn.Return<Located, WalkError, Scope.Scope> {
    const name = place.parts.at(-1)
    if (name === undefined) return yield* conflict(place.path, "it is a shared file or folder of its own")
    const { handle } = yield* this.root(place)
    const folder = yield* enterAll(place.path, handle, place.parts.slice(0, -1), onMade)
    if (Option.isNone(folder)) return yield* noSuchPath(parentOf(place.path))
    return { folder: folder.value, name }
  })

  /** Opens the folders on the way to a place, from its root to the deepest one that exists. */
  readonly foldersTo = Effect.fnUntraced(function* (
    this: Site,
    place: Place
  ): Effect.fn.Return<Arr.NonEmptyReadonlyArray<fs.FileHandle>, WalkError, Scope.Scope> {
    const { handle, isFolder } = yield* this.root(place)
    if (!isFolder) return yield* conflict(place.path, "it is a file, not a folder")
    const folders = Arr.of(handle)
    for (const name of place.parts) {
      const next = yield* enter(place.path, Arr.lastNonEmpty(folders), name)
      if (Option.isNone(next)) break
      folders.push(next.value)
    }
    return folders
  })

  /** Opens the folder at a place. */
  readonly folderAt = Effect.fnUntraced(function* (
    this: Site,
    place: Place
  ): Effect.fn.Return<fs.FileHandle, WalkError, Scope.Scope> {
    const { handle, isFolder } = yield* this.root(place)
    if (!isFolder) return yield* conflict(place.path, "it is a file, not a folder")
    const folder = yield* enterAll(place.path, handle, place.parts)
    if (Option.isNone(folder)) return yield* noSuchPath(place.path)
    return folder.value
  })

  /** Returns a function that finds the layer of an entry of a folder by what the server has written there. */
  readonly layersIn = Effect.fnUntraced(function* (this: Site, { parts, shared }: Place) {
    if (shared !== undefined) return () => Effect.succeed(shared.layer)
    const written = this.layout.written.findLast(({ target }) =>
      target.every((part, index) => parts[index]?.equals(Buffer.from(part)))
    )
    const { copied } = this.layout
    if (written === undefined && copied === undefined) return () => Effect.succeed("server" as const)
    const root = written?.upper ?? copied?.base ?? ""
    const below = parts.slice(written?.target.length ?? 0)
    const folder = yield* openRoot(root).pipe(
      Effect.flatMap((top) => enterAll(root, top, below)),
      // A link or file of the lower layer, or of the server, is in place of the folder.
      Effect.catch(() => Effect.succeed(Option.none<fs.FileHandle>()))
    )
    return (name: Buffer, stats: Stats | BigIntStats): Effect.Effect<FileEntry["layer"], IoError> => {
      if (Option.isNone(folder)) return Effect.succeed(written === undefined ? "server" : "base")
      return Effect.map(lstatIn(root, folder.value, name), (found) => {
        if (written !== undefined) return Option.isSome(found) ? "server" : "base"
        return Option.isSome(found) && isCopy(stats, found.value, copied?.since ?? 0) ? "base" : "server"
      })
    }
  })
}

/** Whether a file is still what was copied from the base. Times of copies are those of the copying. */
export const isCopy = (stats: Stats | BigIntStats, base: Stats, since: number): boolean =>
  stats.isDirectory() === base.isDirectory() &&
  stats.isSymbolicLink() === base.isSymbolicLink() &&
  (stats.isDirectory() || Number(stats.size) === base.size) &&
  Number(stats.mtimeMs) <= since
