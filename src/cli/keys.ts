import {
  Console,
  DateTime,
  Duration,
  Effect,
  Layer,
  Option,
  Redacted,
  Schema,
  SchemaTransformation
} from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { CommandLogging } from "../app/logging.ts"
import { CommandStore, CommandStoreOrNew } from "../app/storage.ts"
import { auditedCommand } from "../audit/auditedCommand.ts"
import { withSettings } from "../config/help.ts"
import { StartError } from "../config/StartError.ts"
import { ServiceConfig, settings as service } from "../config/service.ts"
import { DefinitionId, ServerId, serverIdPattern } from "../domain/Id.ts"
import { KeyName } from "../domain/Key.ts"
import type { KeyLimits } from "../domain/KeyLimits.ts"
import { KeyGrant, KeyScope, Right } from "../domain/KeyScope.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import type { KeyRecord } from "../store/repos/KeyRepo.ts"
import { NodeKeyRepo } from "../store/repos/NodeKeyRepo.ts"
import { NodeRepo } from "../store/repos/NodeRepo.ts"
import { Store } from "../store/Store.ts"
import { table } from "./shared/table.ts"

const decodeGrant = Schema.decodeUnknownEffect(KeyGrant)

const units = { m: "minutes", h: "hours", d: "days" } as const

const Expiry = Schema.String.check(
  Schema.isPattern(/^[1-9]\d{0,5}[mhd]$/, { message: "expected a time such as 90m, 12h or 30d" })
)

const toDuration = (text: string) => {
  const unit = text.endsWith("m") ? units.m : text.endsWith("h") ? units.h : units.d
  return Duration.fromInputUnsafe(`${Number(text.slice(0, -1))} ${unit}`)
}

const listOf = <A>(item: Schema.Codec<A, string>) =>
  Schema.String.pipe(
    Schema.decodeTo(
      Schema.Array(Schema.String),
      SchemaTransformation.transform({
        decode: (text): ReadonlyArray<string> => text.split(",").map((part) => part.trim()),
        encode: (parts) => parts.join(",")
      })
    ),
    Schema.decodeTo(Schema.Array(item))
  )
const AllowedRights = listOf(Right)

/** A flag that limits a key, and may be given more than once. */
const several = <A>(name: string, item: Schema.Codec<A, string>, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(
      `${description}; comma-separated or several times; with the scopes Operator and ReadOnly`
    ),
    Flag.withSchema(listOf(item)),
    Flag.between(0, 1000),
    Flag.map((lists) => lists.flat())
  )

/** A name or the beginning of an id would make a key that is limited to no server. */
const WholeServerId = ServerId.check(
  Schema.isPattern(serverIdPattern, {
    message: "expected the whole id of a server, as `muster servers list -o id` prints"
  })
)

const LabelPair = Schema.String.check(
  Schema.isPattern(/^[^=]+=/, { message: "expected a label such as team=a" })
)

const quotaOf = (name: string, description: string) =>
  Flag.Int(name).pipe(Flag.withDescription(description), Flag.optional)

const keysOver = (store: typeof CommandStore | typeof CommandStoreOrNew) =>
  Layer.unwrap(
    Effect.map(ServiceConfig.load, (settings) => ApiKeys.layer().pipe(Layer.provideMerge(store(settings))))
  ).pipe(Layer.provideMerge(CommandLogging))

const Keys = keysOver(CommandStore)

const grantOf = Effect.fnUntraced(function* (chosen: {
  readonly scope: KeyScope
  readonly allow: Option.Option<ReadonlyArray<Right>>
  readonly server: ReadonlyArray<ServerId>
  readonly blueprint: ReadonlyArray<string>
  readonly label: ReadonlyArray<string>
  readonly maxServers: Option.Option<number>
  readonly maxMemory: Option.Option<number>
}) {
  const { allow, blueprint, label, maxMemory, maxServers, scope, server } = chosen
  const labels = label.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])
  const twice = labels.find(([key], at) => labels.findIndex(([other]) => other === key) !== at)
  if (twice !== undefined) return yield* new StartError({ message: `--label: ${twice[0]} is given twice` })
  const rights = { scope, ...(Option.isSome(allow) ? { allow: allow.value } : {}) }
  if (!Schema.is(KeyGrant)(rights)) {
    return yield* new StartError({
      message: `--allow needs --scope Operator: a key of the scope ${scope} has the rights of its scope`
    })
  }
  const grant = {
    ...rights,
    ...(server.length === 0 ? {} : { servers: server }),
    ...(blueprint.length === 0 ? {} : { blueprints: blueprint }),
    ...(labels.length === 0 ? {} : { labels: Object.fromEntries(labels) }),
    ...(Option.isSome(maxServers) ? { max_servers: maxServers.value } : {}),
    ...(Option.isSome(maxMemory) ? { max_memory: maxMemory.value } : {})
  }
  return yield* Effect.mapError(
    decodeGrant(grant),
    ({ message }) => new StartError({ message: `the limits of the key are not possible: ${message}` })
  )
})

