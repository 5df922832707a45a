/** The middleware of the routes: it declares their errors, and hides servers that the caller may not read. */
import { HttpApiMiddleware } from "effect/http-api"
import {
  BodyTooLarge,
  Forbidden,
  InsufficientStorage,
  InternalError,
  InvalidRequest,
  TimedOut,
  TooManyRequests,
  Unauthorized,
  Unavailable
} from "../domain/errors.ts"

/** Declares the errors of a route that needs a key (spec 1.5). `security` would decode each header twice. */
export class Authorization extends HttpApiMiddleware.Service<Authorization>()("muster/api/Authorization", {
  error: [Unauthorized, Forbidden, TooManyRequests]
}) {}

/** Hides the servers that the key of the caller may not read, and says how a deleted server ended (spec 6.3). */
export class ReadableServers extends HttpApiMiddleware.Service<ReadableServers>()(
  "muster/api/ReadableServers"
) {}

/** Returns 422 for input that does not decode (spec 1.2), and declares the failures of every route. */
export class Failures extends HttpApiMiddleware.Service<Failures>()("muster/api/Failures", {
  error: [InvalidRequest, BodyTooLarge, InternalError, TimedOut, Unavailable]
}) {}

/** Declares 507 for the disk of the database. A GET changes nothing, so only other methods respond with it. */
export class Writes extends HttpApiMiddleware.Service<Writes>()("muster/api/Writes", {
  error: InsufficientStorage
}) {}
