import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, type JsonSchema, Schema } from "effect"
import { HttpApi } from "effect/http-api"
import * as fc from "fast-check"
import { ApplicationApi } from "../../../src/contract/api/ApplicationApi.ts"
import { Policy } from "../../../src/contract/api/middleware.ts"
import { parseEventQuery } from "../../../src/controlPlane/events/eventQuery.ts"
import { freshSeed } from "../../support/random.ts"
import { valuesOf } from "./support/described.ts"
import { byDocument, codec, components, paths, refusals } from "./support/document.ts"

/** Enough that each rare value occurs: one in thirty of a parameter is refused. */
const RUNS = 400

/** The rules that `422` explains and the document does not have: a schema has no plain words for them. */
const beyondSchemas = [
  // A length counts UTF-16 code units in the service, and characters in a schema.
  /^Expected a value with a length of at most \d+$/,
  /^Expected a label value without control characters$/,
  /^Expected \d+ to \d+ characters on one line$/,
  /^Expected 0, or a value of at least 1$/,
  /^Expected 0, or a value between 10 and 1000$/,
  /^Expected at least one of blueprint_id, node_id, status, labels, ids$/,
  /^Expected at least one of max_servers, max_memory, max_cpu and max_disk$/,
  /^Expected an http or https URL without a user$/,
  /^Expected an http or https URL without user, path and query$/,
  /^Expected k=v, k!=v, k or !k$/,
  /^expected k=v, k!=v, k or !k, got /,
  // The format `date-time`.
  /^expected a time such as /,
  /^Expected rights \(allow\) only with the scope/,
  /^Expected servers, blueprints and labels only with the scopes/,
  /^Expected paths only with browse or files in allow, and without backups and restore$/,
  /^expected an absolute path such as /,
  /^Expected either from or content$/,
  // Few languages have a type for null: it is written as an object.
  /^Expected null$/,
  /^Expected at most 100 names of at most 64 characters$/,
  /^Expected either server_id or selector$/,
  /^Expected steps that take at most 24 h together$/,
  /^Expected a name that ends with /,
  /^Expected at least one of status, min_uptime$/
]

/** The reasons for which the other members of a union refuse a value, beside the member that the value is meant for. */
const otherMembers = /^(?:Expected no excess property|Missing key)$/

type Refusals<A> = (value: A) => ReadonlyArray<string>

/** A part of a request: values, and the reasons for which the document and the service refuse each. */
interface Part {
  readonly name: string
  readonly judged: fc.Arbitrary<{
    readonly value: unknown
    readonly document: ReadonlyArray<string>
    readonly service: ReadonlyArray<string>
  }>
}

const partOf = <A>(
  name: string,
  values: fc.Arbitrary<A>,
  byDocument: Refusals<A>,
  byService: Refusals<A>
): Part => ({
  name,
  judged: values.map((value) => ({ value, document: byDocument(value), service: byService(value) }))
})

interface Parameter {
  readonly name: string
  readonly in: "query" | "header" | "path"
  readonly explode?: boolean
  readonly schema: JsonSchema.JsonSchema & { readonly type: string }
}

/** Returns the texts that a client sends for a value: an empty one counts as absent. */
const textsOf = ({ explode, schema }: Parameter, value: unknown): ReadonlyArray<string> => {
  const texts = (Array.isArray(value) && schema.type === "array" ? value : [value])
    .map(String)
    .filter((text) => text !== "")
  return explode === false ? [texts.join(",")] : texts
}

/** Returns the value that texts have by the type of a parameter. */
const typed = ({ explode, schema }: Parameter, texts: ReadonlyArray<string>): unknown => {
  if (schema.type === "array") return explode === false ? texts.join(",").split(",") : texts
  const [text = ""] = texts
  const isJson = schema.type === "integer" ? /^-?\d+$/.test(text) : /^(?:true|false)$/.test(text)
  return schema.type !== "string" && isJson ? JSON.parse(text) : text
}

