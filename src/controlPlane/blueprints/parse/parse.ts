import { Result } from "effect"
import { describe, unknownKey } from "./decode.ts"
import { type Kind, kinds } from "./fields.ts"
import type { AnyFile } from "./files.ts"
import { type Located, readSource } from "./located.ts"
import { type FileContext, parseBlueprint, parseMixin } from "./parseBlueprint.ts"
import { parseSoftware } from "./parseSoftware.ts"
import { type Problem, printable, sortProblems } from "./problem.ts"

/** Files over this size, in bytes, are refused. */
export const MAX_FILE_BYTES = 1024 * 1024

export const TOO_LARGE = "the file is larger than 1 MiB"

export interface Parsed {
  readonly definition: AnyFile | undefined
  /** Empty if and only if there is a definition. */
  readonly problems: ReadonlyArray<Problem>
  /** Keys that are accepted and ignored, in one line. */
  readonly warnings: ReadonlyArray<string>
}

const parsers = { blueprint: parseBlueprint, mixin: parseMixin, software: parseSoftware }

const homes: Record<Kind, Folder> = { blueprint: "blueprints", mixin: "blueprints", software: "software" }

export type Folder = "blueprints" | "software"

/** Reads one definition file. A file of the other folder's kind is refused; `file` is relative to the folder. */
export const parseFile = (folder: Folder, file: string, bytes: Uint8Array): Parsed => {
  const content = contentOf(bytes)
  if (Result.isFailure(content)) return refused({ file, line: 1, column: 1, reason: content.failure })
  const source = readSource(content.success)
  const problems: Array<Problem> = []
  const ignored = new Set<string>()
  let kind: Kind | undefined
  const context: FileContext = {
    file,
    kind: () => kind,
    position: source.position,
    problem: (at, reason) => {
      // One more than a message ever shows of a file: the rest would only cost memory.
      if (problems.length < MAX_PROBLEMS_A_FILE) problems.push({ file, ...source.position(at), reason })
    },
    ignored: (key) => ignored.add(key),
    origin: (at) => ({ file, ...source.position(at) })
  }
  if (Result.isFailure(source.root)) {
    for (const fault of source.root.failure) context.problem(fault.at, fault.reason)
    return { definition: undefined, problems: sortProblems(problems), warnings: [] }
  }
  const root = source.root.success
  kind = kindOf(root, folder, context)
  const definition = kind === undefined ? undefined : parsers[kind](root, context)
  return {
    definition: problems.length === 0 ? definition : undefined,
    problems: sortProblems(problems),
    warnings: ignored.size === 0 ? [] : [`${printable(file)}: ignored keys: ${[...ignored].join(", ")}`]
  }
}

const MAX_PROBLEMS_A_FILE = 50

export const refused = (problem: Problem): Parsed => ({
  definition: undefined,
  problems: [problem],
  warnings: []
})

/** Returns the text of a file; fails with the reason if it is too large or not text. */
export const contentOf = (bytes: Uint8Array): Result.Result<string, string> => {
  if (bytes.length > MAX_FILE_BYTES) return Result.fail(TOO_LARGE)
  if (bytes.includes(0)) return Result.fail("the file is binary: it contains NUL")
  return Result.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => "the file is not UTF-8"
  })
}

const kindOf = (root: Located, folder: Folder, context: FileContext): Kind | undefined => {
  if (root.kind !== "map") {
    const empty = root.kind === "scalar" && root.value === null
    context.problem(root.at, empty ? "the file is empty" : `expected a mapping, found ${describe(root)}`)
    return undefined
  }
  const found = root.entries.filter((entry) => kinds.some((kind) => kind === entry.key))
  const [first, second] = found
  if (second !== undefined) {
    const names = found.map((entry) => `\`${entry.key}:\``).join(" and ")
    context.problem(second.at, `a file holds one definition; this one has ${names}`)
    return undefined
  }
  const kind = kinds.find((candidate) => candidate === first?.key)
  if (first === undefined || kind === undefined) {
    const near = root.entries.map((entry) => ({ at: entry.at, reason: unknownKey(entry.key, kinds) }))
    const guess = near.find((candidate) => candidate.reason.includes("did you mean"))
    const none = "no `blueprint:`, `mixin:` or `software:` at the top level"
    context.problem(guess?.at ?? root.at, guess === undefined ? none : `${none}; ${guess.reason}`)
    return undefined
  }
  if (homes[kind] !== folder) {
    context.problem(first.at, `a \`${kind}:\` file belongs in the ${homes[kind]} folder`)
    return undefined
  }
  return kind
}