const create = Command.make(
  "create",
  {
    name: Flag.String("name").pipe(Flag.withDescription("What the key is for"), Flag.withSchema(KeyName)),
    scope: Flag.Literals("scope", KeyScope.literals).pipe(
      Flag.withDescription("What the key may do; default AppAdmin: everything"),
      Flag.withDefault("AppAdmin")
    ),
    allow: Flag.String("allow").pipe(
      Flag.withDescription(
        "Rights in place of those of the scope Operator, comma-separated: power, console, commands, change, create, delete; read is always one"
      ),
      Flag.withSchema(AllowedRights),
      Flag.optional
    ),
    server: several("server", WholeServerId, "Id of a server that the key is limited to"),
    blueprint: several("blueprint", DefinitionId, "Blueprint that the key is limited to"),
    label: several("label", LabelPair, "Label k=v that servers of the key must have"),
    maxServers: quotaOf(
      "max-servers",
      "Most servers that the key has created and that exist; default: any number"
    ),
    maxMemory: quotaOf("max-memory", "Most memory of these servers, in MiB; default: no limit"),
    expires: Flag.String("expires").pipe(
      Flag.withDescription("When the key expires: 90m, 12h or 30d from now; default: never"),
      Flag.withSchema(Expiry),
      Flag.optional
    )
  },
  Effect.fn(function* ({ expires, name, ...chosen }) {
    const keys = yield* ApiKeys
    const { scope } = chosen
    const grant = yield* grantOf(chosen)
    const made = yield* keys
      .create({
        ...grant,
        name,
        ...(Option.isSome(expires) ? { expires: toDuration(expires.value) } : {})
      })
      .pipe(auditedCommand("key.create"))
    yield* Console.log(Redacted.value(made.key))
    yield* Console.error(`Key ${made.record.id} (${scope}). It is shown only now: keep it.`)
  })
).pipe(
  Command.withDescription("Create a key and print it, once"),
  Command.withExamples([
    {
      command: "muster keys create --name ci --expires 30d",
      description: "A key for everything, for 30 days"
    },
    {
      command: "muster keys create --name alice --scope Operator --allow power --server k7f3m9q2x8ab",
      description: "A key that can only start, stop and restart one server"
    }
  ]),
  Command.provide(keysOver(CommandStoreOrNew))
)

/** A key in the list. Times RFC 3339 UTC. */
interface ListedKey extends Omit<KeyRecord, "hash"> {
  readonly state: "valid" | "expired" | "revoked"
  /** The node of the key; null: none. */
  readonly node_id: string | null
  /** The last heartbeat of that node in the database: at most a minute too early. */
  readonly last_seen_at: string | null
}

const stateOf = ({ expires_at, revoked_at }: KeyRecord, now: number): ListedKey["state"] => {
  if (revoked_at !== null) return "revoked"
  return expires_at !== null && Date.parse(expires_at) <= now ? "expired" : "valid"
}

/** Returns the later of two times, if any. */
const later = (one: string | null, other: number | undefined): string | null =>
  other === undefined || (one !== null && Date.parse(one) >= other) ? one : new Date(other).toISOString()

/** The last heartbeat of each node in the database. */
const lastHeartbeats = Effect.gen(function* () {
  const repo = yield* NodeRepo
  const store = yield* Store
  const heartbeats = yield* store.read(repo.heartbeats)
  const heard_at = new Map(heartbeats.map((heartbeat) => [heartbeat.node_id, heartbeat.heard_at]))
  const nodes = yield* store.read(repo.all)
  return new Map(nodes.map(({ id, last_seen_at }) => [id, later(last_seen_at, heard_at.get(id))]))
})

