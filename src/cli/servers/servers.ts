import { Command } from "effect/cli"
import { documentedGroup } from "../shared/documented.ts"
import { CommandClient } from "../shared/musterClient.ts"
import { console_ } from "./console.ts"
import { crashes } from "./crashes.ts"
import { create } from "./create.ts"
import { remove } from "./delete.ts"
import { installLog } from "./installLog.ts"
import { list } from "./list.ts"
import { logs } from "./logs.ts"
import { patch } from "./patch.ts"
import { kill, pause, restart, start, stop, unpause } from "./power.ts"
import { reinstall } from "./reinstall.ts"
import { reset } from "./reset.ts"
import { send } from "./send.ts"
import { show } from "./show.ts"
import { top } from "./top.ts"
import { upgrade } from "./upgrade.ts"
import { wait } from "./wait.ts"

/** `muster servers`, against a running service. */
export const servers = Command.make("servers").pipe(
  documentedGroup(
    "Create, list, start, stop, watch and delete servers",
    "Create, list, start, stop, watch and delete servers of a running service."
  ),
  Command.withSubcommands([
    list,
    show,
    create,
    start,
    stop,
    restart,
    kill,
    pause,
    unpause,
    remove,
    logs,
    console_,
    send,
    top,
    wait,
    patch,
    upgrade,
    reinstall,
    reset,
    crashes,
    installLog
  ]),
  Command.provide(CommandClient)
)
