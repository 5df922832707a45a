import { Effect, Option } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { Unauthorized } from "../../contract/domain/errors.ts"
import { type OperationRecord, shownOperation } from "../../contract/domain/Operation.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal, KeyEnds } from "../http/Principal.ts"
import { LimitReached, limitResponse } from "../http/rateLimit.ts"
import { filled, pageAfter, pageResponse, preferredWait } from "../http/requestUrl.ts"
import { makeForSeconds } from "../servers/waiting.ts"
import { Operations } from "./Operations.ts"

const respond = (
  status: 200 | 202,
  record: OperationRecord,
  headers: Readonly<Record<string, string>> = {}
) => HttpServerResponse.jsonUnsafe(shownOperation(record), { status, headers })

/** Waits for the end of operations, as callers ask with `Prefer: wait=N`. */
const makeWait = Effect.gen(function* () {
  const forSeconds = yield* makeForSeconds
  const keyEnds = yield* KeyEnds
  const operations = yield* Operations
  /** Returns the operation after its end or the time, and the header that says so. `isRevoked`: the key has ended. */
  return Effect.fnUntraced(function* (record: OperationRecord, prefer: string | undefined) {
    const seconds = preferredWait(prefer)
    if (seconds === undefined) return { record, headers: {}, isRevoked: false }
    const revoked = Effect.as(keyEnds(yield* CurrentPrincipal), "revoked" as const)
    const waited = yield* forSeconds(Effect.raceFirst(operations.ended(record), revoked), seconds)
    if (Option.contains(waited, "revoked")) return { record, headers: {}, isRevoked: true }
    const now = yield* Effect.catchTag(operations.find(record.id), "NotFound", () => Effect.succeed(record))
    return { record: now, headers: { "preference-applied": "wait" }, isRevoked: false }
  })
})

/**
 * Returns how a route responds that begins an operation: 202 with its address after the wait of the caller (spec 11.2),
 * or 429 if there are too many.
 */
export const makeAccepted = Effect.map(
  makeWait,
  (wait) =>
    <E, R>(begin: Effect.Effect<OperationRecord, E | LimitReached, R>, prefer: string | undefined) =>
      Effect.flatMap(begin, (begun) => wait(begun, prefer)).pipe(
        Effect.map(({ headers, record }) =>
          respond(202, record, { location: `/api/operations/${record.id}`, ...headers })
        ),
        Effect.catchIf((error) => error instanceof LimitReached, limitResponse)
      )
)

/** Handlers of the routes of operations (spec 11.2). */
export const OperationsHandlers = handlersOf(
  ApplicationApi,
  "operations",
  Effect.fn(function* (handlers) {
    const operations = yield* Operations
    const wait = yield* makeWait
    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ query, request }) {
        const { kind, server_id, state } = query
        const { next, records } = yield* operations.list({
          ...pageAfter(query, 20),
          ...filled({ kind, server_id, state })
        })
        return pageResponse(request.url, records.map(shownOperation), next)
      }),
      get: Effect.fnUntraced(function* ({ headers: { prefer }, params }) {
        const found = yield* operations.find(params.operation)
        const { headers, isRevoked, record } = yield* wait(found, prefer)
        if (isRevoked) return yield* HttpServerRespondable.toResponse(Unauthorized.keyEnded())
        return respond(200, record, headers)
      }),
      cancel: ({ params }) =>
        Effect.map(operations.cancel(params.operation), (record) => respond(202, record))
    })
  })
)
