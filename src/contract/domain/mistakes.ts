/** Mistakes in input, in the caller's terms (spec 1.2). */
import { Predicate, type SchemaAST, SchemaIssue } from "effect"
import { MOST_REASONS } from "./errors.ts"
import { pathText } from "./json.ts"
import { nearest } from "./nearest.ts"
import { amountHint, unitOf } from "./units.ts"

const UNKNOWN_FIELD = "unknown field"

const fieldsOf = (ast: SchemaAST.AST): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

/** Returns what the keys of a record must be; undefined: the object has fixed fields. */
const expectedKey = (ast: SchemaAST.AST): string | undefined =>
  ast._tag === "Objects"
    ? ast.indexSignatures
        .flatMap(({ parameter }) => parameter.checks ?? [])
        .map(({ annotations }) => annotations?.expected)
        .find((expected) => typeof expected === "string")
    : undefined

/** Describes a mistake in the caller's terms, without names of the service's schemas. */
const describeLeaf: SchemaIssue.LeafHook = (issue) => {
  if (issue._tag === "MissingKey") return "required, but missing"
  if (issue._tag === "UnexpectedKey") {
    const key = expectedKey(issue.ast)
    return key === undefined ? [UNKNOWN_FIELD, ...fieldsOf(issue.ast)].join("\n") : `Expected ${key}`
  }
  if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "Expected an object"
  const unit = issue._tag === "InvalidType" ? unitOf(issue.ast) : undefined
  const text = SchemaIssue.defaultLeafHook(issue)
  return unit === undefined ? text : text.replace("Expected number", `Expected ${unit}`)
}

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({ leafHook: describeLeaf })

/** `Expected CreateServer` and `Expected OverridesEncoded | null` are objects for the caller. */
const inCallersTerms = (message: string): string =>
  message.replace(/^Expected [A-Z]\w+(?= \| null$|$)/, "Expected an object")

export interface Mistake {
  readonly path: ReadonlyArray<string>
  readonly message: string
  /** The value at `path`, if the input is known. */
  readonly value: unknown
  readonly known?: ReadonlyArray<string>
}

/** @param input the value that does not decode, for hints about the values in it */
export const mistakesOf = (issue: SchemaIssue.Issue, input?: unknown): ReadonlyArray<Mistake> =>
  formatIssue(issue).issues.map((found) => {
    const path = (found.path ?? []).map((part) => String(typeof part === "object" ? part.key : part))
    const [message = "not as expected", ...known] = found.message.split("\n")
    const value = path.reduce<unknown>(
      (at, step) => (Predicate.isObject(at) && Object.hasOwn(at, step) ? Reflect.get(at, step) : undefined),
      input
    )
    const told = inCallersTerms(message).replace(
      /^Expected (a number [^|]*[^| ])/,
      (text, unit: string) => text + amountHint(unit, value)
    )
    return { path, message: told, value, ...(message === UNKNOWN_FIELD ? { known } : {}) }
  })

export const places = { Params: "path", Query: "query", Headers: "header", Payload: "body" } as const
export type Place = (typeof places)[keyof typeof places]

export interface Reason {
  readonly text: string
  readonly known?: ReadonlyArray<string>
}

/** Query parameters that other APIs, or other routes, call by another name. */
const sameParameters = [
  ["limit", "per_page", "page_size", "count", "size"],
  ["after", "page", "offset"],
  ["q", "name", "search", "id"],
  ["include", "fields"]
]

/** Returns the known name that a caller most likely meant. */
const meantBy = (name: string, place: Place, known: ReadonlyArray<string>): string | undefined => {
  const near = nearest(name, known)
  if (near !== undefined || place !== "query") return near
  const others = sameParameters.find((names) => names.includes(name)) ?? []
  return others.find((other) => known.includes(other))
}

/** Returns the mistakes of one place of a request, each with its field. */
export const reasonsOf = (issue: SchemaIssue.Issue, place: Place, input?: unknown): ReadonlyArray<Reason> =>
  mistakesOf(issue, input).map(({ known, message, path: steps }, at) => {
    // The names of parameters are no paths.
    const path = place === "body" ? pathText(steps) : steps.join(".")
    const name = (steps.at(-1) ?? "").slice(0, 100)
    const near = known !== undefined && at < MOST_REASONS ? meantBy(name, place, known) : undefined
    const meant = near === undefined ? "" : `; did you mean ${near}?`
    const field = path === "" ? place : `${place} field ${path.slice(0, 200)}`
    // The values of a query are texts; only a repeated parameter is none.
    const expected =
      place === "query" && message === "Expected string" ? "Expected once, but repeated" : message
    const text = `${field}: ${expected.slice(0, 500)}${meant}`
    return known === undefined ? { text } : { text, known }
  })
