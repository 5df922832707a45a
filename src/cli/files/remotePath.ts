/** `SERVER:PATH`: a path in the files of a server, on the command line. */
import { Effect, Result } from "effect"
import { Argument, Flag } from "effect/cli"
import { whyNoPath } from "../../contract/domain/Files.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { switchFlag } from "../shared/command.ts"
import { type CommandError, wrongUsage } from "../shared/failures.ts"
import { serverNamed } from "../shared/named.ts"

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

/** The last name of a path; empty for the folder of the server. */
export const parentOf = (path: string): string => path.slice(0, path.lastIndexOf("/")) || "/"

const MEANING = "SERVER:PATH; the server by its id, the beginning of one, or its name"

export const remoteArgument = Argument.String("path").pipe(Argument.withDescription(MEANING))

export const remoteArguments = remoteArgument.pipe(Argument.atLeast(1))

export const folderArgument = Argument.String("path").pipe(
  Argument.withDescription(`${MEANING}; SERVER alone is its whole folder`)
)

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
