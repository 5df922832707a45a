import { Schema } from "effect"
import { reasonPhrases } from "./ApiError.ts"
import { NodeId, ServerId } from "./Id.ts"
import { MAX_CONDITIONS, SomeLabels } from "./Labels.ts"
import { describedAs, optionalInput } from "./optionalInput.ts"
import { ServerStatus } from "./ServerStatus.ts"

const MAX_IDS = 10_000

/** The servers of a bulk action: all conditions must hold, and there is at least one (spec 3.13). */
export const Selector = Schema.Struct({
  blueprint_id: optionalInput(Schema.String),
  node_id: optionalInput(NodeId),
  // Without its identifier, so that a 422 lists the values.
  status: optionalInput(Schema.Literals(ServerStatus.literals)),
  labels: optionalInput(
    Schema.Union([
      SomeLabels,
      Schema.Array(Schema.String).check(Schema.isMinLength(1), Schema.isMaxLength(MAX_CONDITIONS))
    ]).annotate({
      description: "Labels and their values, or an array of conditions `k=v`, `k!=v`, `k`, `!k`.",
      // Languages without unions write the labels.
      ...describedAs(Schema.toJsonSchemaDocument(SomeLabels).schema)
    })
  ),
  ids: optionalInput(Schema.Array(ServerId).check(Schema.isMaxLength(MAX_IDS)))
})
  .check(
    Schema.makeFilter((selector) => Object.keys(selector).length > 0, {
      expected: "at least one of blueprint_id, node_id, status, labels, ids"
    })
  )
  .annotate({ identifier: "Selector" })
export type Selector = typeof Selector.Type

export const labelConditions = ({ labels = [] }: Selector): ReadonlyArray<string> =>
  Array.isArray(labels) ? labels : Object.entries(labels).map(([key, value]) => `${key}=${value}`)

/** The outcome of a bulk action, by id: the status of success, or the error body of that server. */
export const BulkOutcomes = Schema.Record(
  Schema.String,
  Schema.Union([
    Schema.Struct({ status: Schema.Literal(200) }).annotate({ identifier: "Success" }),
    Schema.Struct({
      code: Schema.String,
      status: Schema.Literals(Object.values(reasonPhrases)),
      detail: Schema.String,
      hint: Schema.String,
      request_id: Schema.String
    }).annotate({ identifier: "Failure" })
  ])
).annotate({ identifier: "BulkOutcomes" })
export type BulkOutcomes = typeof BulkOutcomes.Type
