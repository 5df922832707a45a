import { Predicate } from "effect"
import { HttpApi, OpenApi } from "effect/http-api"
import { AuditGroup } from "./AuditGroup.ts"
import { BlueprintsGroup } from "./BlueprintsGroup.ts"
import { EventsGroup } from "./EventsGroup.ts"
import { AnyFailure, SchemaErrors } from "./Failures.ts"
import { KeysGroup } from "./KeysGroup.ts"
import { NodesGroup, SystemGroup } from "./NodesGroup.ts"
import { MetricsGroup, PublicPagesGroup } from "./PublicPagesGroup.ts"
import { withDescribedParameters } from "./query.ts"
import { RolloutsGroup } from "./RolloutsGroup.ts"
import { ServersGroup } from "./ServersGroup.ts"
import { WebhooksGroup } from "./WebhooksGroup.ts"

/** Writes the scheme of keys in lower case: tools then offer a field for the key. */
const withKnownScheme = (document: Record<string, unknown>): Record<string, unknown> => ({
  ...document,
  components: {
    ...(Predicate.isObject(document.components) ? document.components : {}),
    securitySchemes: { bearer: { type: "http", scheme: "bearer" } }
  }
})

/** The whole HTTP interface of the service (application-api.md). */
export class ApplicationApi extends HttpApi.make("muster")
  .add(NodesGroup.prefix("/api"))
  .add(SystemGroup.prefix("/api"))
  .add(ServersGroup.prefix("/api"))
  .add(RolloutsGroup.prefix("/api"))
  .add(BlueprintsGroup.prefix("/api"))
  .add(EventsGroup.prefix("/api"))
  .add(WebhooksGroup.prefix("/api"))
  .add(KeysGroup.prefix("/api"))
  .add(AuditGroup.prefix("/api"))
  .add(PublicPagesGroup)
  .add(MetricsGroup)
  .middleware(SchemaErrors)
  .middleware(AnyFailure)
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.PayloadParseOptions, { onExcessProperty: "error" })
  .annotateMerge(
    OpenApi.annotations({
      title: "Muster",
      description: "Control plane for game servers: nodes, blueprints, servers, one event stream.",
      transform: (document) => withKnownScheme(withDescribedParameters(document))
    })
  ) {}
