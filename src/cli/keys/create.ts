import { Console, Effect, Option, Schema, SchemaTransformation } from "effect"
import { Command, Flag } from "effect/cli"
import { FilePath } from "../../contract/domain/Files.ts"
import { DefinitionId, ServerId, serverIdPattern } from "../../contract/domain/Id.ts"
import { KeyGrant, KeyName, KeyScope, QuotaName, Right } from "../../contract/domain/Key.ts"
import { command, given, numberFlag } from "../shared/command.ts"
import { wrongUsage } from "../shared/failures.ts"
import { only } from "../shared/named.ts"
import { note } from "../shared/terminal.ts"
import { durationOf } from "../shared/times.ts"
import { databaseFlag, KeyAccess } from "./KeyAccess.ts"

const decodeGrant = Schema.decodeUnknownEffect(KeyGrant)

const Expiry = Schema.String.check(
  Schema.isPattern(/^[1-9]\d{0,5}[mhd]$/, { message: "expected a time such as 90m, 12h or 30d" })
)

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

const several = <A>(name: string, item: Schema.Codec<A, string>, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(
      `${description}; comma-separated or repeatable; with the scopes Operator and ReadOnly`
    ),
    Flag.withSchema(listOf(item)),
    Flag.between(0, 1000),
    Flag.map((lists) => lists.flat())
  )

const serverIdOf = Effect.fnUntraced(function* (text: string) {
  const found = yield* (yield* KeyAccess).servers(text)
  // A whole id may be that of a server in another database, or of one to be restored.
  if (found.length === 0 && serverIdPattern.test(text)) return ServerId.make(text)
  return (yield* only("server", text, found, ({ name }) => name ?? "")).id
})

const LabelPair = Schema.String.check(
  Schema.isPattern(/^[^=]+=/, { message: "expected a label such as team=a" })
)

const grantOf = Effect.fnUntraced(function* (chosen: {
  readonly scope: KeyScope
  readonly allow: Option.Option<ReadonlyArray<Right>>
  readonly server: ReadonlyArray<string>
  readonly blueprint: ReadonlyArray<string>
  readonly label: ReadonlyArray<string>
  readonly path: ReadonlyArray<string>
  readonly maxServers: Option.Option<number>
  readonly maxMemory: Option.Option<number>
  readonly quota: Option.Option<string>
}) {
  const { allow, blueprint, label, maxMemory, maxServers, path, quota, scope, server } = chosen
  const labels = label.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])
  const twice = labels.find(([key], at) => labels.findIndex(([other]) => other === key) !== at)
  if (twice !== undefined) return yield* wrongUsage(`--label: ${twice[0]} is given twice`)
  const rights = { scope, ...given({ allow }) }
  if (!Schema.is(KeyGrant)(rights)) {
    return yield* wrongUsage(
      scope === "ReadOnly"
        ? "--allow: a key of the scope ReadOnly takes read and browse only; others need --scope Operator"
        : `--allow needs --scope Operator: a key of the scope ${scope} has the rights of its scope`
    )
  }
  const grant = {
    ...rights,
    ...(server.length === 0 ? {} : { servers: yield* Effect.forEach(server, serverIdOf) }),
    ...(blueprint.length === 0 ? {} : { blueprints: blueprint }),
    ...(labels.length === 0 ? {} : { labels: Object.fromEntries(labels) }),
    ...(path.length === 0 ? {} : { paths: path }),
    ...given({ max_servers: maxServers, max_memory: maxMemory, quota })
  }
  return yield* Effect.mapError(decodeGrant(grant), ({ message }) =>
    wrongUsage(`the limits of the key are not possible: ${message}`)
  )
})

const warnOfUnknown = Effect.fnUntraced(function* (blueprints: ReadonlyArray<string>) {
  const { hasBlueprint } = yield* KeyAccess
  for (const id of blueprints) {
    if ((yield* hasBlueprint(id)) !== false) continue
    yield* note(`warning: there is no blueprint ${id}; the key acts on its servers once there are some`)
  }
})

export const create = command("create", {
  description: "Create a key and print it, once",
  examples: {
    "muster keys create --name ci --expires 30d": "A key for everything, for 30 days",
    "muster keys create --name alice --scope Operator --allow power --server k7f3m9q2x8ab":
      "A key that does power actions with one server, and no more",
    "muster keys create --name night --scope Operator --allow start,stop":
      "A key that can only start and stop servers",
    "muster keys create --name plugins --scope Operator --allow files --path /plugins":
      "A key that reads and writes files below one folder of each server"
  },
  input: {
    name: Flag.String("name").pipe(Flag.withDescription("Purpose of the key"), Flag.withSchema(KeyName)),
    scope: Flag.Literals("scope", KeyScope.literals).pipe(
      Flag.withDescription("Rights of the key; default AppAdmin: every right"),
      Flag.withDefault("AppAdmin")
    ),
    allow: Flag.String("allow").pipe(
      Flag.withDescription(
        "Rights in place of those of the scope Operator, comma-separated: power, or of its actions start, stop, restart, kill, pause; console, commands, change, create, delete, browse, files (includes browse), backups, restore (includes backups), schedules; read is always one. ReadOnly takes browse"
      ),
      Flag.withSchema(AllowedRights),
      Flag.optional
    ),
    server: several(
      "server",
      Schema.String,
      "Server that the key is limited to, by its id, the beginning of one, or its name"
    ),
    blueprint: several("blueprint", DefinitionId, "Blueprint that the key is limited to"),
    label: several("label", LabelPair, "Label k=v that servers of the key must have"),
    path: Flag.String("path").pipe(
      Flag.withDescription(
        "Folder such as /plugins that the key is limited to in files of servers; repeatable; with browse or files in --allow"
      ),
      Flag.withSchema(FilePath),
      Flag.between(0, 32)
    ),
    maxServers: numberFlag(
      "max-servers",
      "Most servers that the key has created and that exist; default: any number"
    ),
    maxMemory: numberFlag("max-memory", "Most memory of these servers, in MiB; default: no limit"),
    quota: Flag.String("quota").pipe(
      Flag.withDescription("Quota that the key shares with others, from `muster quotas create`"),
      Flag.withSchema(QuotaName),
      Flag.optional
    ),
    expires: Flag.String("expires").pipe(
      Flag.withDescription("When the key expires: 90m, 12h or 30d from now; default: never"),
      Flag.withSchema(Expiry),
      Flag.optional
    ),
    database: databaseFlag
  },
  *run({ database: _, expires, name, ...chosen }) {
    const keys = yield* KeyAccess
    const { scope } = chosen
    const grant = yield* grantOf(chosen)
    yield* warnOfUnknown(chosen.blueprint)
    const made = yield* keys.create({
      ...grant,
      name,
      ...(Option.isSome(expires) ? { expires: durationOf(expires.value) } : {})
    })
    yield* Console.log(made.key)
    yield* Console.error(`Key ${made.id} (${scope}). It is shown only now: keep it.`)
  }
}).pipe(Command.provide(({ database }) => KeyAccess.layer(database)))
