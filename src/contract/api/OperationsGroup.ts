import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict } from "../domain/errors.ts"
import { Operation, OperationKind, OperationState } from "../domain/Operation.ts"
import { del, get } from "./endpoint.ts"
import { Authorization } from "./middleware.ts"
import { numberBetween, oneOf, text } from "./query.ts"

/** The longest time of `Prefer: wait=N`, in seconds. */
export const LONGEST_WAIT_SECONDS = 60

/** The header with which a caller waits for the end of an operation (spec 11.2). */
export const waitHeaders = {
  prefer: Schema.optionalKey(
    Schema.String.annotate({
      description: `\`wait=N\`: the response comes once the operation has ended, or after N seconds (at most ${LONGEST_WAIT_SECONDS}).`
    })
  )
}

/** The request and the response of a route that begins an operation. */
export const begun = {
  longestWait: LONGEST_WAIT_SECONDS,
  headers: waitHeaders,
  success: Operation.pipe(HttpApiSchema.status(202))
} as const

/** Operations: tasks that may last longer than a request (spec 11). */
export class OperationsGroup extends HttpApiGroup.make("operations")
  .add(
    get("list", "/operations", "Operations that the key may see, newest first", {
      right: "read",
      query: {
        server_id: text("Only operations of this server."),
        kind: oneOf(OperationKind.literals, "Only operations of this kind."),
        state: oneOf(OperationState.literals, "Only operations in this state."),
        limit: numberBetween(1, 100, "At most this many operations; default 20. `Link` has the next page."),
        after: text("Only operations that are older than the one with this id.")
      },
      success: Schema.Array(Operation)
    }),
    get("get", "/operations/:operation", "State and progress of an operation", {
      right: "read",
      longestWait: LONGEST_WAIT_SECONDS,
      headers: waitHeaders,
      success: Operation
    }),
    del("cancel", "/operations/:operation", "Cancel an operation; nothing unfinished stays", {
      right: "read",
      audited: "operation.cancel",
      success: Operation.pipe(HttpApiSchema.status(202)),
      errors: [Conflict]
    })
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Operations" })) {}
