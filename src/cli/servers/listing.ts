import { Console, Effect, Option } from "effect"
import { Flag } from "effect/cli"
import type { Server, ServerStats } from "../../contract/domain/Server.ts"
import type { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import { command, switchFlag } from "../shared/command.ts"
import { withCommands } from "../shared/failures.ts"
import { ask, askAgain, following } from "../shared/musterClient.ts"
import { queryOf, selectionOf, selectorFlag, serversOf } from "../shared/named.ts"
import {
  formatOf,
  type Listing,
  type OutputOptions,
  outputFlags,
  printList,
  tableOfItems,
  wide
} from "../shared/output.ts"
import { type Color, isTerminal } from "../shared/terminal.ts"
import { DurationText, durationOf, shortDuration } from "../shared/times.ts"

const MIB = 1024 ** 2

const figure = (value: number | null | undefined, show: (known: number) => string): string =>
  value === null || value === undefined ? "" : show(value)

const mib = (bytes: number): string => `${Math.round(bytes / MIB)} MiB`

const percent = (share: number): string => `${share.toFixed(1)} %`

const limit = (value: number | undefined, show: (known: number) => string): string =>
  value === undefined || value === 0 ? "" : show(value)

const of =
  (read: (stats: ServerStats) => string) =>
  ({ stats }: Server) =>
    stats === null || stats === undefined ? "" : read(stats)

const listing: Listing<Server> = {
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name ?? "",
    node: ({ node_name }) => node_name,
    status: ({ status }) => statusCell(status),
    cpu: of(({ cpu_absolute }) => figure(cpu_absolute, percent)),
    "cpu limit": wide(of(({ cpu_absolute_limit }) => limit(cpu_absolute_limit, percent))),
    memory: of(({ memory_bytes }) => figure(memory_bytes, mib)),
    limit: of(({ memory_limit_bytes }) => limit(memory_limit_bytes, mib)),
    disk: of(({ disk_bytes }) => figure(disk_bytes, mib)),
    received: wide(of(({ network }) => figure(network.rx_bytes, mib))),
    sent: wide(of(({ network }) => figure(network.tx_bytes, mib))),
    uptime: of(({ uptime }) => figure(uptime, (ms) => shortDuration(ms / 1000)))
  }
}

const cpuOf = ({ stats }: Server): number => stats?.cpu_absolute ?? -1

/** Moves the cursor of the terminal to its first line, and clears what is below. */
const REDRAW = "\u001b[H\u001b[J"

const OTHER_LINES = 3

/** Lines of a terminal that does not say how many it has. */
const USUAL_LINES = 24

/** Returns what a terminal shows: as many servers as it has lines. */
const screen = (servers: ReadonlyArray<Server>, isWide: boolean): string => {
  const { rows } = process.stdout
  const room = Math.max(1, (rows > 0 ? rows : USUAL_LINES) - OTHER_LINES)
  const more = servers.length > room ? `\n${servers.length - room} more` : ""
  return `${tableOfItems(listing, servers.slice(0, room), isWide)}${more}`
}

export const top = command("top", {
  description:
    "Show CPU (percent of one thread), memory and disk of servers, those with the most CPU first. On a terminal, the table is drawn again until Ctrl-C; otherwise it is printed once.",
  short: "Show CPU, memory and disk of servers, live",
  examples: {
    "muster servers top": "All servers, live",
    "muster servers top --selector node=local --json": "Once, for programs"
  },
  input: {
    selector: selectorFlag,
    interval: Flag.String("interval").pipe(
      Flag.withDescription("The time between two measurements; default 2s"),
      Flag.withDefault("2s"),
      Flag.withSchema(DurationText)
    ),
    ...outputFlags
  },
  *run({ interval, selector, ...flags }) {
    const query = { ...queryOf(yield* selectionOf(selector)), include: "status,name,stats" }
    const measured = (call = ask) =>
      Effect.map(serversOf(query, call), (found) => found.toSorted((a, b) => cpuOf(b) - cpuOf(a)))
    const format = formatOf(flags)
    if (!isTerminal() || (format !== "table" && format !== "wide")) {
      return yield* printList(flags, listing, yield* measured(), "No servers.")
    }
    const draw = (servers: ReadonlyArray<Server>) => {
      process.stdout.write(REDRAW)
      return Console.log(screen(servers, format === "wide"))
    }
    yield* draw(yield* measured())
    yield* following(
      Effect.forever(Effect.delay(Effect.flatMap(measured(askAgain), draw), durationOf(interval)))
    )
  }
})

const PAGE = 1000

type Query = ReturnType<typeof queryOf> & { readonly q?: string; readonly deleted?: boolean }

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
    deleted: switchFlag(
      "deleted",
      "Deleted servers whose files are kept, newest deletion first; `muster servers undelete` gives one back"
    ),
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
  *run({ deleted: ofDeleted, limit, search, selector, ...flags }) {
    const query = {
      ...queryOf(yield* selectionOf(selector)),
      ...(ofDeleted ? { deleted: true } : {})
    }
    const found = yield* pages(
      Option.isSome(search) ? { ...query, q: search.value } : query,
      shownFields.join(","),
      Option.getOrElse(limit, () => Number.POSITIVE_INFINITY)
    )
    if (ofDeleted) yield* printList(flags, deleted, found, "No deleted servers.")
    else yield* printList(flags, servers, found, "No servers.")
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

const statusCell = (status: ServerStatus | undefined) => ({
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
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name ?? "",
    blueprint: ({ blueprint_id }) => blueprint_id,
    status: stateCell,
    node: ({ node_name }) => node_name,
    address: address,
    saved: ({ save }) =>
      save === false ? { text: "not saved", color: "yellow" } : save === true ? "yes" : "",
    labels: labelsOf,
    software: wide(({ software = "", version = "" }) => `${software} ${version}`.trim()),
    memory: wide(({ limits }) => (limits?.memory_limit === undefined ? "" : `${limits.memory_limit} MiB`)),
    outdated: wide(({ definition }) => (definition?.outdated === true ? "yes" : "")),
    pending: wide(({ pending = [] }) => pending.join(",")),
    run: wide(runOf),
    expires: wide(({ expires_at }) => expires_at ?? ""),
    changed: wide(({ updated_at }) => updated_at ?? ""),
    condition: wide(conditionOf)
  }
}

/** Deleted servers whose files are kept. */
const deleted: Listing<Server> = {
  columns: {
    id: ({ id }) => id,
    name: ({ name }) => name ?? "",
    blueprint: ({ blueprint_id }) => blueprint_id,
    node: ({ node_name }) => node_name,
    address: address,
    labels: labelsOf,
    deleted: ({ deleted_at }) => deleted_at ?? "",
    "kept until": ({ purge_at }) => purge_at ?? ""
  }
}

/** Prints a server with all fields of {@link servers}, and returns it. */
export const printServer = Effect.fnUntraced(function* (flags: OutputOptions, id: Server["id"]) {
  const server = yield* ask((muster) =>
    muster.servers.get({ params: { server: id }, query: { include: shownFields.join(",") } })
  )
  yield* printList(flags, servers, [server], "")
  return server
})