/** Returns the reason for which a stream of events refuses a parameter: its route reads the query itself. */
const refusedByStream = (name: string, texts: ReadonlyArray<string>): ReadonlyArray<string> => {
  const query = new URLSearchParams(texts.map((text) => [name, text]))
  if (name === "interval") query.append("topics", "stats")
  const lastEventId = name === "last-event-id" ? texts[0] : undefined
  const parsed = Effect.runSyncExit(parseEventQuery(query, lastEventId))
  return Exit.isSuccess(parsed) ? [] : [String(parsed.cause)]
}

const parameters: Array<Part & { readonly isAnyText: boolean }> = []
const bodies: Array<Part> = []
HttpApi.reflect(ApplicationApi, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group }) => {
    const path = endpoint.path.replaceAll(/:(\w+)/g, "{$1}")
    const operation = paths[path][endpoint.method.toLowerCase()]
    const name = `${group.identifier}.${endpoint.identifier}`
    const described: ReadonlyArray<Parameter> = operation.parameters
    for (const parameter of described.filter((it) => it.in !== "path")) {
      const refusedByDocument = byDocument(parameter.schema)
      const schema = parameter.in === "query" ? endpoint.query : endpoint.headers
      const refusedBySchema = refusals(codec(schema ?? Schema.Never))
      const isStream = Context.get(endpoint.annotations, Policy).isStream === true
      const values = valuesOf(components.schemas)(parameter.schema)
        .map((value) => textsOf(parameter, value))
        // Larger numbers are not exact.
        .filter((texts) => texts.join("") !== "" && !/\d{16}/.test(texts.join(" ")))
      const part = partOf(
        `${name} ${parameter.name}`,
        values,
        (texts) => refusedByDocument(typed(parameter, texts)),
        (texts) => [
          ...refusedBySchema({ [parameter.name]: texts.length === 1 ? texts[0] : texts }),
          ...(isStream ? refusedByStream(parameter.name, texts) : [])
        ]
      )
      parameters.push({ ...part, isAnyText: JSON.stringify(parameter.schema).includes('"type":"string"}') })
    }
    const schema = operation.requestBody?.content["application/json"]?.schema
    if (schema === undefined) return
    // Null is the body that is absent.
    const payloads = [...endpoint.payload.values()].flatMap(({ schemas }) => schemas)
    const values = valuesOf(components.schemas)(schema)
      .filter((value) => value !== null)
      .map((value): unknown => JSON.parse(JSON.stringify(value)))
    bodies.push(partOf(name, values, byDocument(schema), refusals(codec(Schema.Union(payloads)))))
  }
})

/** Values that the generators do not find: a path with the name of an archive. */
const unseen = new Set(["files.pack true"])

/** Bodies and parameters of which the service has accepted, or refused, a value. */
const seen = new Set<string>()

describe("spec 1.10: the document accepts what the service accepts", () => {
  for (const { judged, name } of [...parameters, ...bodies]) {
    it(`${name}: the document accepts what the service accepts, and more only by the rules above`, () => {
      fc.assert(
        fc.property(judged, ({ document, service }) => {
          seen.add(`${name} ${service.length === 0}`)
          if (service.length === 0) {
            assert.deepStrictEqual(document, [])
          } else if (document.length === 0) {
            const isBeyond = (reason: string) => beyondSchemas.some((rule) => rule.test(reason))
            assert.isTrue(service.some(isBeyond), service.join())
            for (const reason of service) assert.isTrue(isBeyond(reason) || otherMembers.test(reason), reason)
          }
        }),
        { numRuns: RUNS, seed: freshSeed() }
      )
    })
  }

  it("the values of every body, and of every parameter that is not any text, are of both kinds", () => {
    assert.isAtLeast(bodies.length, 14)
    assert.isAtLeast(parameters.length, 80)
    const kinds = [...bodies, ...parameters.filter(({ isAnyText }) => !isAnyText)].flatMap(({ name }) => [
      `${name} true`,
      `${name} false`
    ])
    assert.deepStrictEqual(
      kinds.filter((kind) => !seen.has(kind) && !unseen.has(kind)),
      []
    )
  })
})
