/** Actions on one server or on many: those that the arguments name, or those of a selector. */
import { Array, Console, Effect } from "effect"
import type { BulkOutcomes, Selector } from "../../contract/domain/Selector.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { CommandError, wrongUsage } from "../shared/CommandError.ts"
import {
  queryOf,
  selectionOf,
  selectorFlag,
  serverArguments,
  serverNamed,
  serversOf
} from "../shared/named.ts"
import { withCommands } from "../shared/routeCommands.ts"
import { confirm, yesFlag } from "../shared/terminal.ts"

export const bulkInput = {
  server: serverArguments,
  selector: selectorFlag,
  yes: yesFlag
} as const

export interface BulkInput {
  readonly server: ReadonlyArray<string>
  readonly selector: ReadonlyArray<string>
  readonly yes: boolean
}

export type Target = Pick<Server, "id" | "name" | "status" | "save">

interface Targets {
  readonly servers: ReadonlyArray<Target>
  readonly isSelected: boolean
}

/** Finds the servers of a command. @error CommandError neither arguments nor a selector, or both (usage) */
export const targetsOf = Effect.fnUntraced(function* ({ selector, server }: BulkInput) {
  if ((selector.length === 0) === (server.length === 0)) {
    return yield* wrongUsage(
      "Name servers by id or name, or select them with --selector label=k=v; not both."
    )
  }
  if (server.length > 0) {
    const found = yield* Effect.forEach(server, (text) => serverNamed(text, ["save"]), { concurrency: 4 })
    const servers = [...new Map(found.map((one) => [one.id, one])).values()]
    return { servers, isSelected: false } satisfies Targets
  }
  const query = queryOf(yield* selectionOf(selector))
  const servers = yield* serversOf({ ...query, include: "name,status,save" })
  return { servers, isSelected: true } satisfies Targets
})

const LISTED = 5

/** Returns the servers for a question: `3 servers (a, b, c)`. */
export const described = (servers: Targets["servers"]): string => {
  const names = servers.slice(0, LISTED).map(({ id, name }) => (name ? `${id} "${name}"` : id))
  const more = servers.length > LISTED ? ", ..." : ""
  return `${servers.length === 1 ? "1 server" : `${servers.length} servers`} (${names.join(", ")}${more})`
}

/** @param consequence of the action */
export const confirmed = (verb: string, { servers }: Targets, yes: boolean, consequence = "") =>
  confirm(`${verb} ${described(servers)}?${consequence}`, yes)

/** Servers of one request: a service has a minute to respond to it. */
const CHUNK = 500

interface Action<R> {
  readonly one: (server: Server["id"]) => Effect.Effect<void, CommandError, R>
  readonly many: (selector: Selector) => Effect.Effect<BulkOutcomes, CommandError, R>
}

/** Carries out an action on servers and prints each result. @error CommandError some servers refuse (refused) */
export const acted = Effect.fnUntraced(function* <R>(
  done: (server: Target) => string,
  { isSelected, servers }: Targets,
  { many, one }: Action<R>
) {
  const [only] = servers
  if (!isSelected && servers.length === 1 && only !== undefined) {
    yield* Effect.mapError(
      one(only.id),
      ({ message, status }) =>
        new CommandError({
          // The command is right: a 422 is a start that cannot succeed (spec 3.16).
          status: status === "usage" ? "refused" : status,
          message: withCommands(message, only.id)
        })
    )
    return yield* Console.log(`${only.id} ${done(only)}`)
  }
  const failed: globalThis.Array<string> = []
  for (const chunk of Array.chunksOf(servers, CHUNK)) {
    const outcomes = yield* many({ ids: chunk.map(({ id }) => id) })
    const found = new Map(chunk.map((server): [string, Target] => [server.id, server]))
    for (const [id, outcome] of Object.entries(outcomes)) {
      const server = found.get(id)
      if ("code" in outcome) failed.push(withCommands(`${id}: ${outcome.detail}. ${outcome.hint}`, id))
      else if (server !== undefined) yield* Console.log(`${id} ${done(server)}`)
    }
  }
  if (failed.length > 0) {
    return yield* new CommandError({ status: "refused", message: failed.join("\n") })
  }
})
