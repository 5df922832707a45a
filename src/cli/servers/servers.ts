import { Console, Effect, Option } from "effect"
import { Argument, Command } from "effect/cli"
import { ServerId } from "../../contract/domain/Id.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { choiceFlag, command, given, group, switchFlag, textArgument, textFlag } from "../shared/command.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { MOST, only, serverArgument, serverNamed, serversOf } from "../shared/named.ts"
import { formatOf, jsonOf, type Listing, objectCommand, outputFlags, printList } from "../shared/output.ts"
import { changes } from "../shared/rollout.ts"
import { confirm, note, yesFlag } from "../shared/terminal.ts"
import { console_, logs } from "./console.ts"
import { crashes } from "./crashes.ts"
import { create } from "./create.ts"
import { installLog } from "./installation.ts"
import { list, servers as listing, shownFields, top } from "./listing.ts"
import { patch } from "./patch.ts"
import {
  acted,
  bulkInput,
  confirmed,
  described,
  kill,
  pause,
  restart,
  start,
  stop,
  type Target,
  targetsOf,
  unpause
} from "./power.ts"
import { restoreServer } from "./restore.ts"
import { wait } from "./wait.ts"

/** Whether an argument is the id of a deleted server whose files are kept. */
const isDeleted = (text: string) =>
  Effect.map(serversOf({ deleted: true, q: text }), (found) => found.some(({ id }) => id === text))

export const remove = command("delete", {
  description:
    "Delete servers, whether they run or not. The files of a saved server that has run are kept for MUSTER_KEEP_DELETED of the service (7 days): `muster servers undelete` gives the server back.",
  short: "Delete servers",
  examples: {
    "muster servers delete survival-1": "A server, after confirmation",
    "muster servers delete survival-1 --purge": "With all of its files, at once",
    "muster servers delete --selector label=run=42 --yes": "Everything that a test run created"
  },
  input: {
    ...bulkInput,
    force: switchFlag(
      "force",
      "Also if the node cannot be reached; the files are removed when the node returns"
    ),
    purge: switchFlag(
      "purge",
      "Remove the files at once, so that the server cannot be undeleted; also of a deleted server, by its id"
    )
  },
  *run({ force, purge, ...input }) {
    const [id, ...others] = input.server
    if (purge && id !== undefined && others.length === 0 && (yield* isDeleted(id))) {
      yield* confirm(`Remove the files of the deleted server ${id}?`, input.yes)
      yield* ask((muster) =>
        muster.servers.remove({ params: { server: ServerId.make(id) }, query: { purge } })
      )
      return yield* Console.log(`${id} is purged`)
    }
    const targets = yield* targetsOf(input)
    if (targets.servers.length === 0) return yield* Console.error("No servers match.")
    const verb = purge ? "Delete with all files, for good," : "Delete"
    const isFinal = purge || targets.servers.every(({ save }) => save === false)
    const what = isFinal ? " This cannot be undone." : " Only a saved server that has run can be undeleted."
    yield* confirmed(verb, targets, input.yes, what)
    let kept: ReadonlyArray<Server> | undefined
    const look = (query: { readonly q?: string }) =>
      Effect.map(Effect.option(serversOf({ ...query, deleted: true, limit: MOST })), (found) => {
        kept = Option.getOrUndefined(found)
      })
    const result = ({ id }: Target) => {
      if (kept === undefined) return "is deleted"
      const until = kept.find((one) => one.id === id)?.purge_at
      return `is deleted; it ${until === undefined ? "cannot be undeleted" : `can be undeleted until ${until}`}`
    }
    yield* acted(result, targets, {
      one: (server) =>
        ask((muster) => muster.servers.remove({ params: { server }, query: { force, purge } })).pipe(
          Effect.andThen(look({ q: server }))
        ),
      many: (selector) =>
        ask((muster) =>
          muster.servers.removeMany({
            payload: { selector, ...(force ? { force } : {}), ...(purge ? { purge } : {}) }
          })
        ).pipe(Effect.tap(look({})))
    })
  }
})

export const undelete = command("undelete", {
  description:
    "Give a deleted server back, offline, with its files, and with its ports where they are free. `muster servers list --deleted` has the servers that can be undeleted.",
  short: "Give a deleted server back",
  examples: {
    "muster servers list --deleted": "What can be undeleted, and until when",
    "muster servers undelete survival-1": "A deleted server by its id, the beginning of it, or its last name"
  },
  input: { server: serverArgument },
  *run({ server }) {
    const deleted = yield* serversOf({ deleted: true, q: server, include: "name" })
    const { id } = yield* only("deleted server", server, deleted, ({ name }) => name ?? "")
    const { allocations, ports_changed = [] } = yield* ask((muster) =>
      muster.servers.undelete({ params: { server: id } })
    )
    yield* Console.log(`${id} is back at ${allocations.default.ip}:${allocations.default.port}, offline`)
    for (const { from, to } of ports_changed)
      yield* Console.log(`its port ${from} is taken; it has ${to} in its place`)
  }
})

