/** The document as OpenAPI 3.0, for generators that do not read 3.1 or have no types for unions. */
import { fieldsOf, isNull, type JsonObject, mapValues, rewrite, SCHEMAS, schemaRef } from "./schemas.ts"

const besideNull = ({ anyOf }: JsonObject): string | undefined => {
  const refs = Array.isArray(anyOf) && anyOf.some(isNull) ? anyOf.flatMap(({ $ref }) => $ref ?? []) : []
  return refs[0]?.slice(SCHEMAS.length)
}

/** Writes null as `nullable`. References have no siblings in 3.0: {@link withNullables} marks their component. */
const withNullable = (schema: JsonObject, components: JsonObject): JsonObject => {
  const { anyOf, type, ...rest } = schema
  if (Array.isArray(type)) return { ...rest, type: type.find((name) => name !== "null"), nullable: true }
  const name = besideNull(schema)
  if (name === undefined) return schema
  const component = fieldsOf(components[name])
  return component.enum === undefined
    ? schemaRef(name)
    : { ...component, ...rest, nullable: true, enum: [component.enum, null].flat() }
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

const asSchemas30 = (components: JsonObject): ((value: unknown) => unknown) =>
  rewrite((schema) => {
    const { anyOf, examples, propertyNames: _, ...rest } = withNullable(schema, components)
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

/** A component admits null if the document of 3.1, as text, has it beside null anywhere. */
const withNullables = (components: JsonObject, text: string): JsonObject =>
  mapValues(components, (schema, name) =>
    fieldsOf(schema).enum === undefined && text.includes(`${JSON.stringify(schemaRef(name))},{"type":"null"}`)
      ? { ...fieldsOf(schema), nullable: true }
      : schema
  )

/** Returns a document of OpenAPI 3.1 as 3.0, which cannot limit the keys of a map. */
export const asOpenApi30 = (document: JsonObject): JsonObject => {
  const { ServerEvent: _, ...schemas } = fieldsOf(fieldsOf(document.components).schemas)
  const { identifier: _spdx, ...license } = fieldsOf(fieldsOf(document.info).license)
  const { components, ...parts } = mapValues(
    { ...document, components: { ...fieldsOf(document.components), schemas } },
    asSchemas30(schemas)
  )
  return {
    ...parts,
    components: {
      ...fieldsOf(components),
      schemas: withNullables(fieldsOf(fieldsOf(components).schemas), JSON.stringify(document))
    },
    openapi: "3.0.3",
    info: { ...fieldsOf(document.info), license }
  }
}
