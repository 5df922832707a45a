import { HttpApi, OpenApi } from "effect/http-api"
import { BesideGroup, MetricsGroup } from "./BesideGroup.ts"
import { BlueprintsGroup } from "./BlueprintsGroup.ts"
import { EventsGroup } from "./EventsGroup.ts"
import { AnyFailure, SchemaErrors } from "./Failures.ts"
import { NodesGroup, SystemGroup } from "./NodesGroup.ts"
import { withDescribedParameters } from "./query.ts"
import { ServersGroup } from "./ServersGroup.ts"

/** The whole HTTP interface of the service: the contract, as a value. */
export class ApplicationApi extends HttpApi.make("muster")
  .add(NodesGroup.prefix("/api"))
  .add(SystemGroup.prefix("/api"))
  .add(ServersGroup.prefix("/api"))
  .add(BlueprintsGroup.prefix("/api"))
  .add(EventsGroup.prefix("/api"))
  .add(BesideGroup)
  .add(MetricsGroup)
  .middleware(SchemaErrors)
  .middleware(AnyFailure)
  .annotate(HttpApi.PayloadParseOptions, { onExcessProperty: "error" })
  .annotateMerge(
    OpenApi.annotations({
      title: "Muster",
      description: "Control plane for game servers: nodes, blueprints, servers, one event stream.",
      transform: withDescribedParameters
    })
  ) {}
