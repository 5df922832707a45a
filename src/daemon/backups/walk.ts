/**
 * The walk through the files of a server for a backup: all of its own, whatever callers may see. Its calls block until the
 * disk answers, so the thread of `packWorker.ts` makes them.
 */
import * as fs from "node:fs"
import { Effect } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { pathPatterns } from "../access/patterns.ts"
import { unprocessable } from "../access/refused.ts"
import { MAX_PATH } from "../archives/ArchiveReader.ts"
import { IoError, ioSync } from "../disk/fsio.ts"
import { FOLDER, isTemporary, type Name, READ, within } from "../disk/safePath.ts"

/** Folders that are open at a time. */
const MAX_DEPTH = 250
/** The longest path that a restore reads, in bytes. */
const LONGEST = MAX_PATH - "./".length
/** Entries of a folder that are read at a time. */
const BATCH = 1000

/** The files that are walked. */
export interface Walk {
  /** The open folder of the server. */
  readonly fd: number
  /** Paths of volumes and mounts, which are not entered. */
  readonly shared: ReadonlyArray<string>
  /** Paths of the folders of the server itself that are mounts. */
  readonly own: ReadonlyArray<string>
  /** Patterns of paths that are left out. */
  readonly exclude: ReadonlyArray<string>
}

/** An entry of the walk. */
export interface Walked {
  readonly path: string
  /** The path as bytes, without a slash at its beginning; empty for the folder of the server. */
  readonly name: Buffer
  /** The path in the open folder above it. */
  readonly real: Name
  readonly stats: fs.Stats
}

type WalkError = FileRefused | IoError
type Use = (entry: Walked) => Effect.Effect<void, WalkError>
type At = Pick<Walked, "name" | "path">

const gone = (path: string) => new IoError({ code: "ENOENT", message: path })

/** Whether an entry was replaced or removed while it was looked at. */
const hasChanged = ({ code }: IoError): boolean =>
  code === "ENOENT" || code === "EINVAL" || code === "ELOOP" || code === "ENOTDIR" || code === "ENXIO"

const opened = <A, E>(
  path: string,
  open: () => number,
  use: (fd: number) => Effect.Effect<A, E>
): Effect.Effect<A, E | IoError> =>
  Effect.acquireUseRelease(ioSync(path, open), use, (fd) => Effect.sync(() => fs.closeSync(fd)))

/** Opens a file whose type was looked at before: opening a device may have side effects. */
export const withFile = <E>(
  { path, real }: Walked,
  use: (fd: number, stats: fs.Stats) => Effect.Effect<void, E>
): Effect.Effect<void, E | IoError> =>
  opened(
    path,
    () => fs.openSync(real, READ),
    (fd) =>
      Effect.flatMap(
        ioSync(path, () => fs.fstatSync(fd)),
        (stats): Effect.Effect<void, E | IoError> => (stats.isFile() ? use(fd, stats) : gone(path))
      )
  )

// The types of Node.js do not have the encoding `buffer`, with which names are buffers.
const OPEN_DIR = { encoding: "buffer" as BufferEncoding, bufferSize: BATCH }

const entriesIn = (path: string, fd: number, use: (name: Buffer) => Effect.Effect<void, WalkError>) =>
  Effect.acquireUseRelease(
    ioSync(path, () => fs.opendirSync(`/proc/self/fd/${fd}/.`, OPEN_DIR)),
    (dir) =>
      Effect.gen(function* () {
        for (;;) {
          const entry = yield* ioSync(path, () => dir.readSync())
          if (entry === null) return
          // the encoding of `OPEN_DIR` is `buffer`
          yield* use(entry.name as unknown as Buffer)
        }
      }),
    (dir) => Effect.sync(() => dir.closeSync())
  )

/** Visits the entries of a server, folders before what is in them, and nothing that is excluded. Volumes and mounts are not entered. */
export const walkServer = Effect.fnUntraced(function* (walk: Walk, use: Use, onChanged: () => void) {
  const isExcluded = pathPatterns(walk.exclude)
  const [own, shared] = [new Set(walk.own), new Set(walk.shared)]
  const stats = yield* ioSync("/", () => fs.fstatSync(walk.fd))

  const enterFolder = ({ name, path }: At, fd: number, depth: number) => {
    const names = new Set<string>()
    return entriesIn(path, fd, (found) => {
      const shown = shownName(found)
      const child = childPath(path, shown)
      if (isTemporary(shown) || shared.has(child) || isExcluded(child)) return Effect.void
      const key = found.toString("latin1")
      // A file system may return a name again that is renamed meanwhile.
      if (names.has(key)) return Effect.void
      names.add(key)
      const bytes = name.length === 0 ? found : Buffer.concat([name, Buffer.from("/"), found])
      return visit({ path: child, name: bytes }, within({ fd }, found), depth).pipe(
        Effect.catchIf(
          (error) => error._tag === "IoError" && hasChanged(error),
          () => Effect.sync(onChanged)
        )
      )
    })
  }

  const visit = Effect.fnUntraced(function* (
    at: At,
    real: Name,
    depth: number
  ): Effect.fn.Return<void, WalkError> {
    const { name, path } = at
    const entry = yield* ioSync(path, () => fs.lstatSync(real))
    // Another mount is not of the server.
    if (entry.isDirectory() && entry.dev !== stats.dev && !own.has(path)) return
    if (name.length > LONGEST)
      return yield* unprocessable(
        `${path.slice(0, 200)}...: its path is longer than ${LONGEST} bytes`,
        "Move it up, or shorten the names of its folders."
      )
    yield* use({ ...at, real, stats: entry })
    if (!entry.isDirectory()) return
    if (depth >= MAX_DEPTH)
      return yield* unprocessable(
        `${path.slice(0, 200)}: folders are nested deeper than ${MAX_DEPTH}`,
        "Move what is in it up, or delete it."
      )
    yield* opened(
      path,
      () => fs.openSync(real, FOLDER),
      (fd) => enterFolder(at, fd, depth + 1)
    )
  })

  const top: At = { path: "/", name: Buffer.alloc(0) }
  yield* use({ ...top, real: `/proc/self/fd/${walk.fd}/.`, stats })
  yield* enterFolder(top, walk.fd, 0)
})
