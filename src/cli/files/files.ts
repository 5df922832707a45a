/** `muster files`: files of servers, with the habits of scp and rclone. Read first: `remotePath.ts`. */
import { Effect, Option, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import { type FileDifference, type FileEntry, type FileMatch, isWithin } from "../../contract/domain/Files.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import { command, given, group, limitFlag, switchFlag, textFlag } from "../shared/command.ts"
import { wrongUsage } from "../shared/failures.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { type Listing, type OutputOptions, outputFlags, printList, sizeText, wide } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"
import { chmod, cp, mkdir, mv, pack, rm } from "./changes.ts"
import { cat, edit } from "./content.ts"
import { get } from "./get.ts"
import { put } from "./put.ts"
import {
  entriesBelow,
  entriesOf,
  entryAt,
  folderArgument,
  folderPlaceOf,
  isFolderAt,
  missing,
  nameAndTarget,
  type Place,
  recursiveFlag
} from "./remotePath.ts"
import { unpack } from "./unpack.ts"

const entries: Listing<FileEntry> = {
  id: ({ name }) => name,
  columns: {
    name: nameAndTarget,
    type: ({ type }) => type,
    size: ({ size, type }) => (type === "file" || size > 0 ? sizeText(size) : ""),
    modified: ({ modified_at }) => modified_at,
    mode: wide(({ mode }) => mode),
    layer: wide(({ layer }) => layer),
    writable: wide(({ writable }) => (writable ? "yes" : "no")),
    managed: wide(({ managed }) => (managed ?? []).join(", "))
  }
}

/** The most entries that a list with `-r` has. */
const MOST_LISTED = 10_000

/** Lists a folder with all below it, and says how much that is. */
const listBelow = Effect.fnUntraced(function* (place: Place, sizes: boolean, flags: OutputOptions) {
  const read = yield* Stream.runCollect(Stream.take(entriesBelow(place, sizes), MOST_LISTED + 1))
  const found = read.slice(0, MOST_LISTED)
  yield* printList(flags, entries, found, `${place.path} is empty.`)
  const folders = found.filter(({ type }) => type === "folder").length
  const bytes = found.reduce((sum, { size, type }) => (type === "file" ? sum + size : sum), 0)
  const others = found.length - folders
  const sum = `${others} ${others === 1 ? "file" : "files"} in ${folders} ${folders === 1 ? "folder" : "folders"}, ${sizeText(bytes)}`
  yield* note(
    read.length > found.length
      ? `The list ends after ${MOST_LISTED} entries (${sum}), and there are more: list a smaller folder.`
      : `${sum}.`
  )
})

export const ls = command("ls", {
  description:
    "List a folder by name, with -r also all below it, up to 10,000 entries, and their sum. `managed` (with -l) has the keys of a file that the next start writes; `layer` says whether the server (`server`) or its software (`base`) made the file.",
  short: "List a folder",
  examples: {
    "muster files ls lobby": "The folder of a server",
    "muster files ls -l --sizes lobby:/plugins": "With permissions, and with the sizes of folders",
    "muster files ls -r lobby:/world": "With all below it, and how much that is"
  },
  input: {
    path: folderArgument,
    long: switchFlag("long", "More columns, as -o wide").pipe(Flag.withAlias("l")),
    recursive: recursiveFlag,
    sizes: switchFlag("sizes", "Also the sizes of folders, as far as they are counted in time"),
    ...outputFlags
  },
  *run({ long, path, recursive, sizes, ...flags }) {
    const place = yield* folderPlaceOf(path)
    const output = long && flags.output === "table" ? "wide" : flags.output
    if (place.isFolder || (yield* isFolderAt(place))) {
      if (recursive) return yield* listBelow(place, sizes, { ...flags, output })
      const found = yield* Stream.runCollect(entriesOf(place, sizes))
      return yield* printList({ ...flags, output }, entries, found, `${place.path} is empty.`)
    }
    const entry = yield* entryAt(place)
    if (entry === undefined) return yield* missing(place)
    yield* printList({ ...flags, output }, entries, [entry], "")
  }
})

const matches: Listing<FileMatch> = {
  columns: {
    path: ({ path }) => legible(path),
    line: ({ line }) => (line === undefined ? "" : String(line)),
    text: ({ excerpt }) => excerpt ?? ""
  }
}

export const find = command("find", {
  description:
    "Find files below a folder by their names, by a text in them, or by both. A search ends after 10 s, 200,000 files or 1 GiB, and says so.",
  short: "Find files by name and by text",
  examples: {
    "muster files find lobby --name '*.jar'": "By name",
    "muster files find lobby:/plugins --text 'allow-flight' --name '*.yml'": "By a text in some files"
  },
  input: {
    path: folderArgument,
    name: textFlag("name", "Files whose name matches a glob, such as '*.yml'"),
    text: textFlag("text", "Files with this text"),
    case: switchFlag("case", "Upper and lower case of the text differ"),
    limit: limitFlag("At most this many matches, 1 to 1000; default 100", 100),
    ...outputFlags
  },
  *run({ case: isCase, limit, name, path, text, ...flags }) {
    if (Option.isNone(name) && Option.isNone(text))
      return yield* wrongUsage("Say what to find: --name GLOB, --text TEXT, or both.")
    const place = yield* folderPlaceOf(path)
    const [found, response] = yield* ask((muster) =>
      muster.files.search({
        params: { server: place.id },
        query: { path: place.path, limit: String(limit), case: isCase, ...given({ name, text }) },
        responseMode: "decoded-and-response"
      })
    )
    yield* printList(flags, matches, found, "Nothing was found.")
    if (response.headers["x-muster-incomplete"] === "true")
      yield* note("The search ended at a limit, and there may be more: search in a smaller folder.")
    else if (found.length === limit) yield* note(`There may be more: --limit is ${limit}.`)
  }
})

const differences: Listing<FileDifference> = {
  id: ({ path }) => path,
  columns: {
    change: ({ change }) => ({ text: change, color: COLORS[change] }),
    path: ({ path }) => legible(path),
    size: ({ change, size }) => (change === "removed" ? "" : sizeText(size))
  }
}

const COLORS = { added: "green", changed: "yellow", removed: "red" } as const

export const diff = command("diff", {
  description: "List the files of a server that differ from those of its software and volumes.",
  short: "List what a server has changed",
  examples: {
    "muster files diff lobby": "All that the server has written",
    "muster files diff lobby:/config -o id": "The paths below a folder"
  },
  input: { path: folderArgument, ...outputFlags },
  *run({ path, ...flags }) {
    const place = yield* folderPlaceOf(path)
    const found = yield* ask((muster) => muster.files.diff({ params: { server: place.id } }))
    const shown = found.filter((one) => isWithin(place.path, one.path))
    yield* printList(flags, differences, shown, "No differences.")
  }
})

export const files = group("files", {
  short: "List, read, edit, upload and download files of servers",
  description:
    "List, read, edit, upload and download files of servers. SERVER:PATH names a path of a server, as in lobby:/plugins; PATH is in the form of `muster files ls`, with %XX for bytes that are not UTF-8.",
  subcommands: [ls, cat, edit, get, put, rm, mv, cp, mkdir, chmod, pack, unpack, find, diff]
}).pipe(Command.provide(CommandClient))
