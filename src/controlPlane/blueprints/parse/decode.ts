import { Result, Schema } from "effect"
import { nearest } from "../../../contract/domain/nearest.ts"
import { amountHint, unitOf } from "../../../contract/domain/units.ts"
import { type Located, type Origin, printable } from "./located.ts"

/** The findings of one file's decoding. A file with a problem is not used, whatever the decoders return. */
export interface Reading {
  problem(at: number, reason: string): void
  ignored(key: string): void
  origin(at: number): Origin
  /** Returns where a definition file may have a key, if anywhere. */
  placeOf(key: string): string | undefined
}

/** A value and its position: two files may be valid and exclude each other. */
export interface Written<A> {
  readonly value: A
  readonly at: Origin
}

/** Reads a value, or reports a problem. */
export type Decoder<A> = (node: Located, reading: Reading) => A | undefined

/** Returns the name of a value for a message: `the text "4 GB"`, `a list`. */
export const describe = (node: Located): string => {
  if (node.kind === "list") return "a list"
  if (node.kind === "map") return "a mapping"
  if (node.value === null) return "nothing"
  const kind = typeof node.value === "string" ? "the text " : ""
  const quote = typeof node.value === "string" ? '"' : ""
  return `${kind}${quote}${printable(node.source, 60)}${quote}`
}

/** @param hint the correct form */
export const expected = (node: Located, reading: Reading, what: string, hint = ""): undefined => {
  reading.problem(node.at, `expected ${what}, found ${describe(node)}${hint}`)
  return undefined
}

/** Decodes a scalar that `read` accepts and `schema` allows. */
const scalar =
  <A>(schema: Schema.Codec<A>, what: string, read: (value: unknown, source: string) => unknown): Decoder<A> =>
  (node, reading) => {
    const value = node.kind === "scalar" ? read(node.value, node.source) : undefined
    if (value === undefined) return expected(node, reading, what)
    const decoded = Schema.decodeUnknownResult(schema)(value)
    if (Result.isSuccess(decoded)) return decoded.success
    const reason = decoded.failure.message
      .replace(/^Expected/, "expected")
      .split("\n", 1)
      .join("")
    reading.problem(node.at, `${reason}, found ${describe(node)}`)
    return undefined
  }

/** Decodes text. A bare number counts as its spelling, so that `version: 1.20` is "1.20". */
export const text = <A = string>(schema: Schema.Codec<A>, what = "text"): Decoder<A> =>
  scalar(schema, what, (value, source) =>
    typeof value === "string" ? value : typeof value === "number" ? source : undefined
  )

/** Decodes text; bare numbers, `true` and `false` count as their spelling. */
export const looseText = <A = string>(schema: Schema.Codec<A>): Decoder<A> =>
  scalar(schema, "text", (value, source) => (value === null ? undefined : source))

/** Decodes a number that `schema` allows; text that looks like one is refused. */
export const number = (schema: Schema.Codec<number>): Decoder<number> => {
  const what = unitOf(schema.ast) ?? "a number"
  const decode = scalar(schema, what, (value) => (typeof value === "number" ? value : undefined))
  return (node, reading) => {
    if (node.kind !== "scalar" || typeof node.value !== "string") return decode(node, reading)
    const bare = /^-?\d{1,15}(\.\d{1,15})?$/.test(node.value) && Schema.is(schema)(Number(node.value))
    const form = what + amountHint(what, node.value)
    return expected(node, reading, form, bare ? `; write ${node.value} without quotes` : "")
  }
}

const truth = scalar(Schema.Boolean, "true or false", (value) =>
  typeof value === "boolean" ? value : undefined
)

export const boolean: Decoder<boolean> = (node, reading) => {
  const text = node.kind === "scalar" && typeof node.value === "string" ? node.value.toLowerCase() : ""
  if (text === "true" || text === "false")
    return expected(node, reading, "true or false", `; write ${text} without quotes`)
  const meant = /^(?:yes|on)$/.test(text) ? "; write true" : /^(?:no|off)$/.test(text) ? "; write false" : ""
  return meant === "" ? truth(node, reading) : expected(node, reading, "true or false", meant)
}

export const word =
  <const A extends string>(words: ReadonlyArray<A>): Decoder<A> =>
  (node, reading) => {
    const source = node.kind === "scalar" ? node.source : ""
    const near = nearest(source.toLowerCase(), words)
    return (
      words.find((candidate) => candidate === source) ??
      expected(
        node,
        reading,
        words.join(", ").replace(/, ([^,]*)$/, " or $1"),
        near === undefined ? "" : `; did you mean ${near}?`
      )
    )
  }

