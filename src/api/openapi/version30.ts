/** The document as OpenAPI 3.0, for generators that do not read 3.1 or have no types for unions. */
import { fieldsOf, isNull, type JsonObject, mapValues, rewrite, SCHEMAS } from "./schemas.ts"

/** Writes null as `nullable`. A reference has no siblings in 3.0, so that it stands in `allOf`. */
const withNullable = (schema: JsonObject): JsonObject => {
  const { anyOf, type, ...rest } = schema
  if (Array.isArray(type)) return { ...rest, type: type.find((name) => name !== "null"), nullable: true }
  if (!Array.isArray(anyOf) || !anyOf.some(isNull)) return schema
  return { ...rest, nullable: true, allOf: anyOf.filter((member) => !isNull(member)) }
}

/** Returns an object with the fields of several: a field of different types may have any value. */
const withFieldsOf = (members: ReadonlyArray<JsonObject>): JsonObject => {
  const fields = members.flatMap((member) => Object.entries(fieldsOf(member.properties)))
  const isSame = ([name, field]: readonly [string, unknown]) =>
    fields.every(([other, it]) => other !== name || JSON.stringify(it) === JSON.stringify(field))
  const required = Object.keys(Object.fromEntries(fields)).filter((name) =>
    members.every((member) => Array.isArray(member.required) && member.required.includes(name))
  )
  return {
    type: "object",
    properties: Object.fromEntries(fields.map((field) => [field[0], isSame(field) ? field[1] : {}])),
    ...(required.length === 0 ? {} : { required })
  }
}

/** Rewrites the schemas in a part of the document. */
const asSchemas30 = (components: JsonObject): ((value: unknown) => unknown) =>
  rewrite((schema) => {
    const { anyOf, examples, propertyNames: _, ...rest } = withNullable(schema)
    const members = Array.isArray(anyOf)
      ? anyOf.map(({ $ref, ...inline }) =>
          fieldsOf(
            $ref === undefined ? inline : asSchemas30(components)(components[$ref.slice(SCHEMAS.length)])
          )
        )
      : []
    return {
      ...rest,
      ...(members.length === 0 ? {} : withFieldsOf(members)),
      ...(Array.isArray(examples) ? { example: examples[0] } : examples === undefined ? {} : { examples })
    }
  })

/** Returns a document of OpenAPI 3.1 as 3.0, which cannot limit the keys of a map. */
export const asOpenApi30 = (document: JsonObject): JsonObject => {
  const { ServerEvent: _, ...schemas } = fieldsOf(fieldsOf(document.components).schemas)
  const { identifier: _spdx, ...license } = fieldsOf(fieldsOf(document.info).license)
  return {
    ...mapValues(
      { ...document, components: { ...fieldsOf(document.components), schemas } },
      asSchemas30(schemas)
    ),
    openapi: "3.0.3",
    info: { ...fieldsOf(document.info), license }
  }
}
