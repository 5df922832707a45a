import { Command } from "effect/cli"
import { commandSettings } from "../../config/command.ts"
import { withSettings } from "../../config/help.ts"
import { CommandClient } from "../shared/musterClient.ts"
import { create } from "./create.ts"
import { remove } from "./delete.ts"
import { list } from "./list.ts"
import { logs } from "./logs.ts"
import { kill, restart, start, stop } from "./power.ts"
import { send } from "./send.ts"
import { show } from "./show.ts"
import { wait } from "./wait.ts"

/** `muster servers`, against a running service. */
export const servers = Command.make("servers").pipe(
  Command.withShortDescription("Create, list, start, stop, watch and delete servers"),
  Command.withDescription(
    withSettings("Create, list, start, stop, watch and delete servers of a running service.", commandSettings)
  ),
  Command.withSubcommands([list, show, create, start, stop, restart, kill, remove, logs, send, wait]),
  Command.provide(CommandClient)
)
