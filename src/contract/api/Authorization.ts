import { HttpApiMiddleware } from "effect/http-api"
import { Forbidden, TooManyRequests, Unauthorized } from "../domain/errors.ts"

/** Declares the errors of a route that needs a key (spec 1.5). `security` would decode each header twice. */
export class Authorization extends HttpApiMiddleware.Service<Authorization>()("muster/api/Authorization", {
  error: [Unauthorized, Forbidden, TooManyRequests]
}) {}

/** Hides the servers that the key of the caller may not read, and says how a deleted server ended (spec 6.3). */
export class ReadableServers extends HttpApiMiddleware.Service<ReadableServers>()(
  "muster/api/ReadableServers"
) {}
