/** Parameters of queries, as the API's description tells them. */
import { Predicate, Record, Schema } from "effect"

/** A parameter that may be left out. */
export const text = (description: string) => Schema.optionalKey(Schema.String.annotate({ description }))

/** A parameter that may be given more than once. */
export const many = (description: string) =>
  Schema.optionalKey(Schema.Union([Schema.String, Schema.Array(Schema.String)]).annotate({ description }))

/** Parameters of a page of lines; `first` says which lines are on the first. */
export const linePage = (first: string) => ({
  page: text(`Page of lines; 1, the default, has the ${first}.`),
  per_page: text("Lines of a page, at most 1,000; default 100.")
})

/** The description of a parameter's schema is also that of the parameter, where tools look for it. */
const describedParameter = (parameter: unknown): unknown =>
  Predicate.hasProperty(parameter, "schema") && Predicate.hasProperty(parameter.schema, "description")
    ? { ...parameter, description: parameter.schema.description }
    : parameter

/** An OpenAPI document whose parameters are described. */
export const withDescribedParameters = (document: Record<string, unknown>): Record<string, unknown> => ({
  ...document,
  paths: mapRecord(document.paths, (path) =>
    mapRecord(path, (operation) =>
      Predicate.hasProperty(operation, "parameters") && Array.isArray(operation.parameters)
        ? { ...operation, parameters: operation.parameters.map(describedParameter) }
        : operation
    )
  )
})

const mapRecord = (value: unknown, f: (item: unknown) => unknown): unknown =>
  Predicate.isObject(value) ? Record.map(value, f) : value
