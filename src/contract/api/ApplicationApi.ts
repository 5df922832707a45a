import { HttpApi, OpenApi } from "effect/http-api"
import { DESCRIBED_AS } from "../domain/optionalInput.ts"
import { BackupsGroup, BackupTargetsGroup } from "./BackupsGroup.ts"
import { BlueprintsGroup, RolloutsGroup } from "./BlueprintsGroup.ts"
import { EventsGroup } from "./EventsGroup.ts"
import { FilesGroup } from "./FilesGroup.ts"
import { AuditGroup, KeysGroup, QuotasGroup } from "./KeysGroup.ts"
import { Failures, Writes } from "./middleware.ts"
import { MetricsGroup, NodesGroup, PublicPagesGroup, SystemGroup } from "./NodesGroup.ts"
import { OperationsGroup } from "./OperationsGroup.ts"
import { asOpenApi30, forGenerators } from "./openapi/document.ts"
import { SchedulesGroup } from "./SchedulesGroup.ts"
import { ServersGroup } from "./ServersGroup.ts"
import { SftpGroup, SshKeysGroup } from "./SftpGroup.ts"
import { UploadsGroup } from "./UploadsGroup.ts"
import { WebhooksGroup } from "./WebhooksGroup.ts"

/** The whole HTTP interface of the service (spec 1). */
export class ApplicationApi extends HttpApi.make("muster")
  .add(NodesGroup.prefix("/api"))
  .add(SystemGroup.prefix("/api"))
  .add(ServersGroup.prefix("/api"))
  .add(FilesGroup.prefix("/api"))
  .add(SftpGroup.prefix("/api"))
  .add(UploadsGroup.prefix("/api"))
  .add(RolloutsGroup.prefix("/api"))
  .add(OperationsGroup.prefix("/api"))
  .add(SchedulesGroup.prefix("/api"))
  .add(BackupsGroup.prefix("/api"))
  .add(BackupTargetsGroup.prefix("/api"))
  .add(BlueprintsGroup.prefix("/api"))
  .add(EventsGroup.prefix("/api"))
  .add(WebhooksGroup.prefix("/api"))
  .add(KeysGroup.prefix("/api"))
  .add(SshKeysGroup.prefix("/api"))
  .add(QuotasGroup.prefix("/api"))
  .add(AuditGroup.prefix("/api"))
  .add(PublicPagesGroup)
  .add(MetricsGroup)
  .middleware(Writes)
  .middleware(Failures)
  .annotate(HttpApi.HeadersParseOptions, { errors: "all" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.PayloadParseOptions, { onExcessProperty: "error" })
  .annotateMerge(
    OpenApi.annotations({
      title: "Muster",
      description: "Control plane for game servers: nodes, blueprints, servers, one event stream.",
      license: { name: "MIT", identifier: "MIT" },
      transform: forGenerators
    })
  ) {}

export const openApiDocument = (version: string) =>
  OpenApi.fromApi(ApplicationApi.annotate(OpenApi.Version, version), {
    includeAnnotationKey: (key) => key === DESCRIBED_AS
  })

export const openApiDocuments = [
  { path: "/openapi.json", make: openApiDocument },
  { path: "/openapi-3.0.json", make: (version: string) => asOpenApi30({ ...openApiDocument(version) }) }
] as const