/** Text that needs no quotes in a list in brackets. */
const bare = /^[\w./-][\w./:-]{0,59}$/

/** @param of the kind of its elements, for messages */
export const list =
  <A>(item: Decoder<A>, of = ""): Decoder<ReadonlyArray<A>> =>
  (node, reading) => {
    if (node.kind === "list") return node.items.flatMap((child) => item(child, reading) ?? [])
    const isBare = node.kind === "scalar" && node.value !== null && bare.test(node.source)
    return expected(
      node,
      reading,
      of === "" ? "a list" : `a list of ${of}`,
      isBare ? `; write [${node.source}]` : ""
    )
  }

export const written =
  <A>(decode: Decoder<A>): Decoder<Written<A>> =>
  (node, reading) => {
    const value = decode(node, reading)
    return value === undefined ? undefined : { value, at: reading.origin(node.at) }
  }

/** Decodes a value that `read` accepts or changes; its failure is the problem. */
export const refined =
  <A, B>(decode: Decoder<A>, read: (value: A) => Result.Result<B, string>): Decoder<B> =>
  (node, reading) => {
    const value = decode(node, reading)
    if (value === undefined) return undefined
    const result = read(value)
    if (Result.isSuccess(result)) return result.success
    reading.problem(node.at, result.failure)
    return undefined
  }

/** Decodes a text that `spell` changes first. */
export const respelled =
  (spell: (text: string) => string, decode: Decoder<string>): Decoder<string> =>
  (node, reading) =>
    decode(
      node.kind === "scalar" && typeof node.value === "string"
        ? { ...node, value: spell(node.value), source: node.source.trim() }
        : node,
      reading
    )

const noMapping = (node: Located, reading: Reading, keys: ReadonlyArray<string> = []): undefined => {
  const lines = node.kind === "list" ? "; write `key: value` lines without `- `" : ""
  return expected(
    node,
    reading,
    "a mapping",
    keys.length === 0 ? lines : `${lines}; the keys here are ${keys.join(", ")}`
  )
}

/** Decodes a mapping with free keys, which `key` checks; `value` gets the position of the key. */
export const record =
  <A>(
    value: (node: Located, reading: Reading, at: number) => A | undefined,
    key: (key: string) => Result.Result<string, string> = Result.succeed
  ): Decoder<Readonly<Record<string, A>>> =>
  (node, reading) => {
    if (node.kind !== "map") return noMapping(node, reading)
    const entries = new Map<string, A>()
    for (const entry of node.entries) {
      const name = key(entry.key)
      const decoded = value(entry.node, reading, entry.at)
      if (Result.isFailure(name)) reading.problem(entry.at, name.failure)
      else if (entries.has(name.success)) {
        reading.problem(entry.at, `\`${printable(name.success, 80)}\` is there twice`)
      } else if (decoded !== undefined) entries.set(name.success, decoded)
    }
    // Defines own properties, so that a key such as `__proto__` is an ordinary key.
    return Object.fromEntries(entries)
  }

/** Decodes any value that JSON carries without loss. */
export const json: Decoder<Schema.Json> = (node, reading) => {
  if (node.kind === "list") return list(json)(node, reading)
  if (node.kind === "map") return record(json)(node, reading)
  if (typeof node.value === "number" && !Number.isFinite(node.value)) {
    return expected(node, reading, "a finite number")
  }
  if (typeof node.value === "number" && Number.isInteger(node.value) && !Number.isSafeInteger(node.value)) {
    reading.problem(
      node.at,
      `${printable(node.source, 60)} is too large to be kept exactly; write it in quotes`
    )
    return undefined
  }
  return node.value
}

/** `-` and `_` are the same in known keys. */
export const normal = (key: string): string => key.replaceAll("-", "_")

/** A field that the decoded mapping always has. */
interface Certain<A> {
  readonly decode: Decoder<A>
  readonly isRequired: boolean
  readonly otherwise: A | undefined
}

/** A field that must be there. A mapping without it has the value `otherwise`, or does not decode. */
export const required = <A>(decode: Decoder<A>, otherwise?: A): Certain<A> => ({
  decode,
  isRequired: true,
  otherwise
})

export const withDefault = <A>(decode: Decoder<A>, otherwise: NoInfer<A>): Certain<A> => ({
  decode,
  isRequired: false,
  otherwise
})

