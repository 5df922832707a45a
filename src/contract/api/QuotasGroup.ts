import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, InvalidRequest, NotFound } from "../domain/errors.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { limitsSomething, NamedQuota, QuotaName, quotaLimits } from "../domain/Quota.ts"
import { Authorization } from "./middleware.ts"
import { Policy, route } from "./routePolicy.ts"

const params = { quota: Schema.String.annotate({ description: "The name of the quota." }) }

/** Body of `POST /api/quotas` (spec 6.4). */
export const CreateQuota = Schema.Struct({ name: QuotaName, ...optionalInputs(quotaLimits) })
  .check(limitsSomething)
  .annotate({ identifier: "CreateQuota" })

/** Body of `PATCH /api/quotas/:quota`; null removes a limit. */
export const PatchQuota = Schema.Struct({
  max_servers: Schema.optionalKey(Schema.NullOr(quotaLimits.max_servers)),
  max_memory: Schema.optionalKey(Schema.NullOr(quotaLimits.max_memory)),
  max_cpu: Schema.optionalKey(Schema.NullOr(quotaLimits.max_cpu)),
  max_disk: Schema.optionalKey(Schema.NullOr(quotaLimits.max_disk))
}).annotate({ identifier: "PatchQuota" })

/** Quotas that keys share; only keys of the scope `AppAdmin` manage them (spec 6.4). */
export class QuotasGroup extends HttpApiGroup.make("quotas")
  .add(
    HttpApiEndpoint.get("list", "/quotas", { success: Schema.Array(NamedQuota) }).annotateMerge(
      route("List quotas with their use")
    ),
    HttpApiEndpoint.post("create", "/quotas", {
      payload: CreateQuota,
      success: NamedQuota.pipe(HttpApiSchema.status(201)),
      error: [Conflict, InvalidRequest]
    }).annotateMerge(route("Create a quota that keys share", { audited: "quota.create" })),
    HttpApiEndpoint.get("get", "/quotas/:quota", {
      params,
      success: NamedQuota,
      error: NotFound
    }).annotateMerge(route("One quota with its use")),
    HttpApiEndpoint.patch("patch", "/quotas/:quota", {
      params,
      payload: PatchQuota,
      success: NamedQuota,
      error: [NotFound, InvalidRequest]
    }).annotateMerge(route("Change limits of a quota; servers that exist stay", { audited: "quota.patch" })),
    HttpApiEndpoint.delete("remove", "/quotas/:quota", {
      params,
      success: HttpApiSchema.Empty(200),
      error: [NotFound, Conflict]
    }).annotateMerge(route("Delete a quota that no valid key has", { audited: "quota.delete" }))
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Quotas" })) {}
