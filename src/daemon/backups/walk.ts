/** The walk through the files of a server for a backup: all of its own, whatever callers may see. */
import * as sync from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, Option, type Scope } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import { inScope } from "../../shared/work/inScope.ts"
import type { AccessError } from "../access/refused.ts"
import { unprocessable } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { entriesIn } from "../access/trees.ts"
import { MAX_PATH } from "../archives/ArchiveReader.ts"
import { IoError, ioSync, toIoError } from "../disk/fsio.ts"
import {
  enter,
  io,
  isTemporary,
  lstatIn,
  type Name,
  type PathRefused,
  READ,
  within
} from "../disk/safePath.ts"

/** Folders that are open at a time. */
const MAX_DEPTH = 250
/** The longest path that a restore reads, in bytes. */
const LONGEST = MAX_PATH - "./".length
/** Files of a folder that are looked at, opened and read at a time: each of these waits for a thread. */
const FILES = 8

/** An entry of the walk, in an open folder. */
export interface Walked {
  readonly path: string
  /** The path as bytes, without a slash at its beginning; empty for the folder of the server. */
  readonly name: Buffer
  readonly stats: sync.Stats
  /** Opens a file, and returns its descriptor; fails as `hasChanged` says if it is none any more. */
  readonly open: Effect.Effect<number, PathRefused | IoError, Scope.Scope>
  /** Reads the target of a link. */
  readonly target: Effect.Effect<Buffer, IoError>
}

type Use = (entry: Walked) => Effect.Effect<void, AccessError, Scope.Scope>

/** Whether an entry was replaced or removed while it was looked at. */
export const hasChanged = (error: AccessError): boolean =>
  error._tag === "PathRefused" ||
  (error._tag === "IoError" && (error.code === "ENOENT" || error.code === "EINVAL"))

const gone = (path: string): Effect.Effect<never, PathRefused | IoError> =>
  Effect.fail(new IoError({ code: "ENOENT", message: path }))

/** Waits for a call with a callback: a file handle of Node.js waits for a thread once more to be closed. */
export const called = <A>(
  what: string,
  run: (done: (error: Error | null, value: A) => void) => void
): Effect.Effect<A, IoError> =>
  Effect.uninterruptible(
    Effect.callback((resume) =>
      run((error, value) =>
        resume(error === null ? Effect.succeed(value) : Effect.fail(toIoError(what, error)))
      )
    )
  )

/** Opens a file whose type was looked at before: opening a device may have side effects. */
const openFile = Effect.fnUntraced(function* (path: string, real: Name) {
  const fd = yield* inScope(
    called<number>(path, (done) => sync.open(real, READ, done)),
    (opened) => Effect.sync(() => sync.closeSync(opened))
  ).pipe(
    Effect.catchIf(
      ({ code }) => code === "ELOOP" || code === "ENXIO",
      () => gone(path)
    )
  )
  const stats = yield* ioSync(path, () => sync.fstatSync(fd))
  return stats.isFile() ? fd : yield* gone(path)
})

/** Visits the entries of a server, folders before what is in them, and nothing that is excluded. Volumes and mounts are not entered. */
export const walkServer = Effect.fnUntraced(function* (
  site: Site,
  isExcluded: (path: string) => boolean,
  /** Runs for several files at a time. */
  use: Use,
  onChanged: () => void
) {
  const own = new Set(site.layout.written.map(({ target }) => `/${target.join("/")}`))
  const { handle: root } = yield* site.root(yield* site.place("/"))
  const stats = yield* io("/", () => root.stat())

  const enterFolder = (
    { name, path }: Pick<Walked, "name" | "path">,
    folder: fs.FileHandle,
    depth: number
  ): Effect.Effect<void, AccessError> => {
    const names = new Set<string>()
    return entriesIn(
      folder,
      (entry) => {
        const shown = shownName(entry.name)
        const child = childPath(path, shown)
        if (isTemporary(shown) || site.isSharedTarget(child) || isExcluded(child)) return Effect.void
        const key = entry.name.toString("latin1")
        // A file system may return a name again that is renamed meanwhile.
        if (names.has(key)) return Effect.void
        names.add(key)
        const bytes = name.length === 0 ? entry.name : Buffer.concat([name, Buffer.from("/"), entry.name])
        return visit({ path: child, name: bytes }, folder, entry.name, depth).pipe(
          Effect.catchIf(hasChanged, () => Effect.sync(onChanged))
        )
      },
      FILES
    )
  }

  const visit = (
    at: Pick<Walked, "name" | "path">,
    folder: fs.FileHandle,
    name: Buffer,
    depth: number
  ): Effect.Effect<void, AccessError> =>
    Effect.gen(function* () {
      const { path } = at
      const found = yield* lstatIn(path, folder, name)
      if (Option.isNone(found)) return yield* gone(path)
      const entry = found.value
      // Another mount is not of the server.
      if (entry.isDirectory() && entry.dev !== stats.dev && !own.has(path)) return
      if (at.name.length > LONGEST)
        return yield* unprocessable(
          `${path.slice(0, 200)}...: its path is longer than ${LONGEST} bytes`,
          "Move it up, or shorten the names of its folders."
        )
      yield* use({
        ...at,
        stats: entry,
        open: openFile(path, within(folder, name)),
        target: io(path, () => fs.readlink(within(folder, name), { encoding: "buffer" }))
      })
      if (!entry.isDirectory()) return
      if (depth >= MAX_DEPTH)
        return yield* unprocessable(
          `${path.slice(0, 200)}: folders are nested deeper than ${MAX_DEPTH}`,
          "Move what is in it up, or delete it."
        )
      const inside = yield* enter(path, folder, name)
      if (Option.isSome(inside)) yield* enterFolder(at, inside.value, depth + 1)
    }).pipe(Effect.scoped)

  const none = Effect.die("the folder of the server is neither file nor link")
  yield* use({ path: "/", name: Buffer.alloc(0), stats, open: none, target: none })
  yield* enterFolder({ path: "/", name: Buffer.alloc(0) }, root, 0)
}, Effect.scoped)
