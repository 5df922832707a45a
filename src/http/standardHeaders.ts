import { randomUUID } from "node:crypto"
import { HttpServerResponse } from "effect/http"
import { isApi, requestPath } from "./requestPath.ts"

const acceptable = /^[A-Za-z0-9._-]{1,128}$/

/** Returns the inbound `X-Request-Id` if it is acceptable, else a new one (decisions, section 1). */
export const requestIdOf = (inbound: string | undefined): string =>
  inbound !== undefined && acceptable.test(inbound) ? inbound : randomUUID()

const everywhere = { "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" }

/**
 * Adds the headers of every response: the request id and restrictions for browsers. Responses under `/api` are not
 * stored unless the route permits it.
 */
export const withStandardHeaders = (
  response: HttpServerResponse.HttpServerResponse,
  request_id: string,
  url: string
) =>
  HttpServerResponse.setHeaders(response, {
    "x-request-id": request_id,
    ...everywhere,
    ...(response.headers["cache-control"] === undefined && isApi(requestPath(url))
      ? { "cache-control": "no-store" }
      : {})
  })
