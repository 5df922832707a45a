import { Console, Effect, FileSystem, Option, Path } from "effect"
import { Argument } from "effect/cli"
import {
  blueprintSet,
  blueprintWarnings,
  type Loaded,
  loadFolder,
  type SoftwareSet,
  softwareSet
} from "../../controlPlane/blueprints/definitions.ts"
import { type Problem, printable } from "../../controlPlane/blueprints/parse/located.ts"
import { choiceFlag, command, textArgument, textFlag } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { enterUserFolder, note, paint } from "../shared/terminal.ts"

const kinds = ["blueprints", "software"] as const
type Kind = (typeof kinds)[number]

interface Root {
  readonly kind: Kind
  readonly directory: string
}

const typeOf = Effect.fnUntraced(function* (path: string) {
  const fs = yield* FileSystem.FileSystem
  return yield* Effect.match(fs.stat(path), {
    onSuccess: ({ type }) => type,
    onFailure: () => undefined
  })
})

const isFolder = (path: string) => Effect.map(typeOf(path), (type) => type === "Directory")

/** The path of a definition file in its folder: a reload reads no name that begins with a dot. */
const YAML = /^(?:[^./][^/]*\/)*[^./][^/]*\.ya?ml$/

const kindOf = Effect.fnUntraced(function* (directory: string) {
  const path = yield* Path.Path
  const name = path.basename(path.resolve(directory))
  return kinds.find((kind) => kind === name)
})

/** Returns the folder whose files a file is loaded with: `blueprints` or `software` above it, or its own. */
const folderOf = Effect.fnUntraced(function* (file: string) {
  const path = yield* Path.Path
  const own = path.dirname(file)
  let folder = own
  // The folder of a path such as `a.yml` is `.`, and the one above it `..`.
  for (let above = own; path.resolve(above) !== path.sep; above = path.join(above, ".."))
    if ((yield* kindOf(above)) !== undefined) {
      folder = above
      break
    }
  if (!YAML.test(path.relative(folder, file)))
    return yield* wrongUsage(
      `${file} is no definition file: the name of one ends with .yml or .yaml, and no name in its path begins with a dot.`
    )
  return folder
})

interface Checked {
  readonly roots: ReadonlyArray<Root>
  /** The only file that is asked for, by its path in the root. */
  readonly only?: string
}

/** Returns the folders that an argument means: those inside it, or itself; of a file, the one that it is loaded with. */
const checkedOf = Effect.fnUntraced(function* (argument: string, given: Option.Option<Kind>) {
  const path = yield* Path.Path
  const type = yield* typeOf(argument)
  if (type === undefined)
    return yield* CommandError.notFound(
      `no such file or folder: ${argument}. Name a definition file, or a folder of them.`
    )
  const isFile = type !== "Directory"
  const directory = isFile ? yield* folderOf(argument) : argument
  const inside = yield* Effect.filter(
    kinds.map((kind): Root => ({ kind, directory: path.join(directory, kind) })),
    (root) => isFolder(root.directory)
  )
  const kind = Option.getOrUndefined(given) ?? (yield* kindOf(directory)) ?? "blueprints"
  const checked: Checked = {
    roots: !isFile && Option.isNone(given) && inside.length > 0 ? inside : [{ kind, directory }],
    ...(isFile ? { only: path.relative(directory, argument) } : {})
  }
  return checked
})

const unreadable = (directory: string) => (error: { readonly reason: string }) =>
  CommandError.failed(`cannot check ${directory}: ${error.reason}`)

const loaded = <A>(root: Root, build: Parameters<typeof loadFolder<A>>[2]) =>
  Effect.mapError(loadFolder(root.kind, root.directory, build), unreadable(root.directory))

interface Report {
  readonly directory: string
  readonly files: number
  readonly problems: ReadonlyArray<Problem>
  readonly warnings: ReadonlyArray<string>
}

const reportOf = ({ directory }: Root, { files, problems, warnings }: Loaded<unknown>): Report => ({
  directory,
  files,
  problems,
  warnings
})

