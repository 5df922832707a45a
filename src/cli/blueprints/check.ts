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
import { CommandError } from "../shared/failures.ts"
import { enterUserFolder, note, paint } from "../shared/terminal.ts"

const kinds = ["blueprints", "software"] as const
type Kind = (typeof kinds)[number]

interface Root {
  readonly kind: Kind
  readonly directory: string
}

const isFolder = Effect.fnUntraced(function* (path: string) {
  const fs = yield* FileSystem.FileSystem
  return yield* Effect.match(fs.stat(path), {
    onSuccess: ({ type }) => type === "Directory",
    onFailure: () => false
  })
})

/** Returns the folders that an argument means: those inside it, or itself. */
const rootsOf = Effect.fnUntraced(function* (directory: string, kind: Option.Option<Kind>) {
  const path = yield* Path.Path
  if (Option.isSome(kind)) return [{ kind: kind.value, directory }]
  const inside = yield* Effect.filter(
    kinds.map((kind): Root => ({ kind, directory: path.join(directory, kind) })),
    (root) => isFolder(root.directory)
  )
  if (inside.length > 0) return inside
  const own = path.basename(path.resolve(directory)) === "software" ? "software" : "blueprints"
  return [{ kind: own, directory } satisfies Root]
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
    "muster blueprints check ./blueprints --software /etc/muster/software":
      "Against the software of another folder"
  },
  input: {
    directory: textArgument(
      "directory",
      "A folder of blueprints or of software, or one that has the folders `blueprints` and `software`; default: this one"
    ).pipe(Argument.withDefault(".")),
    kind: choiceFlag("kind", kinds, "Kind of the files; default: by the name of the folder, else blueprints"),
    software: textFlag(
      "software",
      "The folder of software to check blueprints against; default: `software` beside theirs"
    )
  },
  *run({ directory, kind, software }) {
    yield* enterUserFolder
    const path = yield* Path.Path
    const roots = yield* rootsOf(directory, kind)
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
    yield* Effect.forEach(reports, printReport, { discard: true })
    const errors = reports.reduce((sum, { problems }) => sum + problems.length, 0)
    const warnings = reports.reduce((sum, one) => sum + one.warnings.length, 0)
    const files = reports.reduce((sum, one) => sum + one.files, 0)
    if (files === 0) {
      return yield* CommandError.failed(
        `no definition files in ${roots.map((root) => root.directory).join(" and ")}: name another folder`
      )
    }
    const summary = `${counted(files, "file")} checked: ${counted(errors, "error")}, ${counted(warnings, "warning")}`
    if (errors > 0) return yield* CommandError.failed(summary)
    yield* note(summary)
  }
})
