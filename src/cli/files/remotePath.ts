/** `SERVER:PATH`: a path in the files of a server, on the command line. */
import { Effect, Option, Result, Stream } from "effect"
import { Argument, Flag } from "effect/cli"
import { childPath, type FileEntry, nameOf, parentOf, whyNoPath } from "../../contract/domain/Files.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { switchFlag, textArgument } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { ask, askStream } from "../shared/musterClient.ts"
import { serverNamed } from "../shared/named.ts"
import type { Needs } from "./transfers.ts"

export interface RemotePath {
  /** Id of the server, the beginning of one, or its name. */
  readonly server: string
  /** Absolute in the instance, without a slash at its end. */
  readonly path: string
  /** Whether the text ends with a slash, so that it means a folder. */
  readonly isFolder: boolean
}

/** Reads `PATH`, which begins at the folder of the server with or without a slash. Fails with the reason. */
export const pathOf = (text: string): Result.Result<Omit<RemotePath, "server">, string> => {
  const absolute = text.startsWith("/") ? text : `/${text}`
  const path = absolute === "/" ? absolute : absolute.replace(/\/$/, "")
  const why = whyNoPath(path)
  return why === undefined
    ? Result.succeed({ path, isFolder: absolute.endsWith("/") })
    : Result.fail(`the path ${path} ${why}`)
}

/** Reads `SERVER:PATH`. The server ends at the first colon. Fails with the reason. */
export const remotePathOf = (text: string): Result.Result<RemotePath, string> => {
  const colon = text.indexOf(":")
  return colon <= 0
    ? Result.fail(`expected SERVER:PATH, got ${text === "" ? "an empty text" : text}`)
    : Result.map(pathOf(text.slice(colon + 1)), (path) => ({ server: text.slice(0, colon), ...path }))
}

const MEANING = "SERVER:PATH; the server by its id, the beginning of one, or its name"

export const remoteArgument = textArgument("path", MEANING)

export const remoteArguments = remoteArgument.pipe(Argument.atLeast(1))

export const folderArgument = textArgument("path", `${MEANING}; SERVER alone is its whole folder`)

export const recursiveFlag = switchFlag("recursive", "Also folders, with all that they hold").pipe(
  Flag.withAlias("r")
)

/** A path whose server exists. */
export interface Place {
  readonly id: Server["id"]
  readonly path: string
  readonly isFolder: boolean
}

const usable = <A>(read: Result.Result<A, string>): Effect.Effect<A, CommandError> =>
  Effect.mapError(Effect.fromResult(read), (reason) => wrongUsage(`${reason}.`))

export const readRemote = (text: string) => usable(remotePathOf(text))

export const readPath = (text: string) => usable(pathOf(text))

/** Finds the server of `SERVER:PATH`. @error CommandError not such a text (usage), or no such server (not found) */
export const placeOf = Effect.fnUntraced(function* (text: string) {
  const { server, ...path } = yield* readRemote(text)
  return { id: (yield* serverNamed(server)).id, ...path } satisfies Place
})

/** {@link placeOf}, where `SERVER` alone is its whole folder. */
export const folderPlaceOf = (text: string) => placeOf(text.includes(":") ? text : `${text}:/`)

/** Finds the servers of paths, each once. */
export const placesOf = Effect.fnUntraced(function* (texts: ReadonlyArray<string>) {
  const read = yield* Effect.forEach(texts, readRemote)
  const names = [...new Set(read.map(({ server }) => server))]
  const ids = new Map(
    yield* Effect.forEach(names, (name) => Effect.map(serverNamed(name), ({ id }) => [name, id] as const))
  )
  return read.flatMap(({ server, ...path }): ReadonlyArray<Place> => {
    const id = ids.get(server)
    return id === undefined ? [] : [{ id, ...path }]
  })
})

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

/** Returns the name of an entry in a list: of a link with its target, of a folder with a slash. */
export const nameAndTarget = ({ name, target, type }: Pick<FileEntry, "name" | "target" | "type">): string =>
  target === undefined
    ? `${legible(name)}${type === "folder" ? "/" : ""}`
    : `${legible(name)} -> ${legible(target)}`

/** Returns why an entry cannot be read, unless it is a file or a folder. */
export const whyNoContent = ({ target, type }: FileEntry): string | undefined => {
  if (type === "link") return `a link to ${target ?? "another place"}, which is not followed`
  return type === "other" ? "a pipe, a socket or a device, which is never opened" : undefined
}

export const missing = ({ path }: Place) =>
  CommandError.notFound(
    `no such file or folder: ${path}. \`muster files ls <server>:${parentOf(path)}\` shows what is there.`
  )
