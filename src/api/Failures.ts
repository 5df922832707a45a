import { HttpApiMiddleware } from "effect/http-api"
import {
  BodyTooLarge,
  InsufficientStorage,
  InternalError,
  InvalidRequest,
  TimedOut,
  Unavailable
} from "../domain/errors.ts"

/** Adds the failures of every route to the contract, so that OpenAPI and clients know them. */
export class AnyFailure extends HttpApiMiddleware.Service<AnyFailure>()("muster/api/AnyFailure", {
  error: [BodyTooLarge, InternalError, TimedOut, Unavailable]
}) {}

/** Returns 507 from a route that changes something while the disk of the database is full. */
export class Writes extends HttpApiMiddleware.Service<Writes>()("muster/api/Writes", {
  error: InsufficientStorage
}) {}

/** Returns 422 for input that does not decode (spec 1). */
export class SchemaErrors extends HttpApiMiddleware.Service<SchemaErrors>()("muster/api/SchemaErrors", {
  error: InvalidRequest
}) {}
