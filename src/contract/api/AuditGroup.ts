import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { AuditEntry, auditIdPattern } from "../domain/AuditEntry.ts"
import { InvalidRequest } from "../domain/errors.ts"
import { Authorization } from "./middleware.ts"
import { given, numberBetween, text, time } from "./query.ts"
import { Policy, route } from "./routePolicy.ts"

/** The audit log; only keys of the scope `AppAdmin` read it (spec 6.6). */
export class AuditGroup extends HttpApiGroup.make("audit")
  .add(
    HttpApiEndpoint.get("list", "/audit", {
      query: {
        since: time("Only requests since this time (RFC 3339)."),
        until: time("Only requests until this time (RFC 3339)."),
        actor: text("Only requests of this key: its id or its name; `cli`: of commands beside the service."),
        action: text(
          "Only this action, or all that begin with these parts: `server.power` also selects `server.power.stop`."
        ),
        object: text(
          "Only requests on the object with this id, or on the server with this name, also as one object of a bulk action."
        ),
        result: given(
          /^(?:ok|refused|[1-5]\d\d)?$/,
          "ok, refused or a status such as 409",
          "`ok`: only a status below 400; `refused`: only others; or one status."
        ),
        limit: numberBetween(1, 1000, "At most this many entries; default 100. `Link` has the next page."),
        after: given(
          new RegExp(`^(?:${auditIdPattern.source.slice(1, -1)})?$`),
          "the id of an entry",
          "Only entries that are older than the one with this id."
        )
      },
      success: Schema.Array(AuditEntry),
      error: InvalidRequest
    }).annotateMerge(route("Requests that may have changed something, newest first"))
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Audit" })) {}
