/** Requests to a route of the OpenAPI document: valid, nearly valid and invalid. */
import * as fc from "fast-check"

/** The keywords of JSON Schema that the generator uses. */
export interface JsonSchema {
  readonly $ref?: string
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly allOf?: ReadonlyArray<JsonSchema>
  readonly type?: string
  readonly enum?: ReadonlyArray<unknown>
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly additionalProperties?: boolean | JsonSchema
  readonly required?: ReadonlyArray<string>
  readonly items?: JsonSchema
  readonly minimum?: number
  readonly maximum?: number
}

export interface Operation {
  readonly parameters?: ReadonlyArray<{ readonly name: string; readonly in: string }>
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: JsonSchema }>> }
  readonly responses: Readonly<Record<string, unknown>>
}

export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> }
}

/** One generated request. */
export interface Generated {
  readonly method: string
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** Text that breaks naive code: NUL, controls, lone surrogates, names of prototypes, paths. */
const text = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom("kept", "passing", "nope", "game", "1.0", "true", "start", "A", "")
  },
  { weight: 2, arbitrary: fc.string({ unit: "binary", maxLength: 20 }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      "__proto__",
      "constructor",
      "../../etc/passwd",
      "\0",
      "\ud800",
      "é🎮",
      "\u2028",
      "-1",
      "1e309"
    )
  },
  { weight: 1, arbitrary: fc.integer({ min: 100, max: 5000 }).map((length) => "x".repeat(length)) }
)

const json: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 4, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.integer({ min: 10, max: 20_000 }).map((depth) => ({ nested: depth })) }
)

/** Values for a schema, about half of them invalid. */
export const near = (document: Document, schema: JsonSchema, depth = 0): fc.Arbitrary<unknown> => {
  const right = rightFor(document, schema, depth)
  return depth > 4 ? json : fc.oneof({ weight: 12, arbitrary: right }, { weight: 1, arbitrary: json })
}

/** Most creations name an existing blueprint, so that their other fields are checked. */
const fieldOf = (name: string, values: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  name === "blueprint_id"
    ? fc.oneof({ weight: 3, arbitrary: fc.constantFrom("kept", "passing") }, { weight: 1, arbitrary: values })
    : values

const rightFor = (document: Document, schema: JsonSchema, depth: number): fc.Arbitrary<unknown> => {
  if (schema.$ref !== undefined) {
    const found = document.components.schemas[schema.$ref.split("/").at(-1) ?? ""]
    return found === undefined ? json : rightFor(document, found, depth)
  }
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  if (schema.anyOf !== undefined && schema.anyOf.length > 0) {
    return fc.oneof(...schema.anyOf.map((one) => near(document, one, depth)))
  }
  switch (schema.type) {
    case "object": {
      const fields = Object.entries(schema.properties ?? {})
      const known = fc.record(
        Object.fromEntries(
          fields.map(([name, field]) => [name, fieldOf(name, near(document, field, depth + 1))])
        ),
        { requiredKeys: Object.hasOwn(schema.properties ?? {}, "blueprint_id") ? ["blueprint_id"] : [] }
      )
      const { additionalProperties } = schema
      const free =
        typeof additionalProperties === "object"
          ? fc.dictionary(text, near(document, additionalProperties, depth + 1), { maxKeys: 4 })
          : fc.oneof(
              { weight: 9, arbitrary: fc.constant({}) },
              { weight: 1, arbitrary: fc.dictionary(text, json, { maxKeys: 2 }) }
            )
      return fc.tuple(known, free).map(([one, other]) => ({ ...other, ...one }))
    }
    case "array":
      return fc.array(schema.items === undefined ? json : near(document, schema.items, depth + 1), {
        maxLength: 5
      })
    case "integer":
      return fc.oneof(fc.integer({ min: -2, max: 2000 }), fc.maxSafeInteger())
    case "number":
      return fc.oneof(fc.integer({ min: 0, max: 500 }), fc.double({ noNaN: true }))
    case "boolean":
      return fc.boolean()
    case "null":
      return fc.constant(null)
    case "string":
      return text
    default:
      return json
  }
}

/** JSON text, in which `{"nested": n}` stands for arrays nested n deep. */
const write = (value: unknown): string =>
  (JSON.stringify(value) ?? "null").replace(
    /\{"nested":(\d+)\}/g,
    (_, depth) => "[".repeat(Number(depth)) + "]".repeat(Number(depth))
  )

const bytes = (value: string) => new TextEncoder().encode(value)

const bodyFor = (document: Document, operation: Operation | undefined): fc.Arbitrary<Uint8Array> => {
  const schema = Object.values(operation?.requestBody?.content ?? {})[0]?.schema
  const sound =
    schema === undefined
      ? fc.constant(new Uint8Array())
      : near(document, schema).map((it) => bytes(write(it)))
  return fc.oneof(
    { weight: 8, arbitrary: sound },
    { weight: 1, arbitrary: json.map((it) => bytes(write(it))) },
    {
      weight: 1,
      arbitrary: fc.tuple(sound, fc.nat()).map(([all, at]) => all.slice(0, at % (all.length + 1)))
    },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 100 }) }
  )
}