/** Returns what a report has about one file. */
const ofFile = (report: Report, file: string): Report => ({
  ...report,
  files: 1,
  problems: report.problems.filter((problem) => problem.file === file),
  warnings: report.warnings.filter((warning) => warning.startsWith(`${file}: `))
})

const sum = (of: (report: Report) => number) => (reports: ReadonlyArray<Report>) =>
  reports.reduce((all, report) => all + of(report), 0)

const filesIn = sum(({ files }) => files)
const errorsIn = sum(({ problems }) => problems.length)
const warningsIn = sum(({ warnings }) => warnings.length)

const printReport = Effect.fnUntraced(function* ({ directory, problems, warnings }: Report) {
  const path = yield* Path.Path
  const at = (file: string) => path.join(directory, printable(file))
  for (const { column, file, line, reason } of problems) {
    yield* Console.log(`${at(file)}:${line}:${column}: ${paint("error", "red")}: ${printable(reason)}`)
  }
  for (const warning of warnings) {
    const colon = warning.indexOf(": ")
    const [file, text] = [warning.slice(0, colon), warning.slice(colon + 2)]
    yield* Console.log(`${at(file)}: ${paint("warning", "yellow")}: ${printable(text)}`)
  }
})

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`

/** `muster blueprints check`: needs no service. */
export const check = command("check", {
  description:
    "Check files of blueprints, mixins and software as a reload does, without a service. Each problem is one line, `file:line:column: error: reason`; the exit status is 1 if there is an error or no file.",
  short: "Check definition files, without a service",
  examples: {
    "muster blueprints check": "The folders blueprints and software below this one",
    "muster blueprints check blueprints/survival.yml": "One file, with the mixins and software that it names",
    "muster blueprints check ./blueprints --software /etc/muster/software":
      "Against the software of another folder"
  },
  input: {
    path: textArgument(
      "path",
      "A definition file, a folder of blueprints or of software, or one that has the folders `blueprints` and `software`; default: this one"
    ).pipe(Argument.withDefault(".")),
    kind: choiceFlag("kind", kinds, "Kind of the files; default: by the name of the folder, else blueprints"),
    software: textFlag(
      "software",
      "The folder of software to check blueprints against; default: `software` beside theirs"
    )
  },
  *run({ kind, path: argument, software }) {
    yield* enterUserFolder
    const path = yield* Path.Path
    const { only, roots } = yield* checkedOf(argument, kind)
    const reports: Array<Report> = []
    for (const root of roots) {
      if (root.kind === "software") {
        reports.push(reportOf(root, yield* loaded(root, softwareSet)))
        continue
      }
      const found = yield* loaded(root, blueprintSet)
      const beside = Option.getOrElse(software, () =>
        path.join(path.resolve(root.directory), "..", "software")
      )
      const isThere = Option.isSome(software) || (yield* isFolder(beside))
      const softwares: SoftwareSet | undefined = isThere
        ? (yield* loaded({ kind: "software", directory: beside }, softwareSet)).value
        : undefined
      const notes = softwares === undefined ? [] : blueprintWarnings(found.value, softwares)
      reports.push(reportOf(root, { ...found, warnings: [...found.warnings, ...notes] }))
    }
    const found = reports.map((report) => (only === undefined ? report : ofFile(report, only)))
    yield* Effect.forEach(found, printReport, { discard: true })
    const [files, errors, warnings] = [filesIn(found), errorsIn(found), warningsIn(found)]
    if (files === 0) {
      return yield* CommandError.failed(
        `no definition files in ${roots.map((root) => root.directory).join(" and ")}: name another folder`
      )
    }
    const summary = `${counted(files, "file")} checked: ${counted(errors, "error")}, ${counted(warnings, "warning")}`
    const others = errorsIn(reports) - errors
    if (errors > 0) return yield* CommandError.failed(summary)
    const reloads = roots
      .toReversed()
      .map((root) => `\`muster ${root.kind} reload\``)
      .join(", then ")
    yield* note(
      others > 0
        ? `${summary}. But other files have ${counted(others, "error")}: \`muster blueprints check ${roots[0]?.directory}\` shows them.`
        : `${summary}. Next: ${reloads}.`
    )
  }
})
