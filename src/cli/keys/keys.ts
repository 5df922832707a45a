import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { CommandStore } from "../../app/storage.ts"
import { auditedCommand } from "../../audit/auditedCommand.ts"
import { withSettings } from "../../config/help.ts"
import { settings as service } from "../../config/service.ts"
import { ApiKeys } from "../../keys/ApiKeys.ts"
import { only } from "../shared/named.ts"
import { create } from "./create.ts"
import { keysOver } from "./keysOver.ts"
import { list } from "./list.ts"

const revoke = Command.make(
  "revoke",
  {
    key: Argument.String("key").pipe(
      Argument.withDescription("Id of the key, the beginning of one, or its name, from `muster keys list`")
    )
  },
  Effect.fn(function* ({ key }) {
    const keys = yield* ApiKeys
    const all = yield* keys.list
    const isId = all.some((one) => one.id === key)
    const valid = all.filter(({ revoked_at }) => revoked_at === null)
    const id = isId ? key : (yield* only("key", key, valid, ({ name }) => name)).id
    yield* keys.revoke(id).pipe(auditedCommand("key.revoke", id))
    yield* Console.log(`Key ${id} is revoked.`)
  })
).pipe(
  Command.withDescription("Revoke a key, at once and permanently"),
  Command.withExamples([
    { command: "muster keys revoke key_hxRVN1Qkb4MDGCQY", description: "By its id" },
    { command: "muster keys revoke ci", description: "By its name, if no other key has it" },
    { command: "muster keys list", description: "Find the id first" }
  ]),
  Command.provide(keysOver(CommandStore))
)

const { dataDir, databaseUrl } = service

/** `muster keys create|list|revoke` (decisions, section 5). */
export const keys = Command.make("keys").pipe(
  Command.withShortDescription("Create, list and revoke API keys"),
  Command.withDescription(withSettings("Create, list and revoke API keys.", { dataDir, databaseUrl })),
  Command.withSubcommands([create, list, revoke])
)
