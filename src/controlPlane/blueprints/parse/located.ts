import { Result } from "effect"
import {
  type Alias,
  type Document,
  type ErrorCode,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type ParsedNode,
  parseDocument,
  type YAMLError
} from "yaml"

/** A position in a file; both numbers count from 1. */
export interface Position {
  readonly line: number
  readonly column: number
}

/** A position with its file, relative to the definitions folder. */
export interface Origin extends Position {
  readonly file: string
}

export interface Problem extends Origin {
  readonly reason: string
}

const MAX_PROBLEMS = 50
const MAX_TEXT = 300

/** Returns `text` on one line without control characters, cut to `max` characters: it quotes foreign input. */
export const printable = (text: string, max = MAX_TEXT): string => {
  const line = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ")
  return line.length > max ? `${line.slice(0, max)}...` : line
}

/** `survival.yml:3:5: unknown key ...` */
export const renderProblem = (problem: Problem): string =>
  `${printable(problem.file)}:${problem.line}:${problem.column}: ${printable(problem.reason)}`

/** Returns problems in the order of messages: by file and position. */
export const sortProblems = (problems: ReadonlyArray<Problem>): ReadonlyArray<Problem> =>
  [...problems].sort(
    (a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0) || a.line - b.line || a.column - b.column
  )

/** Returns at most 50 lines; the first problem of every file comes before the second of any. */
export const describeProblems = (problems: ReadonlyArray<Problem>): string => {
  const told = new Map<string, number>()
  const ranked = sortProblems(problems).map((problem) => {
    const rank = told.get(problem.file) ?? 0
    told.set(problem.file, rank + 1)
    return { problem, rank }
  })
  const shown = ranked.sort((a, b) => a.rank - b.rank).slice(0, MAX_PROBLEMS)
  const lines = sortProblems(shown.map(({ problem }) => problem)).map(renderProblem)
  const rest = problems.length - lines.length
  return (rest > 0 ? [...lines, `and ${rest} more`] : lines).join("\n")
}

/** A YAML value with its position: `at` is its offset in the text. */
export type Located = LocatedScalar | LocatedList | LocatedMap

interface Place {
  readonly at: number
  /** The number of its values, itself included, with aliases expanded. */
  readonly size: number
  readonly depth: number
}

interface LocatedScalar extends Place {
  readonly kind: "scalar"
  readonly value: string | number | boolean | null
  /** The spelling: `1.20` stays `1.20`. */
  readonly source: string
}

interface LocatedList extends Place {
  readonly kind: "list"
  readonly items: ReadonlyArray<Located>
}

export interface LocatedMap extends Place {
  readonly kind: "map"
  readonly entries: ReadonlyArray<Entry>
}

export interface Entry {
  readonly key: string
  readonly at: number
  readonly node: Located
}

interface Fault {
  readonly at: number
  readonly reason: string
}

/** The value of a text, or its faults, with line and column of an offset. */
interface Source {
  readonly root: Result.Result<Located, ReadonlyArray<Fault>>
  readonly position: (at: number) => Position
}

const MAX_DEPTH = 64
/** Values that aliases may add to a file: enough for sharing, far too few for a "billion laughs". */
const MAX_ALIASED_VALUES = 10_000
const MAX_FAULTS = 20

/**
 * Reads one YAML 1.2 document (core schema). Aliases are shared and counted, so no file can blow up. Other tags,
 * duplicate keys, a second document and other YAML versions are faults.
 */
