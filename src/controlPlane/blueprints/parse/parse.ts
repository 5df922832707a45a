import { Result } from "effect"
import { type Decoder, describe, type Mapping, normal, type Reading, unknownKey } from "./decode.ts"
import type { AnyFile } from "./files.ts"
import { type Located, type Problem, printable, readSource, sortProblems } from "./located.ts"
import {
  backupPart,
  blueprint,
  blueprintFile,
  filesPart,
  keepPart,
  mixin,
  mixinFile,
  parseBlueprint,
  parseMixin
} from "./parseBlueprint.ts"
import { limits, placement, restart, serverPart } from "./parseServer.ts"
import { installScript, parseSoftware, software, softwareFile } from "./parseSoftware.ts"
import { statePart } from "./parseState.ts"

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

const kinds = ["blueprint", "mixin", "software"] as const
type Kind = (typeof kinds)[number]

const parsers = { blueprint: parseBlueprint, mixin: parseMixin, software: parseSoftware }

const homes: Record<Kind, Folder> = { blueprint: "blueprints", mixin: "blueprints", software: "software" }

export type Folder = "blueprints" | "software"

const composed = {
  "server.": serverPart,
  "state.": statePart,
  "server.limits.": limits,
  "server.placement.": placement,
  "server.restart.": restart,
  "files.": filesPart,
  "backup.": backupPart,
  "backup.keep.": keepPart
}

/** The mappings with known keys of each kind of file by their path, except for entries of lists. */
const mappings: Readonly<Record<Kind, Readonly<Record<string, Pick<Mapping<unknown>, "shape">>>>> = {
  blueprint: { "": blueprintFile, "blueprint.": blueprint, ...composed },
  mixin: { "": mixinFile, "mixin.": mixin, ...composed },
  software: {
    "": softwareFile,
    "software.": software,
    "software.limits.": limits,
    "software.install-script.": installScript
  }
}

const placeOf = (key: string, own: Kind): string | undefined => {
  for (const kind of [own, ...kinds.filter((other) => other !== own)]) {
    for (const [prefix, { shape }] of Object.entries(mappings[kind])) {
      const found = shape.keys.find((known) => normal(known) === normal(key))
      const where = kind !== own ? ` of a ${kind} file` : prefix === "" ? " at the top level" : ""
      if (found !== undefined) return `\`${prefix}${found}\`${where}`
    }
  }
  return undefined
}

interface Document<A> {
  /** Unset if there is a problem. */
  readonly value: A | undefined
  readonly problems: ReadonlyArray<Problem>
  readonly ignored: ReadonlySet<string>
}

export const readDocument = <A>(file: string, bytes: Uint8Array, decode: Decoder<A>): Document<A> => {
  const ignored = new Set<string>()
  const content = contentOf(bytes)
  if (Result.isFailure(content)) {
    return { value: undefined, problems: [{ file, line: 1, column: 1, reason: content.failure }], ignored }
  }
  const { position, root } = readSource(content.success)
  const problems: Array<Problem> = []
  const reading: Reading = {
    problem: (at, reason) => {
      // One more than a message ever shows of a file: the rest would only cost memory.
      if (problems.length < MAX_PROBLEMS_A_FILE) problems.push({ file, ...position(at), reason })
    },
    ignored: (key) => ignored.add(key),
    origin: (at) => ({ file, ...position(at) }),
    placeOf: () => undefined
  }
  if (Result.isFailure(root)) for (const { at, reason } of root.failure) reading.problem(at, reason)
  const value = Result.isFailure(root) ? undefined : decode(root.success, reading)
  return { value: problems.length === 0 ? value : undefined, problems: sortProblems(problems), ignored }
}

/** Reads one definition file. A file of the other folder's kind is refused; `file` is relative to the folder. */
export const parseFile = (folder: Folder, file: string, bytes: Uint8Array): Parsed => {
  const { ignored, problems, value } = readDocument<AnyFile>(file, bytes, (root, reading) => {
    const kind = kindOf(root, folder, reading)
    if (kind === undefined) return undefined
    return parsers[kind](root, { ...reading, placeOf: (key) => placeOf(key, kind) })
  })
  return {
    definition: value,
    problems,
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
const contentOf = (bytes: Uint8Array): Result.Result<string, string> => {
  if (bytes.length > MAX_FILE_BYTES) return Result.fail(TOO_LARGE)
  if (bytes.includes(0)) return Result.fail("the file is binary: it contains NUL")
  return Result.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => "the file is not UTF-8"
  })
}

const kindOf = (root: Located, folder: Folder, reading: Reading): Kind | undefined => {
  if (root.kind !== "map") {
    const empty = root.kind === "scalar" && root.value === null
    reading.problem(root.at, empty ? "the file is empty" : `expected a mapping, found ${describe(root)}`)
    return undefined
  }
  const found = root.entries.filter((entry) => kinds.some((kind) => kind === entry.key))
  const [first, second] = found
  if (second !== undefined) {
    const names = found.map((entry) => `\`${entry.key}:\``).join(" and ")
    reading.problem(second.at, `a file holds one definition; this one has ${names}`)
    return undefined
  }
  const kind = kinds.find((candidate) => candidate === first?.key)
  if (first === undefined || kind === undefined) {
    const near = root.entries.map((entry) => ({ at: entry.at, reason: unknownKey(entry.key, kinds) }))
    const guess = near.find((candidate) => candidate.reason.includes("did you mean"))
    const none = "no `blueprint:`, `mixin:` or `software:` at the top level"
    reading.problem(guess?.at ?? root.at, guess === undefined ? none : `${none}; ${guess.reason}`)
    return undefined
  }
  if (homes[kind] !== folder) {
    reading.problem(first.at, `a \`${kind}:\` file belongs in the ${homes[kind]} folder`)
    return undefined
  }
  return kind
}
