/** The OpenAPI document, and what it refuses. */
import { type JsonSchema, Result, Schema, SchemaRepresentation } from "effect"
import { openApiDocuments } from "../../../../src/contract/api/ApplicationApi.ts"

// Through JSON, as clients get it, with the references of JSON Schema.
export const { components, paths } = JSON.parse(
  JSON.stringify(openApiDocuments[0].make("1.2.3")).replaceAll("#/components/schemas/", "#/$defs/")
)

export const codec = (schema: Schema.Top) => Schema.make<Schema.Codec<unknown>>(schema.ast)

/** Returns the reasons for which a schema refuses a value of JSON. */
export const refusals = (schema: Schema.Codec<unknown>) => {
  const decode = Schema.decodeUnknownResult(schema, { onExcessProperty: "error", errors: "all" })
  return (value: unknown): ReadonlyArray<string> =>
    Result.match(decode(value), {
      onSuccess: () => [],
      onFailure: (error) => error.message.split("\n").filter((line) => !line.startsWith("  at "))
    })
}

/** Returns the reasons for which the document refuses a value. */
export const byDocument = (schema: JsonSchema.JsonSchema) =>
  refusals(
    codec(
      SchemaRepresentation.fromJsonSchemaDocument(
        { dialect: "draft-2020-12", schema, definitions: components.schemas },
        { patterns: "apply" }
      )
    )
  )