export const reset = command("reset", {
  description:
    "Stop a server, delete everything that it has written, its world too, except in writable volumes and mounts, and restore the files of its blueprint. The server stays offline.",
  short: "Restore the files of the blueprint of a server",
  examples: {
    "muster servers reset survival-1": "After confirmation",
    "muster servers reset k7f --yes && muster servers start k7f": "With a new world, without a question"
  },
  input: { server: serverArgument, yes: yesFlag },
  *run({ server, yes }) {
    const found = yield* serverNamed(server)
    yield* confirm(`Stop ${described([found])} and delete everything that it has written?`, yes)
    yield* ask((muster) => muster.servers.reset({ params: { server: found.id } }))
    yield* Console.log(`${found.id} is being reset`)
  }
})

export const reinstall = command("reinstall", {
  description:
    "Run the install script of an offline server again, as after a failed installation. The files that a saved server has written stay.",
  short: "Run the install script of a server again",
  examples: {
    "muster servers reinstall survival-1": "With today's definition",
    "muster servers install-log survival-1 -f": "Follow it"
  },
  input: {
    server: serverArgument,
    definition: choiceFlag(
      "definition",
      ["today", "kept"],
      "`today`: blueprint and software as they are now; `kept`: the definition of the server; default: today, or kept if the blueprint does not exist any more"
    )
  },
  *run({ definition, server }) {
    const { id } = yield* serverNamed(server)
    const payload = definition._tag === "Some" ? { definition: definition.value } : {}
    yield* ask((muster) => muster.servers.reinstall({ params: { server: id }, payload }))
    yield* Console.log(`${id} installs`)
  }
})

export const send = command("send", {
  description: "Write a line to the console of a server that runs. `servers logs` shows the response.",
  short: "Write a line to the console of a server",
  examples: {
    "muster servers send survival-1 say hello": "The line `say hello`",
    "muster servers send k7f -- op alice -f": "After --, words may begin with a dash"
  },
  input: {
    server: serverArgument,
    command: textArgument("command", "The line to write; several words are one line").pipe(
      Argument.atLeast(1)
    )
  },
  *run({ command, server }) {
    const { id } = yield* serverNamed(server)
    yield* ask((muster) =>
      muster.servers.commands({ params: { server: id }, payload: { commands: [command.join(" ")] } })
    )
  }
})

/** A server with the warnings of its node, which has to be called for them. */
export const shownServer: Listing<Server> = {
  ...listing,
  columns: {
    ...listing.columns,
    warnings: ({ stats }) => ({
      text: (stats?.warnings ?? []).map(({ detail }) => detail).join("; "),
      color: "yellow"
    })
  }
}

export const show = objectCommand(
  "show",
  serverArgument,
  shownServer,
  (text) => serverNamed(text, [...shownFields, "stats"]),
  {
    description: "Show a server: its address, limits, expiry, pending changes, last crash and warnings.",
    examples: {
      "muster servers show survival-1": "A server by its name",
      "muster servers show k7f --json": "A server by the beginning of its id, as JSON"
    }
  }
)

export const upgrade = command("upgrade", {
  description:
    "Resolve the blueprint of a server again. The server keeps its data, its id and its ports. A server that is up gets the new definition at its next start; `muster rollouts start` restarts many servers, a few at a time. The table shortens long values; `--json` has them whole.",
  short: "Give a server today's blueprint and software",
  examples: {
    "muster servers upgrade survival-1 --dry-run": "What would change",
    "muster servers upgrade survival-1 --blueprint survival-2": "Another blueprint"
  },
  input: {
    server: serverArgument,
    blueprint: textFlag("blueprint", "Another blueprint; default: that of the server"),
    "dry-run": switchFlag("dry-run", "Show the changes, and make none"),
    ...outputFlags
  },
  *run({ blueprint, "dry-run": isPreview, server, ...flags }) {
    const { id } = yield* serverNamed(server)
    const found = yield* ask((muster) =>
      muster.servers.upgrade({
        params: { server: id },
        payload: {
          ...(isPreview ? { dry_run: true } : {}),
          ...given({ blueprint_id: blueprint })
        }
      })
    )
    if (formatOf(flags) === "json") yield* Console.log(jsonOf(found, 2))
    else yield* printList(flags, changes, found.changes, `${id} has today's definition.`)
    if (isPreview) yield* note("Nothing was changed.")
  }
})

export const servers = group("servers", {
  short: "Create, list, start, stop, watch and delete servers",
  description: "Create, list, start, stop, watch and delete servers of a running service.",
  subcommands: [
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
    undelete,
    logs,
    console_,
    send,
    top,
    wait,
    patch,
    upgrade,
    reinstall,
    reset,
    restoreServer,
    crashes,
    installLog
  ]
}).pipe(Command.provide(CommandClient))
