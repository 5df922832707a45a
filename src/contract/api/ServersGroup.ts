import { Schema } from "effect"
import { type HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ConsoleLine } from "../domain/ConsoleLine.ts"
import { CrashRecord } from "../domain/CrashRecord.ts"
import { Conflict, CursorExpired, NotFound, UpgradeRequired } from "../domain/errors.ts"
import { NodeId, ServerId } from "../domain/Id.ts"
import { ExpiresIn, LabelKey, Labels, LabelValue, ServerName } from "../domain/Labels.ts"
import { NodeFit } from "../domain/Node.ts"
import { InstallReport, PowerAction } from "../domain/NodeMessages.ts"
import { OverridesChange, OverridesInput } from "../domain/Overrides.ts"
import { optionalInput, optionalInputs } from "../domain/optionalInput.ts"
import { LinePage, LogPage } from "../domain/Pagination.ts"
import { RunPriority, RunRule } from "../domain/RunRule.ts"
import { BulkOutcomes, Selector } from "../domain/Selector.ts"
import { includable, Server, ServerStats, StatsById } from "../domain/Server.ts"
import { DefinitionChange, DefinitionView } from "../domain/ServerDefinition.ts"
import { ServerEvent } from "../domain/ServerEvent.ts"
import { ServerStatus } from "../domain/ServerStatus.ts"
import { nullOr } from "../domain/units.ts"
import { EventHeaders, EventQuery } from "./EventsGroup.ts"
import { endpoints, errorsOfNode, pathParams } from "./endpoint.ts"
import { serverExample } from "./examples.ts"
import { Authorization, ReadableServers } from "./middleware.ts"
import {
  flag,
  labels,
  linePage,
  names,
  numberBetween,
  oneOf,
  text,
  time,
  trueOrNot,
  wholeNumber
} from "./query.ts"

