import { HttpApiMiddleware } from "effect/http-api"
import {
  BodyTooLarge,
  InsufficientStorage,
  InternalError,
  InvalidRequest,
  TimedOut,
  Unavailable
} from "../domain/errors.ts"

/** Returns 422 for input that does not decode (spec 1.2), and declares the failures of every route. */
export class Failures extends HttpApiMiddleware.Service<Failures>()("muster/api/Failures", {
  error: [InvalidRequest, BodyTooLarge, InternalError, TimedOut, Unavailable]
}) {}

/** Returns 507 from a route that changes something, none of which is a GET, while the disk of the database is full. */
export class Writes extends HttpApiMiddleware.Service<Writes>()("muster/api/Writes", {
  error: InsufficientStorage
}) {}
