/** Values at the bounds of a schema of the OpenAPI document, half of them outside. */
import * as fc from "fast-check"

/** The keywords of JSON Schema in the bodies of requests. */
interface Described {
  readonly $ref?: string
  readonly anyOf?: ReadonlyArray<Described>
  readonly type?: string | ReadonlyArray<string>
  readonly enum?: ReadonlyArray<unknown>
  readonly properties?: Readonly<Record<string, Described>>
  readonly required?: ReadonlyArray<string>
  readonly additionalProperties?: boolean | Described
  readonly propertyNames?: Described
  readonly items?: Described
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
  readonly minItems?: number
  readonly maxItems?: number
  readonly pattern?: string
  readonly format?: string
}

const times = fc
  .date({ min: new Date(0), max: new Date("9999-01-01"), noInvalidDate: true })
  .map((date) => date.toISOString())

const rare = <A>(usual: fc.Arbitrary<A>, other: fc.Arbitrary<A>): fc.Arbitrary<A> =>
  fc.oneof({ weight: 15, arbitrary: usual }, { weight: 1, arbitrary: other })

const others: ReadonlyArray<unknown> = ["", "other", -1, 0.5, 2 ** 60, true, [], {}, null]
const other = fc.constantFrom(...others)

/** Texts that match, and texts at the bound of the length, in characters of one and of two UTF-16 units. */
const texts = ({ format, maxLength, pattern }: Described): fc.Arbitrary<unknown> => {
  if (format === "date-time") return times
  const matching = pattern === undefined ? fc.string() : fc.stringMatching(new RegExp(pattern, "u"))
  if (maxLength === undefined) return rare(matching, fc.constantFrom("\u0000", "\u2028", "\ud800", " "))
  const long = ["a", "🎮"].flatMap((sign) => [sign.repeat(maxLength), sign.repeat(maxLength + 1)])
  return rare(matching, fc.constantFrom(...long, "\u0000", "\u2028"))
}

const numbers = ({ maximum, minimum, type }: Described, name: string): fc.Arbitrary<unknown> => {
  const [least, most] = [minimum ?? Number.MIN_SAFE_INTEGER, maximum ?? Number.MAX_SAFE_INTEGER]
  const inside =
    name === "integer"
      ? fc.maxSafeInteger().map((n) => Math.min(most, Math.max(least, n)))
      : fc.constantFrom(least, most, Math.min(most, least + 0.5))
  return type === undefined
    ? inside
    : rare(inside, fc.constantFrom(least, most, least - 1, most + 1, least + 0.5))
}

/** Most addresses of webhooks and targets are some, so that their other fields are checked. */
const fieldOf = (name: string, values: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  name === "url" || name === "endpoint" ? rare(fc.constant("https://example.invalid/"), values) : values

/** Returns values for a schema; `components` are the schemas of the document by name. */
export const valuesOf = (components: Readonly<Record<string, Described>>) => {
  const arrays = (schema: Described): fc.Arbitrary<unknown> => {
    const item = schema.items === undefined ? other : values(schema.items)
    const most = schema.maxItems ?? 5
    return fc.oneof(
      fc.array(item, { minLength: schema.minItems ?? 0, maxLength: Math.min(most, 5) }),
      ...(most > 200 ? [] : [fc.array(item, { minLength: most + 1, maxLength: most + 1 })])
    )
  }
  const objects = (schema: Described): fc.Arbitrary<unknown> => {
    const { additionalProperties: more, properties = {}, propertyNames, required = [] } = schema
    const fields = fc.record(
      Object.fromEntries(
        Object.entries(properties).map(([name, field]) => [name, fieldOf(name, values(field))])
      ),
      { requiredKeys: [...required] }
    )
    const known =
      typeof more === "object"
        ? fc.dictionary(texts(propertyNames ?? {}).map(String), values(more), { maxKeys: 3 })
        : fields
    return rare(
      known,
      fc.oneof(
        fc.record({ other }),
        known.map((it) => ({ ...Object(it), other: 1 })),
        fc.constant({})
      )
    )
  }
  const values = (schema: Described): fc.Arbitrary<unknown> => {
    if (schema.$ref !== undefined) return values(components[schema.$ref.split("/").at(-1) ?? ""] ?? {})
    if (schema.enum !== undefined) return rare(fc.constantFrom(...schema.enum), other)
    if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(values))
    const typed = [schema.type ?? []].flat().map((type) => {
      if (type === "object") return objects(schema)
      if (type === "array") return arrays(schema)
      if (type === "string") return texts(schema)
      if (type === "null") return fc.constant(null)
      return type === "boolean" ? fc.boolean() : numbers(schema, type)
    })
    return rare(typed.length === 0 ? other : fc.oneof(...typed), other)
  }
  return values
}
