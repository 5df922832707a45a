import { Schema, Struct } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AuditEntry, auditIdPattern } from "../domain/AuditEntry.ts"
import { Conflict, NotFound } from "../domain/errors.ts"
import { NodeId } from "../domain/Id.ts"
import {
  Key,
  KeyName,
  KeyScope,
  keyLimitFields,
  keyLimits,
  limitsFit,
  limitsSomething,
  NamedQuota,
  pathsFit,
  QuotaName,
  QuotaUse,
  quotaLimitFields,
  quotaLimits,
  Right,
  rightsFit
} from "../domain/Key.ts"
import { TimeText } from "../domain/nowText.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { del, endpoints, get, patch, post } from "./endpoint.ts"
import { Authorization, Policy } from "./middleware.ts"
import { given, names, numberBetween, text, time } from "./query.ts"

const LONGEST = 100 * 365 * 24 * 60 * 60

/** Body of `POST /api/keys` (spec 6.2). */
export const CreateKey = Schema.Struct({
  name: KeyName,
  scope: KeyScope,
  ...optionalInputs({
    allow: Schema.Array(Right).annotate({
      description: "Rights in place of those of the scope; only for `Operator` and `ReadOnly`."
    }),
    servers: keyLimits.servers.annotate({
      description: "The key reads these servers only, and acts on no other."
    }),
    blueprints: keyLimits.blueprints.annotate({
      description: "The key reads and creates servers of these blueprints only."
    }),
    labels: keyLimits.labels.annotate({
      description: "The key reads and creates servers with all of these labels only."
    }),
    paths: keyLimits.paths.annotate({
      description: "The key reaches files in these folders only; needs `browse` or `files`."
    }),
    max_servers: keyLimits.max_servers.annotate({
      description: "Servers that the key has created and that exist; default: any number."
    }),
    max_memory: keyLimits.max_memory.annotate({
      description: "The sum of the memory limits of these servers, in MiB; default: no limit."
    }),
    quota: keyLimits.quota.annotate({
      description: "The quota that the key shares with others; default: none."
    }),
    expires_in: Schema.Finite.check(Schema.isBetween({ minimum: 1, maximum: LONGEST })).annotate({
      description: "Seconds until the key expires; default: never."
    })
  })
})
  .check(rightsFit, limitsFit, pathsFit)
  .annotate({ identifier: "CreateKey" })

/** A new key with its text, which is shown only here. */
export const CreatedKey = Schema.Struct({ ...Key.fields, key: Schema.String }).annotate({
  identifier: "CreatedKey"
})

const ListedKey = Schema.Struct({
  ...Key.fields,
  /** Null if the key belongs to no node. Only with `include=node`, as is `last_seen_at`. */
  node_id: Schema.optionalKey(Schema.NullOr(NodeId)),
  /** The last heartbeat of that node, to a minute. */
  last_seen_at: Schema.optionalKey(Schema.NullOr(TimeText))
}).annotate({ identifier: "Key" })

/** The key of the caller, and all that it may do. */
export const OwnKey = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  scope: KeyScope,
  rights: Schema.Array(Right),
  ...Struct.omit(keyLimitFields, ["quota"]),
  /** Left out, as in `quota`, while the database is unavailable. */
  used: Schema.optionalKey(QuotaUse),
  quota: Schema.optionalKey(
    Schema.Struct({ name: QuotaName, ...quotaLimitFields, used: Schema.optionalKey(QuotaUse) })
  )
}).annotate({ identifier: "OwnKey" })

const key = Schema.String.annotate({ description: "The id of the key, or its beginning." })
const ofKey = endpoints({ key }, [NotFound])

/** API keys; only keys of the scope `AppAdmin` manage them, and every key can read itself (spec 6.2). */
export class KeysGroup extends HttpApiGroup.make("keys")
  .add(
    get("list", "/keys", "List keys, also revoked ones", {
      query: { include: names(["node"], "`node`: adds the node of each key, and its last heartbeat.") },
      success: Schema.Array(ListedKey)
    }),
    post("create", "/keys", "Create a key; the response has it, once", {
      audited: "key.create",
      payload: CreateKey,
      success: CreatedKey.pipe(HttpApiSchema.status(201))
    }),
    get("self", "/keys/self", "The key of the request, with its rights", { right: "read", success: OwnKey }),
    ofKey.del("revoke", "/keys/:key", "Revoke a key, at once and permanently", {
      audited: "key.revoke",
      success: HttpApiSchema.Empty(200)
    })
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Keys" })) {}

/** Body of `POST /api/quotas` (spec 6.4). */
export const CreateQuota = Schema.Struct({ name: QuotaName, ...optionalInputs(quotaLimits) })
  .check(limitsSomething)
  .annotate({ identifier: "CreateQuota" })

/** Body of `PATCH /api/quotas/:quota`; null removes a limit. */
export const PatchQuota = Schema.Struct(
  Struct.map(Struct.map(quotaLimits, Schema.NullOr), Schema.optionalKey)
).annotate({ identifier: "PatchQuota" })

/** Quotas that keys share; only keys of the scope `AppAdmin` manage them (spec 6.4). */
export class QuotasGroup extends HttpApiGroup.make("quotas")
  .add(
    get("list", "/quotas", "List quotas with their use", { success: Schema.Array(NamedQuota) }),
    post("create", "/quotas", "Create a quota that keys share", {
      audited: "quota.create",
      payload: CreateQuota,
      success: NamedQuota.pipe(HttpApiSchema.status(201)),
      errors: [Conflict]
    }),
    get("get", "/quotas/:quota", "One quota with its use", { success: NamedQuota }),
    patch("patch", "/quotas/:quota", "Change limits of a quota; servers that exist stay", {
      audited: "quota.patch",
      payload: PatchQuota,
      success: NamedQuota
    }),
    del("remove", "/quotas/:quota", "Delete a quota that no valid key has", {
      audited: "quota.delete",
      success: HttpApiSchema.Empty(200),
      errors: [Conflict]
    })
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Quotas" })) {}

/** The audit log; only keys of the scope `AppAdmin` read it (spec 6.6). */
export class AuditGroup extends HttpApiGroup.make("audit")
  .add(
    get("list", "/audit", "Requests that may have changed something, newest first", {
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
      success: Schema.Array(AuditEntry)
    })
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "Audit" })) {}