const segment = fc.oneof(
  { weight: 6, arbitrary: text.map((it) => encodeURIComponent(it.toWellFormed())) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      "..",
      ".",
      "%zz",
      "%ff",
      "%00",
      "%2F",
      "*",
      ":server",
      "a;b",
      "a%",
      "reload",
      ""
    )
  },
  { weight: 1, arbitrary: fc.stringMatching(/^[!-~]{0,30}$/) }
)

const query = (operation: Operation | undefined): fc.Arbitrary<string> => {
  const names = (operation?.parameters ?? []).filter((one) => one.in === "query").map((one) => one.name)
  const name = fc.oneof(
    ...names.map((one) => fc.constant(one)),
    text.map((it) => encodeURIComponent(it.toWellFormed()))
  )
  const pairs = fc.array(fc.tuple(name, segment), { maxLength: 5 })
  return pairs.map((all) =>
    all.length === 0 ? "" : `?${all.map(([key, value]) => `${key}=${value}`).join("&")}`
  )
}

/** Values of a header. */
const value = fc.oneof(
  fc.constantFrom("", "1", "0", "-1", "application/json", "text/plain", "*/*", "x".repeat(129), "a-key"),
  fc.stringMatching(/^[!-~]{1,40}$/)
)
const names = [
  "content-type",
  "accept",
  "x-request-id",
  "idempotency-key",
  "last-event-id",
  "origin",
  "x-forwarded-for",
  "cookie",
  "x-other"
]

const headers = (key: string): fc.Arbitrary<Record<string, string>> =>
  fc
    .tuple(
      fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 4 }),
      fc.oneof({ weight: 20, arbitrary: fc.constant(`Bearer ${key}`) }, { weight: 1, arbitrary: value }),
      fc.oneof(
        { weight: 15, arbitrary: fc.constant({}) },
        { weight: 1, arbitrary: fc.constant({ upgrade: "websocket", connection: "Upgrade" }) }
      )
    )
    .map(([given, authorization, upgrade]) => ({ ...given, authorization, ...upgrade }))

const others = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"]

/**
 * Requests to one route, its path as in the contract (`/api/servers/:server`).
 *
 * @param known ids of existing objects, used as path parameters half of the time
 */
export const requestsTo = (
  document: Document,
  route: { readonly method: string; readonly path: string },
  key: string,
  known: ReadonlyArray<string>
): fc.Arbitrary<Generated> => {
  const parameter = known.length === 0 ? segment : fc.oneof(fc.constantFrom(...known), segment)
  const operation = document.paths[route.path.replaceAll(/:(\w+)/g, "{$1}")]?.[route.method.toLowerCase()]
  const target = fc
    .tuple(fc.array(parameter, { minLength: 3, maxLength: 3 }), query(operation))
    .map(([segments, search]) => {
      let next = 0
      return route.path.replaceAll(/:\w+/g, () => segments[next++] ?? "") + search
    })
  const method = fc.oneof(
    { weight: 8, arbitrary: fc.constant(route.method) },
    { weight: 1, arbitrary: fc.constantFrom(...others) }
  )
  return fc.record({ method, target, headers: headers(key), body: bodyFor(document, operation) })
}
