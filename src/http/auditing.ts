/** The audit entry of a request (spec 6.6). */
import { Clock, type Fiber } from "effect"
import type { HttpServerRequest } from "effect/http"
import type { Principal } from "../api/Principal.ts"
import { AuditedRequest } from "../domain/AuditedRequest.ts"
import { auditId } from "../domain/auditId.ts"
import { clientOf } from "./clientAddress.ts"
import type { RouteMatch } from "./RouteTable.ts"

/** nginx: the caller closed the connection before the response. */
export const CLIENT_CLOSED = 499

/** Begins the entry of a request; undefined: none is due, because nothing is audited or the caller has no valid key. */
export const beginAudit = (
  given: {
    readonly fiber: Fiber.Fiber<unknown, unknown>
    readonly request: HttpServerRequest.HttpServerRequest
    readonly found: RouteMatch
    readonly id: string
  },
  principal: Principal | undefined,
  nameOf: (id: string) => string | undefined
): AuditedRequest | undefined => {
  const { found, fiber, id, request } = given
  const { isKnown, params, route } = found
  if (route.audited === undefined || !isKnown || principal === undefined) return undefined
  const { action, isShareable = false, object, status } = route.audited
  const { key_id, name, scope } = principal
  const now = fiber.getRef(Clock.Clock).currentTimeMillisUnsafe()
  return new AuditedRequest({
    begin: {
      id: auditId(now),
      at: new Date(now).toISOString(),
      client: clientOf(request),
      request_id: id
    },
    action,
    kind: object,
    id: params[object],
    success: status,
    actor: { key_id, name, scope },
    isShareable,
    ...(object === "server" ? { nameOf } : {})
  })
}
