import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Unavailable } from "../domain/errors.ts"
import { MetricsAuthorization } from "./Authorization.ts"
import { AnswersEarly } from "./routePolicy.ts"

const Html = Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/html" }))
const Health = Schema.Struct({ status: Schema.Literal("ok") }).annotate({ identifier: "Health" })

/** Pages and health: no key (spec 1.10). */
export class PublicPagesGroup extends HttpApiGroup.make("beside", { topLevel: true })
  .add(
    HttpApiEndpoint.get("banner", "/", { success: Html }).annotateMerge(
      OpenApi.annotations({ summary: "Banner page" })
    ),
    HttpApiEndpoint.get("nodesPage", "/nodes", { success: Html }).annotateMerge(
      OpenApi.annotations({ summary: "Node list page" })
    ),
    HttpApiEndpoint.get("healthz", "/healthz", { success: Health })
      .annotateMerge(OpenApi.annotations({ summary: "The process lives" }))
      .annotate(AnswersEarly, true),
    HttpApiEndpoint.get("readyz", "/readyz", { success: Health, error: Unavailable })
      .annotateMerge(OpenApi.annotations({ summary: "The service can serve" }))
      .annotate(AnswersEarly, true)
  )
  .annotateMerge(OpenApi.annotations({ title: "Pages and health" })) {}

/** Prometheus metrics (spec 1.10). */
export class MetricsGroup extends HttpApiGroup.make("metrics")
  .add(
    HttpApiEndpoint.get("page", "/metrics", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" }))
    }).annotateMerge(OpenApi.annotations({ summary: "Metrics in the Prometheus text format" }))
  )
  .middleware(MetricsAuthorization)
  .annotate(AnswersEarly, true)
  .annotateMerge(OpenApi.annotations({ title: "Metrics" })) {}