type Underscored<K> = K extends `${infer Head}-${infer Tail}` ? `${Head}_${Underscored<Tail>}` : K

type Decoded<F> = {
  readonly [K in keyof F as F[K] extends Certain<unknown> ? Underscored<K> : never]: F[K] extends Certain<
    infer A
  >
    ? A
    : never
} & {
  readonly [K in keyof F as F[K] extends Certain<unknown> ? never : Underscored<K>]?: F[K] extends Decoder<
    infer A
  >
    ? A
    : never
}

export interface Mapping<A> extends Decoder<A> {
  readonly shape: {
    /** The known keys, in their documented spelling. */
    readonly keys: ReadonlyArray<string>
    /** Keys that are accepted and ignored: files for SLS have them. */
    readonly ignored: ReadonlyArray<string>
  }
}

const isEmpty = (node: Located): boolean => node.kind === "scalar" && node.value === null

/**
 * Decodes a mapping with known keys; a field that is a bare decoder is optional, and null counts as absent. The result has
 * `_` for each `-`. An unknown key is a problem that names the nearest known one; keys that begin with `x-` are free.
 */
export const mapping = <const F extends Readonly<Record<string, Decoder<unknown> | Certain<unknown>>>>(
  where: string,
  fields: F,
  ignored: ReadonlyArray<string> = []
): Mapping<Decoded<F>> => {
  const keys = Object.keys(fields)
  const known = new Map([...keys, ...ignored].map((key) => [normal(key), key]))
  const decode: Decoder<Decoded<F>> = (node, reading) => {
    if (node.kind !== "map") return noMapping(node, reading, keys)
    const given = new Map<string, Located>()
    for (const entry of node.entries) {
      if (entry.key.startsWith("x-")) continue
      const key = known.get(normal(entry.key))
      if (key === undefined)
        reading.problem(entry.at, misplacedKey(entry.key, reading, keys) ?? unknownKey(entry.key, keys))
      else if (given.has(key)) reading.problem(entry.at, `the key \`${key}\` is there twice`)
      else given.set(key, entry.node)
    }
    for (const key of ignored) if (given.has(key)) reading.ignored(where + key)
    const values = Object.entries(fields).map(([key, field]) => {
      const { decode, isRequired, otherwise } =
        typeof field === "function" ? withDefault(field, undefined) : field
      const found = given.get(key)
      const isThere = found !== undefined && !isEmpty(found)
      if (!isThere && isRequired) reading.problem(found?.at ?? node.at, `\`${where}${key}\` is missing`)
      const value = isThere ? decode(found, reading) : undefined
      return { key: normal(key), value: value ?? otherwise, isRequired }
    })
    if (values.some(({ isRequired, value }) => isRequired && value === undefined)) return undefined
    const present = values.filter(({ value }) => value !== undefined)
    // fromEntries cannot express in its type which fields are there.
    return Object.fromEntries(present.map(({ key, value }) => [key, value])) as Decoded<F>
  }
  return Object.assign(decode, { shape: { keys, ignored } })
}

/** Keys of compose files and other panels. */
const synonyms = new Map([
  ["command", "invocation"],
  ["cpu", "cpu_limit"],
  ["disk", "disk_space"],
  ["environment", "env"],
  ["memory", "memory_limit"],
  ["ram", "memory_limit"],
  ["startup", "invocation"]
])

/** Returns the message about a key that is known in another place only. */
const misplacedKey = (key: string, reading: Reading, keys: ReadonlyArray<string>): string | undefined => {
  const meant = synonyms.get(key) ?? key
  const place = keys.includes(meant) ? undefined : reading.placeOf(meant)
  return place === undefined ? undefined : `unknown key \`${printable(key, 80)}\`; its place is ${place}`
}

export const unknownKey = (key: string, keys: ReadonlyArray<string>): string => {
  const [before = "", behind] = key.split(":")
  const near = synonyms.get(key) ?? nearest(normal(before).toLowerCase(), keys.map(normal))
  const meant = keys.find((candidate) => normal(candidate) === near)
  if (meant !== undefined && behind !== undefined)
    return `unknown key \`${printable(key, 80)}\`; write \`${meant}: ${printable(behind, 80)}\`, with a space`
  const help = meant === undefined ? `; the keys here are ${keys.join(", ")}` : `; did you mean \`${meant}\`?`
  return `unknown key \`${printable(key, 80)}\`${help}`
}
