/** Rewrites the schemas of the OpenAPI document, so that every language has plain types for them. */
import { Predicate, Record } from "effect"
import { DESCRIBED_AS } from "../../domain/optionalInput.ts"

export type JsonObject = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is JsonObject =>
  Predicate.isObject(value) && !Array.isArray(value)

/** Maps the values of an object; anything else counts as an empty one. */
export const mapValues = (value: unknown, f: (item: unknown, key: string) => unknown): JsonObject =>
  isObject(value) ? Record.map(value, f) : {}

export const fieldsOf = (value: unknown): JsonObject => (isObject(value) ? value : {})

export const isNull = (schema: unknown): boolean => isObject(schema) && schema.type === "null"

export const isNullable = (schema: unknown): boolean =>
  isObject(schema) && Array.isArray(schema.anyOf) && schema.anyOf.some(isNull)

/** Writes `anyOf: [X, null]` as X of two types. A reference stays in its union, which generators know. */
const withNull = (schema: JsonObject): JsonObject => {
  const { anyOf, ...rest } = schema
  if (!Array.isArray(anyOf) || anyOf.length !== 2 || !anyOf.some(isNull)) return schema
  const other: unknown = anyOf.find((member) => !isNull(member))
  if (!isObject(other) || typeof other.type !== "string") return schema
  const values = Array.isArray(other.enum) ? { enum: [...other.enum, null] } : {}
  return { ...rest, ...other, type: [other.type, "null"], ...values }
}

const LARGEST_INT32 = 2 ** 31 - 1

/** Removes the value of a boolean that has only one: few languages have a type for it. */
const withoutSingleValue = (schema: JsonObject): JsonObject => {
  const { enum: values, ...rest } = schema
  return schema.type === "boolean" && values !== undefined ? rest : schema
}

/** Writes a value that is always null as an object that may be null: few languages have a type for null. */
const withoutBareNull = (schema: unknown): unknown =>
  isNull(schema) ? { type: ["object", "null"], description: "Always null." } : schema

/** Adds the width of a number. The bounds of exact integers in JavaScript say nothing to other languages. */
const withWidth = (schema: JsonObject): JsonObject => {
  const isLiteral = Array.isArray(schema.enum) && schema.enum.every(Number.isInteger)
  if (schema.type === "number" && !isLiteral) return { ...schema, format: "double" }
  if (schema.type !== "integer" && schema.type !== "number") return schema
  const isSmall = [schema.minimum, schema.maximum].every(
    (bound) => typeof bound === "number" && Math.abs(bound) <= LARGEST_INT32
  )
  const kept = Object.entries(schema).filter(
    ([, value]) => Math.abs(Number(value)) !== Number.MAX_SAFE_INTEGER
  )
  return { ...Object.fromEntries(kept), type: "integer", format: isSmall || isLiteral ? "int32" : "int64" }
}

/** Removes patterns with classes of characters by property, which many languages lack. The bounds of length stay. */
const withoutUnicodePattern = (schema: JsonObject): JsonObject => {
  const { pattern, ...rest } = schema
  if (typeof pattern !== "string" || !/\\p/i.test(pattern)) return schema
  const [, least, most] = /\{(\d+),(\d+)\}\$$/.exec(pattern) ?? []
  return least === undefined ? rest : { ...rest, minLength: Number(least), maxLength: Number(most) }
}

/** Writes an object whose keys match one pattern as a map, for which every language has a type. */
const asMap = (schema: JsonObject): JsonObject => {
  const { patternProperties, ...rest } = schema
  const [only, ...others] = isObject(patternProperties) ? Object.entries(patternProperties) : []
  if (only === undefined || others.length > 0) return schema
  const [pattern, additionalProperties] = only
  return { ...rest, propertyNames: { type: "string", pattern }, additionalProperties }
}

const withDescribed = (schema: JsonObject): JsonObject => {
  const described = schema[DESCRIBED_AS]
  return isObject(described) ? { ...described, description: schema.description } : schema
}

/** Keys whose values are data, not schemas. */
const dataKeys = new Set(["examples", "default", "enum"])

export const rewrite =
  (change: (schema: JsonObject) => unknown) =>
  (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(rewrite(change))
    if (!isObject(value)) return value
    return change(
      Record.map(value, (item, key) => {
        if (key === "properties") return mapValues(item, rewrite(change))
        return dataKeys.has(key) ? item : rewrite(change)(item)
      })
    )
  }

export const plain = (names: Readonly<Record<string, unknown>>): ((value: unknown) => unknown) =>
  rewrite((schema) => {
    const named = typeof schema.$ref === "string" ? names[schema.$ref.slice(SCHEMAS.length)] : undefined
    if (named !== undefined) return plain(names)(named)
    const shaped = withNull(
      withWidth(withoutSingleValue(withoutUnicodePattern(asMap(withDescribed(schema)))))
    )
    const { additionalProperties, properties } = shaped
    return {
      ...shaped,
      ...(isObject(properties) ? { properties: Record.map(properties, withoutBareNull) } : {}),
      ...(isNull(additionalProperties) ? { additionalProperties: withoutBareNull(additionalProperties) } : {})
    }
  })

export const SCHEMAS = "#/components/schemas/"
export const schemaRef = (name: string) => ({ $ref: SCHEMAS + name })

/** The name of a component without the number that Effect gives to a variant of it. */
const baseOf = (name: string): string => name.replace(/_\d+$/, "")

const isErrorBody = (schema: unknown): boolean =>
  isObject(schema) && ["code", "hint"].every((field) => field in fieldsOf(schema.properties))

/** Returns what variants of a component share: all but examples, and whether a field may be null. */
const shapeOf = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(shapeOf)
  if (!isObject(schema)) return typeof schema === "string" ? baseOf(schema) : schema
  const { examples, ...rest } = schema
  const { anyOf } = rest
  const [only, ...others] = Array.isArray(anyOf) ? anyOf.filter((member) => !isNull(member)) : []
  const shape = only !== undefined && others.length === 0 ? only : rest
  return isObject(shape) ? mapValues(shape, shapeOf) : shape
}

const isSameShape = (one: unknown, other: unknown): boolean =>
  JSON.stringify(shapeOf(one)) === JSON.stringify(shapeOf(other))

/** Returns the components with one schema for variants of the same shape: the one that admits most. */
export const withWidest = (schemas: JsonObject): JsonObject =>
  Record.map(schemas, (schema, name) =>
    Object.entries(schemas)
      .filter(([other, variant]) => baseOf(other) === name && isSameShape(variant, schema))
      .map(([, variant]) => variant)
      .reduce((widest, variant) => (nullsIn(variant) > nullsIn(widest) ? variant : widest), schema)
  )

const nullsIn = (schema: unknown): number => JSON.stringify(schema).split('"null"').length

/**
 * Returns the replacements of unnamed components: variants of their base's shape, unions with null, and error bodies.
 */
export const replacements = (schemas: JsonObject): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(schemas).flatMap(([name, schema]) => {
      if (isErrorBody(schema)) return [[name, schemaRef("Error")]]
      const base = baseOf(name)
      if (base !== name && isSameShape(schema, schemas[base])) return [[name, schemaRef(base)]]
      return isNullable(schema) ? [[name, schema]] : []
    })
  )
