/** The audit entry of a request (operators.md, "Audit"). */
import { Clock, type Context, Effect } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { Principal } from "../api/Principal.ts"
import { AuditedRequest, AuditRecorder, CurrentAudit } from "../domain/AuditedRequest.ts"
import { auditId } from "../domain/auditId.ts"
import { clientOf } from "./clientAddress.ts"
import type { RouteMatch } from "./RouteTable.ts"

type App = Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest>

/** nginx: the caller closed the connection before the response. */
const CLIENT_CLOSED = 499

/** Begins the entry of a request; undefined: none is due. */
export const beginAudit = Effect.fnUntraced(function* (
  { isKnown, params, route }: RouteMatch,
  request: HttpServerRequest.HttpServerRequest,
  request_id: string,
  nameOf: (id: string) => string | undefined
) {
  if (route.audited === undefined || !isKnown) return undefined
  const { action, isShareable = false, object, status } = route.audited
  const now = yield* Clock.currentTimeMillis
  return new AuditedRequest({
    begin: {
      id: auditId(now),
      at: new Date(now).toISOString(),
      client: clientOf(request),
      request_id
    },
    action,
    kind: object,
    id: params[object],
    success: status,
    isShareable,
    ...(object === "server" ? { nameOf } : {})
  })
})

/** Serves a request with its audit entry, which is recorded with the status of the response. */
export const withAudit = (
  app: App,
  audited: AuditedRequest | undefined,
  record: Context.Service.Shape<typeof AuditRecorder>
): App =>
  audited === undefined || record === undefined
    ? app
    : app.pipe(
        Effect.tap(({ status }) => record(audited, status)),
        Effect.onInterrupt(() => record(audited, CLIENT_CLOSED)),
        Effect.provideService(CurrentAudit, audited),
        Effect.provideService(AuditRecorder, record)
      )

/** The caller of a request as its entry names it. */
export const actorOf = ({ key_id, name, scope }: Principal) => ({ key_id, name, scope })
