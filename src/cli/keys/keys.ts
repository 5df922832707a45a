import { Console } from "effect"
import { Argument, Command } from "effect/cli"
import { commandSettings } from "../../shared/config/command.ts"
import { settings as service } from "../../shared/config/service.ts"
import { command, group } from "../shared/command.ts"
import { only } from "../shared/named.ts"
import { confirm, isInteractive, yesFlag } from "../shared/terminal.ts"
import { create } from "./create.ts"
import { databaseFlag, KeyAccess } from "./KeyAccess.ts"
import { list } from "./list.ts"

const revoke = command("revoke", {
  description:
    "Revoke a key, at once and permanently. Asks first on a terminal; elsewhere, the key is revoked without a question.",
  examples: {
    "muster keys revoke key_hxRVN1Qkb4MDGCQY": "By its id",
    "muster keys revoke ci": "By its name, if no other key has it",
    "muster keys list": "Find the id first"
  },
  input: {
    key: Argument.String("key").pipe(
      Argument.withDescription("Id of the key, the beginning of one, or its name, from `muster keys list`")
    ),
    yes: yesFlag,
    database: databaseFlag
  },
  *run({ key, yes }) {
    const keys = yield* KeyAccess
    const all = yield* keys.list
    const isId = all.some((one) => one.id === key)
    const valid = all.filter(({ revoked_at }) => revoked_at === null)
    const { id, name } = yield* only("key", key, isId ? all : valid, ({ name }) => name)
    // No script leaves a leaked key valid because a flag is missing.
    yield* confirm(`Revoke the key ${id} (${name}) permanently?`, yes || !isInteractive())
    yield* keys.revoke(id)
    yield* Console.log(`Key ${id} is revoked.`)
  }
}).pipe(Command.provide(({ database }) => KeyAccess.layer(database)))

const { databaseUrl } = service

/** `muster keys create|list|revoke` (spec 6.1). */
export const keys = group("keys", {
  short: "Create, list and revoke API keys",
  description: "Create, list and revoke API keys.",
  settings: {
    ...commandSettings,
    databaseUrl
  },
  subcommands: [create, list, revoke]
})
