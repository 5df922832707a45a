/** `muster files ls`, `find` and `diff`. */
import { Option, Stream } from "effect"
import { Flag } from "effect/cli"
import { type FileDifference, type FileEntry, type FileMatch, isWithin } from "../../contract/domain/Files.ts"
import { command, given, limitFlag, switchFlag, textFlag } from "../shared/command.ts"
import { wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { type Listing, outputFlags, printList, sizeText, wide } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"
import { entriesOf, entryAt, isFolderAt, missing } from "./entries.ts"
import { folderArgument, folderPlaceOf } from "./remotePath.ts"

const nameAndTarget = ({ name, target, type }: FileEntry): string =>
  target === undefined ? `${name}${type === "folder" ? "/" : ""}` : `${name} -> ${target}`

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

export const ls = command("ls", {
  description:
    "List a folder by name. `managed` (with -l) has the keys of a file that the next start writes; `layer` says whether the server (`server`) or its software (`base`) made the file.",
  short: "List a folder",
  examples: {
    "muster files ls lobby": "The folder of a server",
    "muster files ls -l --sizes lobby:/plugins": "With permissions, and with the sizes of folders"
  },
  input: {
    path: folderArgument,
    long: switchFlag("long", "More columns, as -o wide").pipe(Flag.withAlias("l")),
    sizes: switchFlag("sizes", "Also the sizes of folders, as far as they are counted in time"),
    ...outputFlags
  },
  *run({ long, path, sizes, ...flags }) {
    const place = yield* folderPlaceOf(path)
    const output = long && flags.output === "table" ? "wide" : flags.output
    if (place.isFolder || (yield* isFolderAt(place))) {
      const found = yield* Stream.runCollect(entriesOf(place, sizes))
      return yield* printList({ ...flags, output }, entries, found, `${place.path} is empty.`)
    }
    const entry = yield* entryAt(place)
    if (entry === undefined) return yield* missing(place)
    yield* printList({ ...flags, output }, entries, [entry], "")
  }
})

const matches: Listing<FileMatch> = {
  id: ({ path }) => path,
  columns: {
    path: ({ path }) => path,
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
    path: ({ path }) => path,
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
