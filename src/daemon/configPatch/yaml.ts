import { Result } from "effect"
import {
  Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  type Scalar,
  type ScalarTag,
  type Tags,
  visit,
  type YAMLMap,
  type YAMLSeq
} from "yaml"
import {
  applyFind,
  type Container,
  change,
  type Data,
  type Format,
  isContainer,
  same,
  Written
} from "./data.ts"
import {
  applyEdits,
  type Edit,
  lineEndOf,
  type Patcher,
  PatchProblem,
  placeIn,
  problem,
  spelledAs
} from "./find.ts"

type YamlContainer = YAMLMap | YAMLSeq
const isYamlContainer = (node: unknown): node is YamlContainer => isMap(node) || isSeq(node)

type Change =
  | {
      readonly container: YamlContainer
      readonly slot: Pair | number
      readonly old: unknown
      readonly value: Data
    }
  | { readonly container: YamlContainer; readonly added: ReadonlyArray<readonly [string | number, Data]> }

class Spelled {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

const spelledTag: ScalarTag = {
  tag: "!spelled",
  default: true,
  identify: (value) => value instanceof Written || value instanceof Spelled,
  resolve: (text) => text,
  stringify: ({ value }) =>
    value instanceof Written || value instanceof Spelled ? value.text : String(value)
}

const options = { compat: "yaml-1.1", customTags: (tags: Tags): Tags => [spelledTag, ...tags] } as const

/** Aliases of one part, and of parts in it: a few aliases of large parts must not become gigabytes. */
const MOST_ALIASES = 100_000

/** Parses a document. Checking duplicate keys takes quadratic time, and `prettyErrors` 80 us for each error. */
const parse = (text: string): Document =>
  parseDocument(text, {
    ...options,
    uniqueKeys: false,
    intAsBigInt: true,
    logLevel: "error",
    prettyErrors: false
  })

interface Values {
  readonly data: Data
  readonly hasAliases: boolean
  /** Lists or maps as keys are not in `data`, and so not in a copy of it. */
  readonly hasOtherKeys: boolean
}

/** Returns the values of a document, whose keys become their texts, and whose scalars become {@link Data}. */
const valuesOf = (doc: Document): Result.Result<Values, PatchProblem> => {
  let hasAliases = false
  let hasOtherKeys = false
  visit(doc, {
    Alias: () => {
      hasAliases = true
    },
    Scalar: (key, scalar) => {
      scalar.value = key === "key" ? nameOf(scalar) : scalarOf(scalar)
    }
  })
  const reviver = (key: unknown, value: unknown) => {
    hasOtherKeys ||= typeof key !== "string"
    return typeof key === "string" ? value : undefined
  }
  const reasonOf = (cause: unknown): string => {
    if (!(cause instanceof ReferenceError)) return "it is nested too deep"
    return cause.message.startsWith("Excessive")
      ? "it has too many aliases of large parts"
      : `*${cause.message.split(": ").at(-1)} stands for nothing before it`
  }
  return Result.try({
    // a document of scalars that are Data is Data itself
    try: () => doc.toJS({ mapAsMap: true, maxAliasCount: MOST_ALIASES, reviver }) as Data,
    catch: (cause) => new PatchProblem({ reason: reasonOf(cause) })
  }).pipe(Result.map((data) => ({ data, hasAliases, hasOtherKeys })))
}

const nameOf = ({ source, value }: Scalar): string =>
  // the text of keys that YAML reads as numbers or booleans
  typeof value === "string" ? value : (source ?? String(value))

const scalarOf = ({ source = "", type, value }: Scalar): Data => {
  if (typeof value === "number") return new Written(value, source)
  const truth =
    type === "PLAIN" ? [true, false].find((truth) => spelledAs(source, truth) === source) : undefined
  if (truth !== undefined) return new Written(truth, source)
  return typeof value === "string" || typeof value === "bigint" || value === null
    ? value
    : String(value ?? "")
}

interface Part {
  readonly node: unknown
  readonly container: YamlContainer
  readonly slot: Pair | number
}

const partsOf = ({ node }: Part): Iterable<readonly [string | number, Part]> => {
  if (isSeq(node)) return node.items.map((item, slot) => [slot, { node: item, container: node, slot }])
  if (!isMap(node)) return []
  const named = node.items.flatMap((slot): ReadonlyArray<readonly [string, Part]> => {
    const name = isScalar(slot.key) ? slot.key.value : undefined
    return typeof name === "string" ? [[name, { node: slot.value, container: node, slot }]] : []
  })
  // of equal keys the last one counts
  return new Map(named)
}

/** Returns the changes that lead to `wanted`, inner ones first. An alias of a changed part becomes a copy. */
const changesOf = (doc: Document, root: YamlContainer, { data, hasAliases }: Values, wanted: Container) => {
  const changes: Array<Change> = []
  const anchored = new Map<Node, Data>()
  visit(doc, {
    Scalar: (key, scalar) => {
      if (key === "key" && scalar.anchor !== undefined) anchored.set(scalar, String(scalar.value))
    }
  })
  const format: Format<Part> = {
    parts: partsOf,
    look: ({ node }, from, to) => {
      if (isAlias(node)) {
        const target = node.resolve(doc)
        return target !== undefined && same(anchored.get(target), to) ? "keep" : "replace"
      }
      if (from === to && !hasAliases) return "keep"
      if (isNode(node) && node.anchor !== undefined) anchored.set(node, to)
      return "compare"
    },
    replace: ({ node, container, slot }, value) => {
      if (isNode(node)) visit(node, { Node: (_, inner) => void anchored.delete(inner) })
      changes.push({ container, slot, old: node, value })
    },
    add: ({ node }, added) => {
      if (isYamlContainer(node)) changes.push({ container: node, added })
    }
  }
  change(format, { node: root, container: root, slot: 0 }, data, wanted)
  return changes
}

/** Characters that some YAML parsers refuse or read as a line end outside of an escape. */
const unsafe = /[\p{Cc}\p{Cs}\u2028\u2029\ufeff\ufffe\uffff]/u

const quoted = (value: string): string =>
  JSON.stringify(value).replace(
    /[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

/** Returns a node of a new value. Strings are quoted as YAML 1.1 needs: most games read that. */
const nodeOf = (doc: Document, value: Data, style?: Scalar.Type | null): Node => {
  const node = doc.createNode(value, { aliasDuplicateObjects: false })
  visit(node, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value !== "string") return
      if (unsafe.test(scalar.value) || scalar.value === "=") scalar.value = new Spelled(quoted(scalar.value))
      else if (style?.startsWith("QUOTE_") === true) scalar.type = style
    }
  })
  return node
}

