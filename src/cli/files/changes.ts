/** `muster files rm`, `mv`, `cp`, `pack`, `mkdir` and `chmod`. */
import { Array, Console, Effect } from "effect"
import { Argument, Flag } from "effect/cli"
import { ArchiveFormat, childPath, FileMode, formatOfName, nameOf } from "../../contract/domain/Files.ts"
import { MOST_CHANGES } from "../../contract/domain/FileTask.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import type { BulkOutcomes, Selector } from "../../contract/domain/Selector.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { acted, confirmed, targetsOf } from "../servers/power.ts"
import { command, switchFlag, textArgument } from "../shared/command.ts"
import { CommandError, statusOf, withCommands, wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { selectorFlag } from "../shared/named.ts"
import { madeOrWaited, waitedFor } from "../shared/operations.ts"
import { confirm, firstOf, yesFlag } from "../shared/terminal.ts"
import {
  isFolderAt,
  type Place,
  placeOf,
  placesOf,
  readPath,
  recursiveFlag,
  remoteArguments
} from "./remotePath.ts"

const refusals = (outcomes: BulkOutcomes): ReadonlyArray<CommandError> =>
  Object.entries(outcomes).flatMap(([path, outcome]) => {
    if (!("code" in outcome)) return []
    const { code, detail, hint } = outcome
    const named = detail.includes(path) ? detail : `${legible(path)}: ${detail}`
    return [
      new CommandError({ status: statusOf[code] ?? "failed", message: withCommands(`${named}. ${hint}`) })
    ]
  })

/** Says what was done at each path. @error CommandError some paths refuse, with their reasons */
export const reported = Effect.fnUntraced(function* (outcomes: BulkOutcomes, done: (path: string) => string) {
  const refused = refusals(outcomes)
  for (const [path, outcome] of Object.entries(outcomes)) {
    if (!("code" in outcome)) yield* Console.log(done(legible(path)))
  }
  const [first, ...others] = refused
  if (first === undefined) return
  const status = others.every((other) => other.status === first.status) ? first.status : "failed"
  return yield* new CommandError({ status, message: refused.map(({ message }) => message).join("\n") })
})

/** Makes a folder and the missing ones above it. */
export const makeFolder = Effect.fnUntraced(function* (server: Server["id"], path: string) {
  const outcomes = yield* ask((muster) => muster.files.folder({ params: { server }, payload: { path } }))
  const [refused] = refusals(outcomes)
  if (refused !== undefined) return yield* refused
})

type Contents =
  | { readonly content: string }
  | { readonly from: { readonly server_id: Server["id"]; readonly path: string } }

/** Writes one file to all servers of a selector, after a question. */
export const writeToMany = Effect.fnUntraced(function* (
  selector: ReadonlyArray<string>,
  path: string,
  contents: Contents,
  yes: boolean
) {
  const targets = yield* targetsOf({ server: [], selector, yes })
  if (targets.servers.length === 0) return yield* Console.error("No servers match.")
  yield* confirmed(`Write ${path} on`, targets, yes)
  const many = (chosen: Selector) => writeOnce(chosen, path, contents)
  yield* acted(() => `has ${path}`, targets, { one: (id) => Effect.asVoid(many({ ids: [id] })), many })
})

export const writeOnce = (selector: Selector, path: string, contents: Contents) =>
  ask((muster) => muster.files.writeToMany({ payload: { selector, path, ...contents } }))

/** Paths of one request (spec 10.3). */
const CHUNK = MOST_CHANGES

/** Runs an effect for the places of each server, as many as one request takes. */
const forEachServer = <E, R>(
  places: ReadonlyArray<Place>,
  use: (server: Server["id"], paths: readonly [string, ...ReadonlyArray<string>]) => Effect.Effect<void, E, R>
) =>
  Effect.forEach(
    Map.groupBy(places, ({ id }) => id),
    ([id, its]) =>
      Effect.forEach(
        Array.chunksOf(
          its.map(({ path }) => path),
          CHUNK
        ),
        (paths) => (Array.isReadonlyArrayNonEmpty(paths) ? use(id, paths) : Effect.void),
        { discard: true }
      ),
    { discard: true }
  )

/** @error CommandError a path is a folder, and `-r` is not given (usage) */
const refuseFolders = Effect.fnUntraced(function* (places: ReadonlyArray<Place>, recursive: boolean) {
  if (recursive) return
  for (const place of places) {
    if (place.isFolder || (yield* isFolderAt(place)))
      return yield* wrongUsage(`${place.path} is a folder: add -r.`)
  }
})

export const rm = command("rm", {
  description: "Delete files, and folders with -r. A link itself is deleted, not what it points to.",
  short: "Delete files and folders",
  examples: {
    "muster files rm lobby:/logs/old.log": "A file, after confirmation",
    "muster files rm -r --yes k7f:/world k7f:/world_nether": "Folders, without a question"
  },
  input: { path: remoteArguments, recursive: recursiveFlag, yes: yesFlag },
  *run({ path, recursive, yes }) {
    const places = yield* placesOf(path)
    if (places.some(({ path }) => path === "/"))
      return yield* wrongUsage(
        "The whole folder of a server stays: `muster servers reset <server>` empties it."
      )
    yield* refuseFolders(places, recursive)
    const names = places.map(({ id, path }) => `${id}:${path}`)
    yield* confirm(`Delete ${firstOf(names)}${recursive ? " with all that they hold" : ""}?`, yes)
    yield* forEachServer(places, (server, paths) =>
      Effect.flatMap(
        ask((muster) => muster.files.delete({ params: { server }, payload: { paths } })),
        (made) => madeOrWaited(made, (outcomes) => reported(outcomes, (path) => `${path} is deleted`))
      )
    )
  }
})

const ARCHIVES = ArchiveFormat.literals.map((format) => `.${format}`).join(", ")

const forceFlag = switchFlag("force", "Replace files that exist").pipe(Flag.withAlias("f"))

const fromTo = textArgument(
  "path",
  "SERVER:PATH..., then the new PATH; into a folder if it exists or ends with /"
).pipe(Argument.atLeast(2))

/** The sources of a move or a copy, and their target: `SERVER:PATH`, or `/PATH` of the same server. */
const sourcesAndTarget = Effect.fnUntraced(function* (texts: ReadonlyArray<string>) {
  const sources = yield* placesOf(texts.slice(0, -1))
  const [first] = sources
  const last = texts.at(-1) ?? ""
  if (first === undefined) return yield* wrongUsage("Name SERVER:PATH and its new path.")
  const target = last.startsWith("/") ? { id: first.id, ...(yield* readPath(last)) } : yield* placeOf(last)
  return { sources, first, target }
})

/** Returns the new path of each source. */
const targetsOfSources = Effect.fnUntraced(function* (sources: ReadonlyArray<Place>, target: Place) {
  const isInto = target.isFolder || (yield* isFolderAt(target))
  if (sources.length > 1 && !isInto)
    return yield* wrongUsage(`${target.path} is no folder: write ${target.path}/ to make one.`)
  return Array.map(sources, ({ path }) => ({
    from: path,
    to: isInto ? childPath(target.path, nameOf(path)) : target.path
  }))
})

export const mv = command("mv", {
  description: "Move or rename files and folders of one server. What exists is replaced with --force only.",
  short: "Move or rename files and folders",
  examples: {
    "muster files mv lobby:/config.yml /config.old.yml": "Rename a file",
    "muster files mv lobby:/a.jar lobby:/b.jar lobby:/plugins/": "Into a folder"
  },
  input: { path: fromTo, force: forceFlag },
  *run({ force, path }) {
    const { sources, target } = yield* sourcesAndTarget(path)
    if (sources.some(({ id }) => id !== target.id))
      return yield* wrongUsage("Files move within one server: use `muster files cp`, then `rm`.")
    const moves = yield* targetsOfSources(sources, target)
    const overwrite = force ? ({ overwrite: "replace" } as const) : {}
    const made = yield* ask((muster) =>
      muster.files.move({ params: { server: target.id }, payload: { moves, ...overwrite } })
    )
    yield* madeOrWaited(made, (outcomes) => reported(outcomes, (to) => `moved to ${to}`))
  }
})

/** Copies files to another server; the service reads and writes them. */
const copyAcross = Effect.fnUntraced(function* (sources: ReadonlyArray<Place>, target: Place) {
  const copies = yield* targetsOfSources(sources, target)
  for (const [at, { from, to }] of copies.entries()) {
    const source = sources[at]
    if (source === undefined) continue
    const outcomes = yield* writeOnce({ ids: [target.id] }, to, {
      from: { server_id: source.id, path: from }
    })
    yield* reported(outcomes, () => `copied to ${to}`)
  }
})

export const cp = command("cp", {
  description:
    "Copy files, and folders with -r, within a server. A file can also go to another server, where it replaces one, or to all servers that --selector finds.",
  short: "Copy files and folders",
  examples: {
    "muster files cp -r lobby:/world /world.backup": "A folder of a server",
    "muster files cp lobby:/ops.json k7f:/ops.json": "To another server",
    "muster files cp lobby:/plugins/Chat.jar /plugins/ --selector label=game=lobby": "To many servers"
  },
  input: { path: fromTo, recursive: recursiveFlag, force: forceFlag, selector: selectorFlag, yes: yesFlag },
  *run({ force, path, recursive, selector, yes }) {
    const { first, sources, target } = yield* sourcesAndTarget(path)
    const isAcross = selector.length > 0 || sources.some(({ id }) => id !== target.id)
    if (isAcross && recursive)
      return yield* wrongUsage(
        "Folders are copied within one server: use `muster files get -r`, then `put -r`."
      )
    yield* refuseFolders(sources, recursive)
    if (selector.length > 0) {
      if (sources.length > 1) return yield* wrongUsage("--selector takes one file: SERVER:PATH PATH.")
      const to = target.isFolder ? childPath(target.path, nameOf(first.path)) : target.path
      return yield* writeToMany(selector, to, { from: { server_id: first.id, path: first.path } }, yes)
    }
    if (isAcross) return yield* copyAcross(sources, target)
    const copies = yield* targetsOfSources(sources, target)
    const overwrite = force ? ({ overwrite: "replace" } as const) : {}
    const made = yield* ask((muster) =>
      muster.files.copy({ params: { server: target.id }, payload: { copies, ...overwrite } })
    )
    yield* madeOrWaited(made, (outcomes) => reported(outcomes, (to) => `copied to ${to}`))
  }
})

const packArguments = textArgument(
  "path",
  `SERVER:PATH..., then the archive, whose name ends with ${ARCHIVES}`
).pipe(Argument.atLeast(2))

export const pack = command("pack", {
  description:
    "Pack files and folders of a server into an archive of the same server. The node writes the archive, which gets its name once it is whole, and counts against the disk of the server. An archive that exists is replaced with --force only.",
  short: "Pack files and folders into an archive",
  examples: {
    "muster files pack lobby:/world /world.tar.zst": "A folder",
    "muster files pack k7f:/world k7f:/plugins k7f:/old/all.zip": "Several, as a zip archive"
  },
  input: { path: packArguments, force: forceFlag },
  *run({ force, path }) {
    const { sources, target } = yield* sourcesAndTarget(path)
    if (sources.some(({ id }) => id !== target.id))
      return yield* wrongUsage("Files are packed within one server: name one server.")
    if (formatOfName(target.path) === undefined)
      return yield* wrongUsage(`${target.path} is no name of an archive: it ends with ${ARCHIVES}.`)
    const paths = sources.map((source) => source.path)
    const overwrite = force ? ({ overwrite: "replace" } as const) : {}
    const begun = yield* ask((muster) =>
      muster.files.pack({ params: { server: target.id }, payload: { paths, to: target.path, ...overwrite } })
    )
    yield* waitedFor(begun)
  }
})

export const mkdir = command("mkdir", {
  description: "Make folders, and the missing ones above them.",
  examples: {
    "muster files mkdir lobby:/plugins/Chat": "A folder",
    "muster files mkdir k7f:/a k7f:/b": "Several"
  },
  input: { path: remoteArguments },
  *run({ path }) {
    for (const { id, path: folder } of yield* placesOf(path)) {
      const outcomes = yield* ask((muster) =>
        muster.files.folder({ params: { server: id }, payload: { path: folder } })
      )
      yield* reported(outcomes, (made) => `${made} is made`)
    }
  }
})

const modeArgument = textArgument("mode", "Permissions in octal digits, such as 644 or 0755").pipe(
  Argument.withSchema(FileMode)
)

export const chmod = command("chmod", {
  description: "Set the permissions of files and folders. Owners and special bits do not change.",
  short: "Set permissions of files and folders",
  examples: {
    "muster files chmod 755 lobby:/start.sh": "A program",
    "muster files chmod 0600 k7f:/ops.json k7f:/whitelist.json": "Several files"
  },
  input: { mode: modeArgument, path: remoteArguments },
  *run({ mode, path }) {
    yield* forEachServer(yield* placesOf(path), (server, paths) =>
      Effect.flatMap(
        ask((muster) => muster.files.mode({ params: { server }, payload: { paths, mode } })),
        (made) =>
          madeOrWaited(made, (outcomes) => reported(outcomes, (changed) => `${changed} has the mode ${mode}`))
      )
    )
  }
})