const listed = Effect.gen(function* () {
  const store = yield* Store
  const records = yield* (yield* ApiKeys).list
  const bindings = yield* store.read((yield* NodeKeyRepo).bindings)
  const lastSeen = yield* lastHeartbeats
  const nodes = new Map(bindings.map(({ key_id, node_id }) => [key_id, node_id]))
  const now = DateTime.toEpochMillis(yield* DateTime.now)
  return records.map(({ hash, ...record }): ListedKey => {
    const state = stateOf({ hash, ...record }, now)
    const node_id = nodes.get(record.id) ?? null
    // The node of a key that is no longer valid may have another key.
    const last_seen_at = state === "valid" && node_id !== null ? (lastSeen.get(node_id) ?? null) : null
    return { ...record, state, node_id, last_seen_at }
  })
})

const columns = ["id", "scope", "state", "name", "node", "seen"]

const limitsText = ({ blueprints, labels, max_memory, max_servers, servers }: KeyLimits): string =>
  [
    ...(servers === undefined ? [] : [`servers ${servers.join()}`]),
    ...(blueprints === undefined ? [] : [`blueprints ${blueprints.join()}`]),
    ...Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`),
    ...(max_servers === undefined ? [] : [`at most ${max_servers} servers`]),
    ...(max_memory === undefined ? [] : [`at most ${max_memory} MiB`])
  ].join(", ")

const rowOf = ({
  allow,
  expires_at,
  id,
  last_seen_at,
  name,
  node_id,
  revoked_at,
  scope,
  state,
  ...limits
}: ListedKey) => {
  const until = expires_at === null ? "valid" : `valid until ${expires_at}`
  const when = state === "revoked" ? `revoked ${revoked_at}` : `expired ${expires_at}`
  const rights = allow === undefined ? scope : `${scope}: ${allow.join()}`
  const limited = limitsText(limits)
  return [
    id,
    limited === "" ? rights : `${rights} (${limited})`,
    state === "valid" ? until : when,
    name,
    node_id ?? "",
    last_seen_at ?? ""
  ]
}

const list = Command.make(
  "list",
  {
    json: Flag.Boolean("json").pipe(Flag.withDescription("As JSON, with all times"), Flag.withDefault(false))
  },
  Effect.fn(function* ({ json }) {
    const keys = yield* listed
    if (json) return yield* Console.log(JSON.stringify(keys, null, 2))
    if (keys.length === 0) return yield* Console.log("No keys. `muster keys create --name <name>` makes one.")
    yield* Console.log(table(columns, keys.map(rowOf)))
  })
).pipe(
  Command.withDescription(
    "List keys: id, scope, state and until when, name; of scope Node, the node and its last heartbeat, to a minute"
  ),
  Command.withExamples([
    { command: "muster keys list", description: "All keys with their state" },
    { command: "muster keys list --json", description: "For programs, with all times" }
  ]),
  Command.provide(Keys)
)

const revoke = Command.make(
  "revoke",
  { id: Argument.String("id").pipe(Argument.withDescription("Id of the key, from `muster keys list`")) },
  Effect.fn(function* ({ id }) {
    const keys = yield* ApiKeys
    yield* keys.revoke(id).pipe(auditedCommand("key.revoke", id))
    yield* Console.log(`Key ${id} is revoked.`)
  })
).pipe(
  Command.withDescription("Revoke a key, at once and permanently"),
  Command.withExamples([
    { command: "muster keys revoke key_hxRVN1Qkb4MDGCQY", description: "By its id" },
    { command: "muster keys list", description: "Find the id first" }
  ]),
  Command.provide(Keys)
)

const { dataDir, databaseUrl } = service

/** `muster keys create|list|revoke` (decisions, section 5). */
export const keys = Command.make("keys").pipe(
  Command.withShortDescription("Create, list and revoke API keys"),
  Command.withDescription(withSettings("Create, list and revoke API keys.", { dataDir, databaseUrl })),
  Command.withSubcommands([create, list, revoke])
)
