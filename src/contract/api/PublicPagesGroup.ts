import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Unavailable } from "../domain/errors.ts"
import { Authorization } from "./middleware.ts"
import { Policy, route } from "./routePolicy.ts"

const Html = Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/html" }))
const Health = Schema.Struct({ status: Schema.Literal("ok") }).annotate({ identifier: "Health" })

/** Pages and health: no key (spec 1.10). */
export class PublicPagesGroup extends HttpApiGroup.make("beside", { topLevel: true })
  .add(
    HttpApiEndpoint.get("banner", "/", { success: Html }).annotateMerge(route("Banner page")),
    HttpApiEndpoint.get("nodesPage", "/nodes", { success: Html }).annotateMerge(route("Node list page")),
    HttpApiEndpoint.get("healthz", "/healthz", { success: Health }).annotateMerge(
      route("The process lives", { answersEarly: true })
    ),
    HttpApiEndpoint.get("readyz", "/readyz", { success: Health, error: Unavailable }).annotateMerge(
      route("The service can serve", { answersEarly: true })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Pages and health" })) {}

/** Prometheus metrics (spec 1.10). */
export class MetricsGroup extends HttpApiGroup.make("metrics")
  .add(
    HttpApiEndpoint.get("page", "/metrics", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" }))
    }).annotateMerge(route("Metrics in the Prometheus text format"))
  )
  .middleware(Authorization)
  .annotate(Policy, { scopes: ["Metrics", "AppAdmin"], answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Metrics" })) {}
