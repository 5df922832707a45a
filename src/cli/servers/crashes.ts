import { Console, Effect, Option } from "effect"
import { Flag } from "effect/cli"
import type { CrashRecord } from "../../contract/domain/CrashRecord.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { command, given, limitFlag, textFlag } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { nodeNamed, optionalServerArgument, serverNamed } from "../shared/named.ts"
import { formatOf, type Listing, outputFlags, printList, tableOfItems, wide } from "../shared/output.ts"
import { shortDuration, sinceFlag } from "../shared/times.ts"

const restartOf = ({ restart }: CrashRecord): string => {
  if (restart === null) return ""
  return "next_at" in restart ? `attempt ${restart.attempt} at ${restart.next_at}` : `none: ${restart.reason}`
}

const listing: Listing<CrashRecord> = {
  columns: {
    crashed: ({ crashed_at }) => crashed_at,
    server: ({ server_id }) => server_id,
    blueprint: ({ blueprint_id }) => blueprint_id,
    reason: ({ reason }) => reason,
    "exit code": ({ exit_code }) => String(exit_code),
    uptime: ({ uptime_seconds }) => (uptime_seconds === null ? "" : shortDuration(uptime_seconds)),
    name: wide(({ server_name }) => server_name ?? ""),
    node: wide(({ node_id }) => node_id),
    version: wide(({ version }) => version),
    restart: wide(restartOf),
    id: wide(({ id }) => id)
  }
}

const crashesOf = (text: string, query: { readonly limit: string }) =>
  Effect.matchEffect(serverNamed(text), {
    onSuccess: ({ id: server }) =>
      ask((muster) => muster.servers.crashesOf({ params: { server: ServerId.make(server) }, query })),
    onFailure: (error) =>
      error.status === "notFound"
        ? Effect.filterOrFail(
            ask((muster) => muster.servers.crashes({ query: { ...query, server: text } })),
            (found) => found.length > 0,
            () =>
              CommandError.notFound(`${error.message} No deleted server with this id or name has crashes.`)
          )
        : Effect.fail(error)
  })

/** Returns the text for a server without crashes: deleted servers of its name may have some. */
const noCrashes = (text: string) =>
  Effect.map(
    ask((muster) => muster.servers.crashes({ query: { server: text, limit: "1" } })),
    ([crash]) =>
      crash === undefined
        ? "No crashes."
        : `No crashes. A deleted server of this name crashed: \`muster servers crashes ${crash.server_id}\`.`
  )

export const crashes = command("crashes", {
  description:
    "List crashes, newest first, of one server (also of a deleted one, by its id or last name) or of all. The service keeps the newest 5 crashes of each server and the newest of each blueprint (MUSTER_CRASHES_KEEP).",
  short: "List crashes with reasons and console lines",
  examples: {
    "muster servers crashes k7f3m9q2x8ab --lines 50": "Why a deleted server crashed",
    "muster servers crashes --since 24h --blueprint survival": "The crashes of a day"
  },
  input: {
    server: optionalServerArgument,
    since: sinceFlag("Only crashes since this time"),
    blueprint: textFlag("blueprint", "Only crashes of servers of this blueprint"),
    node: textFlag("node", "Only crashes on this node"),
    limit: limitFlag("At most this many crashes, 1 to 100; default 20", 20),
    lines: Flag.Int("lines").pipe(
      Flag.withDescription(
        "Also print this many of the last console lines of each crash, 0 to 200; default 0"
      ),
      Flag.withDefault(0)
    ),
    ...outputFlags
  },
  *run({ blueprint, limit, lines, node, server, since, ...flags }) {
    const page = { limit: String(limit) }
    if (Option.isSome(server) && [since, blueprint, node].some(Option.isSome)) {
      return yield* wrongUsage(
        "--since, --blueprint and --node choose among the crashes of all servers: leave out the server."
      )
    }
    const found = yield* Option.isSome(server)
      ? crashesOf(server.value, page)
      : Effect.gen(function* () {
          const query = {
            ...page,
            ...given({ since, blueprint_id: blueprint }),
            ...(Option.isSome(node) ? { node_id: (yield* nodeNamed(node.value)).id } : {})
          }
          return yield* ask((muster) => muster.servers.crashes({ query }))
        })
    const format = formatOf(flags)
    if (lines <= 0 || (format !== "table" && format !== "wide")) {
      const none =
        found.length === 0 && Option.isSome(server) ? yield* noCrashes(server.value) : "No crashes."
      return yield* printList(flags, listing, found, none)
    }
    for (const crash of found) {
      yield* Console.log(tableOfItems(listing, [crash], format === "wide"))
      for (const line of crash.lines.slice(-lines)) yield* Console.log(`  ${line}`)
    }
  }
})