/** Returns the edit that changes a value of the document to another, if both are plain or quoted. */
const editOf = (doc: Document, change: Change): Edit | undefined => {
  if ("added" in change || isContainer(change.value)) return undefined
  const { container, old, value } = change
  if (!isScalar(old) || old.tag !== undefined || old.anchor !== undefined || !isFlowScalar(old))
    return undefined
  const [start, end] = old.range ?? [0, 0]
  const node = new Document(null, options)
  node.contents = nodeOf(doc, value, old.type) as typeof node.contents
  const text =
    container.flow && typeof value === "string" ? quoted(value) : node.toString({ lineWidth: 0 }).trimEnd()
  return start < end ? { start, end, text } : undefined
}

const isFlowScalar = ({ type }: Scalar): boolean => type === "PLAIN" || type?.startsWith("QUOTE_") === true

/** Prints the whole document with the changes: comments, order and spellings stay, the layout does not. */
const printed = (text: string, doc: Document, changes: ReadonlyArray<Change>): string | undefined => {
  visit(doc, {
    Scalar: (_, scalar) => {
      const written = text.slice(...(scalar.range ?? [0, 0]).slice(0, 2))
      if (isFlowScalar(scalar) && !written.includes("\n")) scalar.value = new Spelled(written)
    }
  })
  for (const change of changes) {
    const { container } = change
    if ("added" in change) {
      for (const [key, value] of change.added) {
        if (isMap(container)) container.items.push(doc.createPair(nodeOf(doc, key), nodeOf(doc, value)))
        else container.items.push(nodeOf(doc, value))
      }
      continue
    }
    const { old, slot, value } = change
    const node = nodeOf(doc, value)
    if (isNode(old)) {
      node.comment = old.comment ?? null
      node.commentBefore = old.commentBefore ?? null
    }
    if (isYamlContainer(node) && isYamlContainer(old) && old.flow === true) node.flow = true
    if (isPair(slot)) slot.value = node
    else container.items[slot] = node
  }
  const made = Result.try(() =>
    doc.toString({
      lineWidth: 0,
      blockQuote: "literal",
      indent: /\n( {1,8})[^\s#-]/.exec(text)?.[1]?.length ?? 2,
      indentSeq: !/^( *)[^\s#-].*:[ \t]*(?:#.*)?\r?\n(?:[ \t]*(?:#.*)?\r?\n)*\1- /m.test(text),
      flowCollectionPadding: !/[{[][^\s\]}]/.test(text)
    })
  )
  return Result.getOrUndefined(made)?.replaceAll("\n", lineEndOf(text))
}

const checked = (made: string | undefined, wanted: Data): string | undefined => {
  const again = made === undefined ? undefined : parse(made)
  if (again === undefined || again.errors.length > 0) return undefined
  const read = valuesOf(again)
  return Result.isSuccess(read) && same(read.success.data, wanted) ? made : undefined
}

/** Patches a YAML file with keys as in `applyFind`. Comments stay; aliases of a changed value become copies. */
export const patchYaml: Patcher = (given, find) =>
  Result.gen(function* () {
    const text = given ?? ""
    const doc = parse(text)
    const error = doc.errors[0]
    if (error?.code === "MULTIPLE_DOCS") return yield* problem("it holds more than one document")
    if (error !== undefined) {
      const place = placeIn(text, error.pos[0])
      return yield* problem(`it is not valid YAML: ${error.message.slice(0, 200)} at ${place}`)
    }
    const values = yield* valuesOf(doc)
    const { data, hasOtherKeys } = values
    const root = doc.contents
    if (data !== null && !isYamlContainer(root))
      return yield* problem("its top level is neither a map nor a list")
    const { data: wanted, unmatched } = yield* applyFind(isContainer(data) ? data : undefined, find)
    const ended = /[\r\n]$/.test(text)
    let made: string | undefined
    if (!isYamlContainer(root)) {
      if ([...wanted.keys()].length === 0) return { text, unmatched }
      const fresh = parse("")
      fresh.contents = nodeOf(fresh, wanted)
      const above = text === "" || ended ? text : text + lineEndOf(text)
      made = checked(above + printed("", fresh, [])?.replaceAll("\n", lineEndOf(text)), wanted)
    } else {
      const changes = changesOf(doc, root, values, wanted)
      if (changes.length === 0) return { text, unmatched }
      if (hasOtherKeys && changes.some((change) => "old" in change && isAlias(change.old)))
        return yield* problem("it has lists or maps as keys")
      const edits = changes.map((change) => editOf(doc, change))
      const edited = edits.every((edit) => edit !== undefined) ? applyEdits(text, edits) : undefined
      made =
        checked(edited, wanted) ??
        checked(printed(text, doc, changes)?.replace(ended ? "" : /\r?\n$/, ""), wanted)
    }
    return made === undefined
      ? yield* problem("the result would not be valid YAML")
      : { text: made, unmatched }
  })
