import { Option, Schema, SchemaGetter } from "effect"
import { nullOr } from "./units.ts"

/**
 * An optional input field: `null` counts as absent (spec 1.2).
 */
export const optionalInput = <S extends Schema.Constraint>(schema: S) =>
  Schema.optionalKey(nullOr(schema)).pipe(
    Schema.decodeTo(Schema.optionalKey(Schema.toType(schema)), {
      decode: SchemaGetter.transformOptional(Option.filter((value: S["Type"] | null) => value !== null)),
      encode: SchemaGetter.passthrough()
    })
  )
