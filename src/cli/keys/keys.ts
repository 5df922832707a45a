import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { commandSettings } from "../../shared/config/command.ts"
import { settings as service } from "../../shared/config/service.ts"
import { documented, documentedGroup } from "../shared/documented.ts"
import { only } from "../shared/named.ts"
import { confirm, isInteractive, yesFlag } from "../shared/terminal.ts"
import { create } from "./create.ts"
import { databaseFlag, KeyAccess } from "./KeyAccess.ts"
import { list } from "./list.ts"

const revoke = Command.make(
  "revoke",
  {
    key: Argument.String("key").pipe(
      Argument.withDescription("Id of the key, the beginning of one, or its name, from `muster keys list`")
    ),
    yes: yesFlag,
    database: databaseFlag
  },
  Effect.fn(function* ({ key, yes }) {
    const keys = yield* KeyAccess
    const all = yield* keys.list
    const isId = all.some((one) => one.id === key)
    const valid = all.filter(({ revoked_at }) => revoked_at === null)
    const { id, name } = yield* only("key", key, isId ? all : valid, ({ name }) => name)
    // No script leaves a leaked key valid because a flag is missing.
    yield* confirm(`Revoke the key ${id} (${name}) permanently?`, yes || !isInteractive())
    yield* keys.revoke(id)
    yield* Console.log(`Key ${id} is revoked.`)
  })
).pipe(
  documented(
    "Revoke a key, at once and permanently. Asks first on a terminal; elsewhere, the key is revoked without a question.",
    {
      "muster keys revoke key_hxRVN1Qkb4MDGCQY": "By its id",
      "muster keys revoke ci": "By its name, if no other key has it",
      "muster keys list": "Find the id first"
    }
  ),
  Command.provide(({ database }) => KeyAccess.layer(database))
)

const { databaseUrl } = service

/** `muster keys create|list|revoke` (spec 6.1). */
export const keys = Command.make("keys").pipe(
  documentedGroup("Create, list and revoke API keys", "Create, list and revoke API keys.", {
    ...commandSettings,
    databaseUrl
  }),
  Command.withSubcommands([create, list, revoke])
)