export const readSource = (text: string): Source => {
  const lines = new LineCounter()
  const position = (at: number): Position => {
    const { line, col } = lines.linePos(at)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const parsed = Result.try({
    try: () =>
      parseDocument(text, {
        lineCounter: lines,
        version: "1.2",
        schema: "core",
        merge: false,
        resolveKnownTags: false,
        stringKeys: true,
        // Checked below: the package's own check takes quadratic time.
        uniqueKeys: false,
        prettyErrors: false,
        logLevel: "error"
      }),
    catch: (cause) => [{ at: 0, reason: `not readable as YAML: ${printable(String(cause))}` }]
  })
  return { root: Result.flatMap(parsed, toLocated), position }
}

/** The faults that authors meet most, and what to do about them. */
const advice: Readonly<Partial<Record<ErrorCode, string>>> = {
  BLOCK_AS_IMPLICIT_KEY: "a mapping begins inside a value; put a text with `: ` in quotes, or align the keys",
  MULTILINE_IMPLICIT_KEY: "this line is no `key: value`; put a space behind the colon, and align the keys",
  MULTIPLE_DOCS: "a file holds one document; this one has more",
  NON_STRING_KEY: 'a key is no text; put a placeholder in quotes: "{{...}}"',
  RESOURCE_EXHAUSTION: `nested more than ${MAX_DEPTH} levels deep`,
  TAB_AS_INDENT: "a tab indents this line; use spaces"
}

const faultOf = ({ code, message }: YAMLError): string =>
  advice[code] ??
  printable(message) +
    (code === "BAD_SCALAR_START" || /\balias\b/i.test(message) ? "; put the value in quotes" : "")

const toLocated = (document: Document.Parsed): Result.Result<Located, ReadonlyArray<Fault>> => {
  const faults: Array<Fault> = [...document.errors, ...document.warnings]
    .slice(0, MAX_FAULTS)
    // a second fault at one place follows from the first
    .filter(({ pos }, n, all) => pos[0] !== all[n - 1]?.pos[0])
    .map((error) => ({ at: error.pos[0], reason: faultOf(error) }))
  if (document.directives.yaml.explicit === true && document.directives.yaml.version !== "1.2") {
    faults.push({
      at: 0,
      reason: `YAML ${document.directives.yaml.version} is not supported; write YAML 1.2`
    })
  }
  if (faults.length > 0) return Result.fail(faults)
  if (document.contents === null) return Result.fail([{ at: 0, reason: "the file is empty" }])
  const walk = walker(faults)
  const root = walk(document.contents, 1)
  return faults.length > 0 || root === undefined ? Result.fail(faults) : Result.succeed(root)
}

/** Walks the document in its own order, so that an anchor is known before its aliases. */
const walker = (faults: Array<Fault>) => {
  const anchors = new Map<string, Located | undefined>()
  let aliased = 0

  const fail = (at: number, reason: string): undefined => {
    if (faults.length < MAX_FAULTS) faults.push({ at, reason })
    return undefined
  }

  const follow = (node: Alias, depth: number): Located | undefined => {
    const at = node.range?.[0] ?? 0
    if (!anchors.has(node.source)) return fail(at, `no anchor &${printable(node.source)} before this alias`)
    const target = anchors.get(node.source)
    if (target === undefined) return fail(at, `the alias *${printable(node.source)} stands in its own anchor`)
    aliased += target.size
    if (aliased > MAX_ALIASED_VALUES) {
      return fail(at, `aliases stand for more than ${MAX_ALIASED_VALUES} values in all`)
    }
    return depth + target.depth > MAX_DEPTH ? tooDeep(at) : target
  }

  const tooDeep = (at: number) => fail(at, `nested more than ${MAX_DEPTH} levels deep`)

  const walk = (node: ParsedNode | null, depth: number): Located | undefined => {
    if (faults.length >= MAX_FAULTS) return undefined
    if (node === null) return { kind: "scalar", at: 0, size: 1, depth: 1, value: null, source: "" }
    if (isAlias(node)) return follow(node, depth)
    const at = node.range[0]
    if (depth > MAX_DEPTH) return tooDeep(at)
    if (node.anchor !== undefined) anchors.set(node.anchor, undefined)
    const located = isScalar(node)
      ? scalar(node.value, node.source, at)
      : isSeq(node)
        ? list(node.items, at, depth)
        : isMap(node)
          ? map(node.items, at, depth)
          : fail(at, "not a value that a definition can hold")
    if (node.anchor !== undefined && located !== undefined) anchors.set(node.anchor, located)
    return located
  }

  const scalar = (value: unknown, source: string | undefined, at: number): Located | undefined =>
    value === null || typeof value === "string" || typeof value === "number" || typeof value === "boolean"
      ? { kind: "scalar", at, size: 1, depth: 1, value, source: source ?? String(value) }
      : fail(at, "not a value that a definition can hold")

  const list = (nodes: ReadonlyArray<ParsedNode>, at: number, depth: number): Located => {
    const items: Array<Located> = []
    for (const node of nodes) {
      const item = walk(node, depth + 1)
      if (item !== undefined) items.push(item)
    }
    return { kind: "list", at, items, ...measure(items) }
  }

  /** A merge key brings a mapping, or a list of mappings. */
  const merge = (value: Located): ReadonlyArray<Entry> => {
    const maps = value.kind === "list" ? value.items : [value]
    return maps.flatMap((one) => {
      if (one.kind === "map") return one.entries
      fail(one.at, "`<<` merges mappings, usually aliases of them")
      return []
    })
  }

  const map = (
    pairs: ReadonlyArray<{ readonly key: ParsedNode; readonly value: ParsedNode | null }>,
    at: number,
    depth: number
  ): Located => {
    const entries: Array<Entry> = []
    const merged: Array<Entry> = []
    const keys = new Set<string>()
    for (const pair of pairs) {
      const keyAt = pair.key.range[0]
      const key = isScalar(pair.key) ? (pair.key.source ?? String(pair.key.value)) : undefined
      const value = walk(pair.value, depth + 1)
      if (key === undefined) fail(keyAt, "a key must be plain text")
      else if (keys.has(key)) fail(keyAt, `the key \`${printable(key, 80)}\` is there twice`)
      else if (value !== undefined) {
        keys.add(key)
        // In quotes it is a key like any other.
        if (key === "<<" && isScalar(pair.key) && pair.key.type === "PLAIN") merged.push(...merge(value))
        // A key without a value (`{a, b}`) has no position of its own.
        else entries.push({ key, at: keyAt, node: pair.value === null ? { ...value, at: keyAt } : value })
      }
    }
    // The mapping's own keys win, then the earlier of the merged mappings.
    for (const entry of merged) {
      if (keys.has(entry.key)) continue
      keys.add(entry.key)
      entries.push(entry)
    }
    return { kind: "map", at, entries, ...measure(entries.map((entry) => entry.node)) }
  }

  return walk
}

const measure = (children: ReadonlyArray<Located>) => {
  let size = 1
  let depth = 0
  for (const child of children) {
    size += child.size
    depth = Math.max(depth, child.depth)
  }
  return { size, depth: depth + 1 }
}
