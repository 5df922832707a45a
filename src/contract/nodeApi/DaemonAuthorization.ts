import { HttpApiMiddleware } from "effect/http-api"
import { Conflict, NotFound, Unauthorized } from "../domain/errors.ts"

/** Declares the errors of all calls: refusals, and no token of the last registration, which the pipeline checks. */
export class DaemonAuthorization extends HttpApiMiddleware.Service<DaemonAuthorization>()(
  "muster/api/DaemonAuthorization",
  { error: [Unauthorized, NotFound, Conflict] }
) {}
