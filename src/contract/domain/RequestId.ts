import { Context } from "effect"

/**
 * The id of the request that the current fiber serves; undefined outside a request.
 * It is on every log line and in every error body (spec 1).
 */
export const RequestId = Context.Reference<string | undefined>("muster/domain/RequestId", {
  defaultValue: () => undefined
})
