import { Effect, Option } from "effect"
import { Flag } from "effect/cli"
import type { Server } from "../../contract/domain/Server.ts"
import type { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import { command } from "../shared/command.ts"
import { ask } from "../shared/musterClient.ts"
import { queryOf, selectionOf, selectorFlag, serversOf } from "../shared/named.ts"
import { type Listing, type OutputOptions, outputFlags, printList } from "../shared/output.ts"
import { withCommands } from "../shared/routeCommands.ts"
import type { Color } from "../shared/terminal.ts"
import { shortDuration } from "../shared/times.ts"

const PAGE = 1000

type Query = ReturnType<typeof queryOf> & { readonly q?: string }

const pages = Effect.fnUntraced(function* (query: Query, include: string, most: number) {
  const all: Array<Server> = []
  while (all.length < most) {
    const limit = Math.min(PAGE, most - all.length)
    const last = all.at(-1)
    const page = yield* serversOf({
      ...query,
      include,
      limit: String(limit),
      ...(last === undefined ? {} : { after: last.id })
    })
    all.push(...page)
    if (page.length < limit) break
  }
  return all
})

export const list = command("list", {
  description: "List servers in the order of their creation, all pages of them.",
  short: "List servers",
  examples: {
    "muster servers list -o wide": "All servers, with limits and conditions",
    "muster servers list --selector label=team=a --selector status=running -o id":
      "The ids of the running servers of a team"
  },
  input: {
    ...outputFlags,
    selector: selectorFlag,
    search: Flag.String("search").pipe(
      Flag.withAlias("q"),
      Flag.withDescription("Servers whose id begins with this, or whose name contains it"),
      Flag.optional
    ),
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("At most this many servers; default: all"),
      Flag.filter(
        (limit) => limit > 0,
        () => "a whole number of at least 1"
      ),
      Flag.optional
    )
  },
  *run({ limit, search, selector, ...flags }) {
    const query = queryOf(yield* selectionOf(selector))
    const found = yield* pages(
      Option.isSome(search) ? { ...query, q: search.value } : query,
      shownFields.join(","),
      Option.getOrElse(limit, () => Number.POSITIVE_INFINITY)
    )
    yield* printList(flags, servers, found, "No servers.")
  }
})

const colors: Readonly<Partial<Record<ServerStatus, Color>>> = {
  running: "green",
  starting: "yellow",
  stopping: "yellow",
  installing: "yellow",
  paused: "yellow",
  unknown: "red"
}

export const statusCell = (status: ServerStatus | undefined) => ({
  text: status ?? "",
  color: status === undefined ? undefined : colors[status]
})

/** Returns the status of a server; of one that waits for its start, its place or the time until then. */
const stateCell = ({ restart, run, status }: Server) => {
  const cell = statusCell(status)
  if (run?.waiting !== undefined)
    return { text: `${cell.text}, starts as number ${run.waiting}`, color: "yellow" as const }
  if (status !== "offline" || restart === null || restart === undefined || !("next_at" in restart))
    return cell
  const seconds = (Date.parse(restart.next_at) - Date.now()) / 1000
  return {
    text: `${cell.text}, restart ${restart.attempt} in ${shortDuration(seconds)}`,
    color: "yellow" as const
  }
}

/** The fields of the API that {@link servers} shows. */
export const shownFields = [
  "status",
  "name",
  "labels",
  "install",
  "last_crash",
  "restart",
  "run",
  "problem",
  "limits",
  "software",
  "definition",
  "save",
  "expires_at",
  "updated_at"
]

const address = ({ allocations }: Server): string => `${allocations.default.ip}:${allocations.default.port}`

const labelsOf = ({ labels = {} }: Server): string =>
  Object.entries(labels)
    .map(([key, value]) => (value === "" ? key : `${key}=${value}`))
    .join(",")

/** Returns the failed installation, the refused start, or the next restart and the last crash, after which the server may have run. */
const conditionOf = ({ id, install, last_crash, problem, restart }: Server): string => {
  const told = (text: string) => withCommands(text, id)
  if (install?.phase === "failed")
    return `installation failed: ${told(install.failure_reason ?? "no reason")}`
  if (problem !== null && problem !== undefined) {
    const since = `${problem.code === "507" ? "stopped" : "cannot be started"} since ${problem.since}`
    return `${since}: ${told(`${problem.detail}. ${problem.hint}`)}`
  }
  const parts: Array<string> = []
  if (restart !== null && restart !== undefined) {
    parts.push(
      "next_at" in restart
        ? `restart ${restart.attempt} at ${restart.next_at}`
        : `no restart: ${told(restart.reason)}`
    )
  }
  if (last_crash !== null && last_crash !== undefined)
    parts.push(`last crash ${last_crash.crashed_at}: ${last_crash.reason}`)
  return parts.join("; ")
}

const runOf = ({ run }: Server): string =>
  run === undefined ? "" : run.stopped_by === undefined ? run.run : `${run.run}, stopped by ${run.stopped_by}`

export const servers: Listing<Server> = {
  id: ({ id }) => id,
  columns: [
    { name: "id", of: ({ id }) => id },
    { name: "name", of: ({ name }) => name ?? "" },
    { name: "blueprint", of: ({ blueprint_id }) => blueprint_id },
    { name: "status", of: stateCell },
    { name: "node", of: ({ node_name }) => node_name },
    { name: "address", of: address },
    {
      name: "saved",
      of: ({ save }) => (save === false ? { text: "not saved", color: "yellow" } : save === true ? "yes" : "")
    },
    { name: "labels", of: labelsOf },
    {
      name: "software",
      wide: true,
      of: ({ software = "", version = "" }) => `${software} ${version}`.trim()
    },
    {
      name: "memory",
      wide: true,
      of: ({ limits }) => (limits?.memory_limit === undefined ? "" : `${limits.memory_limit} MiB`)
    },
    { name: "outdated", wide: true, of: ({ definition }) => (definition?.outdated === true ? "yes" : "") },
    { name: "pending", wide: true, of: ({ pending = [] }) => pending.join(",") },
    { name: "run", wide: true, of: runOf },
    { name: "expires", wide: true, of: ({ expires_at }) => expires_at ?? "" },
    { name: "changed", wide: true, of: ({ updated_at }) => updated_at ?? "" },
    { name: "condition", wide: true, of: conditionOf }
  ]
}

/** Prints a server with all fields of {@link servers}, and returns it. */
export const printServer = Effect.fnUntraced(function* (flags: OutputOptions, id: Server["id"]) {
  const server = yield* ask((muster) =>
    muster.servers.get({ params: { server: id }, query: { include: shownFields.join(",") } })
  )
  yield* printList(flags, servers, [server], "")
  return server
})
