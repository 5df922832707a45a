import { Console, DateTime, Duration, Effect, Layer, Option, Redacted, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ServiceConfig } from "../config.ts"
import { KeyScope } from "../domain/KeyScope.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import type { KeyRecord } from "../store/KeyRepo.ts"
import { CommandLogging } from "./logging.ts"
import { CommandStore } from "./storage.ts"

const units = { m: "minutes", h: "hours", d: "days" } as const

const Expiry = Schema.String.check(
  Schema.isPattern(/^[1-9]\d{0,5}[mhd]$/, { message: "expected a time such as 90m, 12h or 30d" })
)

const toDuration = (text: string) => {
  const unit = text.endsWith("m") ? units.m : text.endsWith("h") ? units.h : units.d
  return Duration.fromInputUnsafe(`${Number(text.slice(0, -1))} ${unit}`)
}

const Keys = Layer.unwrap(
  Effect.map(ServiceConfig.load, (settings) => ApiKeys.layer().pipe(Layer.provide(CommandStore(settings))))
).pipe(Layer.provideMerge(CommandLogging))

const create = Command.make(
  "create",
  {
    name: Flag.String("name").pipe(
      Flag.withDescription("What the key is for"),
      Flag.withSchema(Schema.NonEmptyString.check(Schema.isMaxLength(128)))
    ),
    scope: Flag.Literals("scope", KeyScope.literals).pipe(
      Flag.withDescription("What the key may do"),
      Flag.withDefault("AppAdmin")
    ),
    expires: Flag.String("expires").pipe(
      Flag.withDescription("When it ends: 90m, 12h or 30d from now; without it, never"),
      Flag.withSchema(Expiry),
      Flag.optional
    )
  },
  Effect.fn(function* ({ name, scope, expires }) {
    const keys = yield* ApiKeys
    const made = yield* keys.create({
      name,
      scope,
      ...(Option.isSome(expires) ? { expires: toDuration(expires.value) } : {})
    })
    yield* Console.log(Redacted.value(made.key))
    yield* Console.error(`Key ${made.record.id} (${scope}). It is shown only now: keep it.`)
  })
).pipe(Command.withDescription("Make a key and print it, once"), Command.provide(Keys))

const stateOf = (record: KeyRecord, now: number) => {
  if (record.revoked_at !== null) return `revoked ${record.revoked_at}`
  if (record.expires_at === null) return "valid"
  return Date.parse(record.expires_at) <= now
    ? `expired ${record.expires_at}`
    : `valid until ${record.expires_at}`
}

const list = Command.make(
  "list",
  {},
  Effect.fn(function* () {
    const keys = yield* ApiKeys
    const records = yield* keys.list
    const now = DateTime.toEpochMillis(yield* DateTime.now)
    if (records.length === 0)
      return yield* Console.log("No keys. `muster keys create --name <name>` makes one.")
    for (const record of records) {
      yield* Console.log([record.id, record.scope, stateOf(record, now), record.name].join("\t"))
    }
  })
).pipe(Command.withDescription("List keys: id, scope, state, name"), Command.provide(Keys))

const revoke = Command.make(
  "revoke",
  { id: Argument.String("id").pipe(Argument.withDescription("Id of the key, from `muster keys list`")) },
  Effect.fn(function* ({ id }) {
    const keys = yield* ApiKeys
    yield* keys.revoke(id)
    yield* Console.log(`Key ${id} is revoked.`)
  })
).pipe(Command.withDescription("Revoke a key, at once and for good"), Command.provide(Keys))

/** `muster keys create|list|revoke` (decisions, section 5). */
export const keys = Command.make("keys").pipe(
  Command.withDescription("Make, list and revoke API keys"),
  Command.withSubcommands([create, list, revoke])
)
