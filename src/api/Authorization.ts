import { HttpApiMiddleware } from "effect/http-api"
import { Forbidden, TooManyRequests, Unauthorized } from "../domain/errors.ts"
import type { Scopes } from "./routePolicy.ts"

/**
 * Requires a key of the scope `AppAdmin`, or the right that the route needs (spec 1.5, 6.2).
 * The pipeline has verified the key: with `security`, `HttpApi` would decode the header of each request again.
 */
export class Authorization extends HttpApiMiddleware.Service<Authorization>()("muster/api/Authorization", {
  error: [Unauthorized, Forbidden, TooManyRequests]
}) {
  static readonly scopes: Scopes = ["AppAdmin", "Operator", "ReadOnly"]
}

/** Requires a key of the scope `Metrics` or `AppAdmin` (spec 1.10). */
export class MetricsAuthorization extends HttpApiMiddleware.Service<MetricsAuthorization>()(
  "muster/api/MetricsAuthorization",
  {
    error: [Unauthorized, Forbidden, TooManyRequests]
  }
) {
  static readonly scopes: Scopes = ["Metrics", "AppAdmin"]
}
