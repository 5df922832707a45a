import { Option, Schema, SchemaGetter, Struct } from "effect"
import { nullOr } from "./units.ts"

/** An optional input field; `null` counts as absent (spec 1.2). */
export const optionalInput = <S extends Schema.Constraint>(schema: S) =>
  Schema.optionalKey(nullOr(schema)).pipe(
    Schema.decodeTo(Schema.optionalKey(Schema.toType(schema)), {
      decode: SchemaGetter.transformOptional(Option.filter((value: S["Type"] | null) => value !== null)),
      encode: SchemaGetter.passthrough()
    })
  )

interface OptionalInput extends Struct.Lambda {
  <S extends Schema.Constraint>(schema: S): ReturnType<typeof optionalInput<S>>
  readonly "~lambda.out": this["~lambda.in"] extends Schema.Constraint
    ? ReturnType<typeof optionalInput<this["~lambda.in"]>>
    : never
}

export const optionalInputs = Struct.map(Struct.lambda<OptionalInput>(optionalInput))

export const DESCRIBED_AS = "x-described-as"

/**
 * Annotates a schema with its form in the OpenAPI document: a text query parameter is an integer or list to callers.
 */
export const describedAs = (schema: Readonly<Record<string, unknown>>) => ({ [DESCRIBED_AS]: schema })