const include = names(
  includable,
  `Further fields, comma-separated: ${includable.map((name) => `\`${name}\``).join(", ")}.`
)

/** The conditions of a list of servers; all must hold (spec 3.6). */
const filters = {
  blueprint_id: text("Only servers of this blueprint."),
  node_id: text("Only servers on this node."),
  status: oneOf(ServerStatus.literals, "Only servers with this status."),
  label: labels("Only servers whose labels meet `k=v`, `k!=v`, `k` or `!k`; may be given more than once."),
  q: text("Only servers whose id begins with this, or whose name contains it."),
  limit: numberBetween(1, 1000, "At most this many servers; `Link` has the address of the next page."),
  after: text("Only servers after the one with this id.")
}
const ServerBody = Server.annotate({ examples: [serverExample] })

const pageOfCrashes = {
  limit: numberBetween(1, 100, "At most this many crashes; default 20."),
  after: text("Only crashes that are older than the one with this id.")
}

/** Body of `POST /api/servers`; `node_id: ""` counts as absent. */
export const CreateServer = Schema.Struct({
  blueprint_id: Schema.String,
  ...optionalInputs({
    node_id: NodeId,
    overrides: OverridesInput,
    start: Schema.Boolean,
    /** As the overrides of these names. */
    run: RunRule,
    priority: RunPriority,
    name: ServerName,
    labels: Labels,
    expires_in: ExpiresIn.annotate({
      description: "Seconds after which the server is deleted; default: never."
    }),
    from_backup: Schema.String.annotate({
      description: "The id of a backup whose files, overrides, labels and name the server gets."
    })
  })
}).annotate({ identifier: "CreateServer" })

/** Body of `PATCH /api/servers/:server`; null removes (spec 3.12). */
export const PatchServer = Schema.Struct({
  name: Schema.optionalKey(Schema.NullOr(ServerName)),
  labels: Schema.optionalKey(Schema.Record(LabelKey, Schema.NullOr(LabelValue))),
  expires_in: Schema.optionalKey(nullOr(ExpiresIn)),
  /** As the overrides of these names. */
  run: Schema.optionalKey(Schema.NullOr(RunRule)),
  priority: Schema.optionalKey(Schema.NullOr(RunPriority)),
  overrides: Schema.optionalKey(
    OverridesChange.annotate({
      description:
        "Merged by field, config key and variable; null removes an override, which leaves the value of today's blueprint. Everything else of the definition stays. A server that is up gets the changes in `pending` at its next start."
    })
  )
}).annotate({ identifier: "PatchServer" })

export const UpgradeServer = Schema.Struct(
  optionalInputs({
    dry_run: Schema.Boolean.annotate({ description: "`true`: returns the changes and makes none." }),
    blueprint_id: Schema.String.annotate({ description: "Another blueprint; default: that of the server." })
  })
).annotate({ identifier: "UpgradeServer" })

/** The changes that an upgrade makes, and the revision to which it leads. */
export const Upgrade = Schema.Struct({
  changes: Schema.Array(DefinitionChange),
  revision: Schema.String
}).annotate({ identifier: "Upgrade" })

export const ReinstallServer = Schema.Struct({
  definition: optionalInput(
    Schema.Literals(["today", "kept"]).annotate({
      description:
        "`today`: blueprint and software as they are now. `kept`: the definition of the server. Default: `today`, or `kept` if the blueprint does not exist any more."
    })
  )
}).annotate({ identifier: "ReinstallServer" })

/** The response to `POST /api/servers?dry_run=true` (spec 3.3). */
export const CreationPlan = Schema.Struct({
  definition: DefinitionView,
  /** Null if no node fits; `warnings` then has the reason. */
  node_id: Schema.NullOr(NodeId),
  /** The chosen node, then the other nodes that fit, then the rest, at most 100. A named node stands alone. */
  candidates: Schema.Array(NodeFit),
  warnings: Schema.Array(Schema.String)
}).annotate({ identifier: "CreationPlan" })
export type CreationPlan = typeof CreationPlan.Type

const power = {
  action: PowerAction,
  wait_seconds: optionalInput(
    Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 3600 })).annotate({
      description:
        "Of stop and restart: seconds after which the server is killed if it still runs; default: the stop timeout of the server. Less needs the right `kill`."
    })
  )
}

export const PowerRequest = Schema.Struct(power).annotate({ identifier: "PowerRequest" })

export const BulkPower = Schema.Struct({ selector: Selector, ...power }).annotate({ identifier: "BulkPower" })

export const BulkRemoval = Schema.Struct({
  selector: Selector,
  force: optionalInput(Schema.Boolean),
  purge: optionalInput(
    Schema.Boolean.annotate({
      description: "`true`: the files are removed at once, and no undelete is possible."
    })
  )
}).annotate({ identifier: "BulkRemoval" })

export const CommandsRequest = Schema.Struct({
  commands: Schema.Array(ConsoleLine).check(Schema.isMinLength(1), Schema.isMaxLength(100))
}).annotate({ identifier: "CommandsRequest" })

/** HTTP removes spaces around a header. */
const IdempotencyKey = Schema.String.check(
  Schema.isPattern(/^[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?$/u, {
    expected: "1-128 printable characters"
  })
)

const params = {
  ...pathParams,
  server: ServerId.annotate({ description: "The id of the server; a read takes the beginning of it too." })
}
const { del, get, post } = endpoints(params, [NotFound])
const onNode = endpoints(params, errorsOfNode)

/** Servers (spec 3). */
export class ServersGroup extends HttpApiGroup.make("servers")
  .add(
    get("list", "/servers", "List servers; with ids_only=true their ids only", {
      right: "read",
      query: {
        ids_only: trueOrNot("`true`: ids only; anything else: whole servers."),
        deleted: flag(
          "`true`: the deleted servers whose files are kept, newest deletion first, with `deleted_at` and `purge_at`; at most 1,000."
        ),
        include,
        ...filters
      },
      success: Schema.Union([Schema.Array(ServerBody), Schema.Array(ServerId)])
    }),
    post("create", "/servers", "Create a server from a blueprint", {
      right: "create",
      audited: "server.create",
      longestWait: 60,
      query: {
        dry_run: flag(
          "`true`: creates nothing; the 200 has the definition and how each node fits. `Idempotency-Key` and `Prefer` do not count."
        )
      },
      headers: {
        "idempotency-key": Schema.optionalKey(
          IdempotencyKey.annotate({
            description: "The same key with the same body returns the first response again, for 24 h."
          })
        ),
        prefer: Schema.optionalKey(
          Schema.String.annotate({
            description:
              "`wait=N`, 1 to 60 seconds: the response waits until the server is installed, or running if it starts; 409 if that fails."
          })
        )
      },
      payload: CreateServer.annotate({
        examples: [{ blueprint_id: "survival", overrides: { limits: { memory_limit: 4096 } } }]
      }),
      success: [ServerBody.pipe(HttpApiSchema.status(202)), CreationPlan],
      errors: [NotFound, Conflict]
    }),
    get("get", "/servers/:server", "One server, by its id or the beginning of it", {
      right: "read",
      findsServer: true,
      longestWait: 60,
      query: {
        include,
        wait: oneOf(["running", "offline", "installed"], "Waits until the server is in this state."),
        timeout: numberBetween(1, 60, "Seconds to wait; default 30.")
      },
      success: ServerBody,
      errors: [Conflict]
    }),
    onNode.patch("patch", "/servers/:server", "Change name, labels, expiry and overrides", {
      right: "change",
      audited: "server.patch",
      payload: PatchServer,
      success: ServerBody
    }),
    onNode.post(
      "upgrade",
      "/servers/:server/upgrade",
      "Resolve the blueprint again; the server keeps its data, its id and its ports",
      {
        right: "change",
        audited: "server.upgrade",
        payload: [UpgradeServer, Schema.Null],
        success: [Upgrade, Upgrade.pipe(HttpApiSchema.status(202))]
      }
    ),
    post("powerMany", "/servers/power", "Start, stop, restart, kill, pause or unpause all selected servers", {
      right: "power",
      audited: "server.power",
      longestWait: 60,
      payload: BulkPower,
      success: BulkOutcomes
    }),
    del("removeMany", "/servers", "Delete all selected servers", {
      right: "delete",
      audited: "server.delete",
      longestWait: 60,
      payload: BulkRemoval,
      success: BulkOutcomes
    }),
    onNode.del(
      "remove",
      "/servers/:server",
      "Delete a server; force=true even when its node cannot be reached",
      {
        right: "delete",
        audited: "server.delete",
        query: {
          force: flag("`true`: even when the node cannot be reached; default `false`."),
          purge: flag(
            "`true`: the files are removed at once, also those of a deleted server that are kept; default `false`."
          )
        },
        success: HttpApiSchema.Empty(200)
      }
    ),
    onNode.post(
      "undelete",
      "/servers/:server/undelete",
      "Give a deleted server back, offline, with its files and its ports where they are free",
      {
        right: "delete",
        audited: "server.undelete",
        success: ServerBody.pipe(HttpApiSchema.status(202))
      }
    ),
    onNode.post("power", "/servers/:server/power", "Start, stop, restart, kill, pause or unpause", {
      right: "power",
      audited: "server.power",
      payload: PowerRequest,
      success: HttpApiSchema.Empty(200)
    }),
    get("status", "/servers/:server/status", "Power and process status", {
      right: "read",
      success: Schema.Struct({ status: ServerStatus }).annotate({ identifier: "StatusOfServer" })
    }),
    onNode.get("stats", "/servers/:server/stats", "Memory, CPU, network and disk in use", {
      right: "read",
      query: {
        update_disk_usage: flag("`true`: measures the disk again, which may take a while; default `false`.")
      },
      success: ServerStats
    }),
    get(
      "statsOfMany",
      "/stats",
      "Figures of servers by id, with one call to each node; null: the node has not given any in 5 s",
      { right: "read", query: filters, success: StatsById }
    ),
    onNode.get("logs", "/servers/:server/logs", "Console lines, newest last", {
      right: "read",
      query: {
        size: wholeNumber(
          "How many of the newest lines, 1 to 100; default 100. Less counts as 1, more as 100: `per_page` takes up to 1,000, and `page` goes further back. Does not count beside these."
        ),
        ...linePage("newest lines"),
        include: names(
          ["times"],
          "`times`: also `times`, the time of each line: exact to a second, and up to 5 s late around a restart of the daemon. Null: unknown, because the line was written while the daemon was down."
        )
      },
      success: LogPage
    }),
    onNode.post("commands", "/servers/:server/commands", "Write lines to the console", {
      right: "commands",
      audited: "server.commands",
      payload: CommandsRequest,
      success: HttpApiSchema.NoContent
    }),
    onNode.post(
      "reset",
      "/servers/:server/reset",
      "Stop the server, delete everything that it has written, its world too, and restore the files of its blueprint",
      { right: "change", audited: "server.reset", success: HttpApiSchema.Empty(202) }
    ),
    onNode.post(
      "reinstall",
      "/servers/:server/reinstall",
      "Run the install script again; the files that a saved server has written stay",
      {
        right: "change",
        audited: "server.reinstall",
        payload: [ReinstallServer, Schema.Null],
        success: HttpApiSchema.Empty(202)
      }
    ),
    onNode.get("install", "/servers/:server/install", "Progress of the installation", {
      right: "read",
      query: { script: flag("`false`: without the script; default `true`.", true) },
      success: InstallReport
    }),
    onNode.get("installLogs", "/servers/:server/install/logs", "Output of the install script", {
      right: "read",
      query: linePage("first lines"),
      success: LinePage
    }),
    get("crashesOf", "/servers/:server/crashes", "Crashes of a server, also of a deleted one, newest first", {
      right: "read",
      findsServer: true,
      query: pageOfCrashes,
      success: Schema.Array(CrashRecord)
    }),
    get("crashes", "/crashes", "Crashes of all servers, newest first", {
      right: "read",
      query: {
        since: time("Only crashes since this time (RFC 3339)."),
        blueprint_id: text("Only crashes of servers of this blueprint."),
        node_id: text("Only crashes on this node."),
        server: text("Only crashes of the server with this id or name, also of a deleted one."),
        ...pageOfCrashes
      },
      success: Schema.Array(CrashRecord)
    }),
    get("events", "/servers/:server/events", "This server's events, over SSE", {
      right: "read",
      isStream: true,
      query: EventQuery,
      headers: EventHeaders,
      success: HttpApiSchema.StreamSse({ data: ServerEvent }),
      errors: [CursorExpired]
    }),
    onNode.get(
      "console",
      "/servers/:server/console",
      "Console lines out, commands in, over WebSocket: one line a text frame. A line without an end comes after 250 ms of silence, and again once it has grown. Stored lines do not come first, and a command to a server that is not up has no effect",
      {
        right: "console",
        audited: "server.console",
        isStream: true,
        query: {
          ticket: text(
            "A ticket in place of the `Authorization` header. Opens one console within 30 s, and the same console again until 60 s after it broke. An earlier connection then ends."
          )
        },
        success: HttpApiSchema.Empty(101),
        errors: [UpgradeRequired]
      }
    )
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Servers" })) {}

/** The decoded request of an endpoint of servers. */
export type ServersRequest<Endpoint extends string> = Omit<
  HttpApiEndpoint.Request<
    HttpApiEndpoint.WithIdentifier<HttpApiGroup.Endpoints<typeof ServersGroup>, Endpoint>
  >,
  "endpoint" | "group"
>
