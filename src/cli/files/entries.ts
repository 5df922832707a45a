/** Looks up the entries of a server: what a path names, and the contents of a folder. */
import { Effect, Option, Stream } from "effect"
import { childPath, type FileEntry, nameOf } from "../../contract/domain/Files.ts"
import { CommandError } from "../shared/failures.ts"
import { ask, askStream } from "../shared/musterClient.ts"
import { type Place, parentOf } from "./remotePath.ts"
import type { Needs } from "./transfers.ts"

/** The entries of a folder by name; each chunk is a page. */
export const entriesOf = ({ id, path }: Place, sizes = false) =>
  askStream((muster) => muster.folder(id, path, { sizes }))

/** The entries below a folder, parents before children, named by their paths in the folder. */
export const entriesBelow = (place: Place, sizes = false): Stream.Stream<FileEntry, CommandError, Needs> =>
  entriesOf(place, sizes).pipe(
    // The server may delete a folder meanwhile.
    Stream.catchIf(
      ({ status }) => status === "notFound",
      () => Stream.empty
    ),
    Stream.flatMap((entry) => {
      if (entry.type !== "folder") return Stream.succeed(entry)
      const inner = { ...place, path: childPath(place.path, entry.name) }
      const below = Stream.suspend(() => entriesBelow(inner, sizes))
      return Stream.concat(
        Stream.succeed(entry),
        Stream.map(below, (one) => ({ ...one, name: `${entry.name}/${one.name}` }))
      )
    })
  )

/** Returns whether a path is a folder. A path that does not exist, or is something else, is none. */
export const isFolderAt = ({ id, path }: Place) =>
  path === "/"
    ? Effect.succeed(true)
    : ask((muster) =>
        muster.files.list({ params: { server: id }, query: { path, limit: "1" } }).pipe(
          Effect.as(true),
          // The service says with 409 what else is there, and with 404 that nothing is.
          Effect.catchTags({
            Conflict: () => Effect.succeed(false),
            NotFound: () => Effect.succeed(false)
          })
        )
      )

/** Returns a text before which no name is that is not before `name`, and with which few names begin. */
const justBefore = (name: string): string => [...name].slice(0, -1).join("")

/** Returns the entry at a path, unless nothing is there. The folder of the server has no entry. */
export const entryAt = Effect.fnUntraced(function* ({ id, path }: Place) {
  const name = nameOf(path)
  if (name === "") return undefined
  const after = justBefore(name)
  const page = yield* ask((muster) =>
    muster.files
      .list({ params: { server: id }, query: { path: parentOf(path), ...(after === "" ? {} : { after }) } })
      .pipe(Effect.catchTag("NotFound", () => Effect.succeed([])))
  )
  const found = page.find((entry) => entry.name === name)
  if (found !== undefined || page.length < PAGE) return found
  const parent = { id, path: parentOf(path), isFolder: true }
  return Option.getOrUndefined(
    yield* Stream.runHead(Stream.filter(entriesOf(parent), (entry) => entry.name === name))
  )
})

const PAGE = 1000

/** Returns the path into which a file with this name goes: itself, or in the folder that it is. */
export const targetOf = Effect.fnUntraced(function* (place: Place, name: string) {
  const isFolder = place.isFolder || (yield* isFolderAt(place))
  return isFolder ? childPath(place.path, name) : place.path
})

/** Returns why an entry cannot be read, unless it is a file or a folder. */
export const whyNoContent = ({ target, type }: FileEntry): string | undefined => {
  if (type === "link") return `a link to ${target ?? "another place"}, which is not followed`
  return type === "other" ? "a pipe, a socket or a device, which is never opened" : undefined
}

export const missing = ({ path }: Place) =>
  new CommandError({
    status: "notFound",
    message: `no such file or folder: ${path}. \`muster files ls <server>:${parentOf(path)}\` shows what is there.`
  })
