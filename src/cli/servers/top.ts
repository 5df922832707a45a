import { Console, Effect } from "effect"
import { Flag } from "effect/cli"
import type { Server, ServerStats } from "../../contract/domain/Server.ts"
import { command } from "../shared/command.ts"
import { ask, askAgain, following } from "../shared/musterClient.ts"
import { queryOf, selectionOf, selectorFlag, serversOf } from "../shared/named.ts"
import { formatOf, type Listing, outputFlags, printList, tableOfItems } from "../shared/output.ts"
import { isTerminal } from "../shared/terminal.ts"
import { DurationText, durationOf, shortDuration } from "../shared/times.ts"
import { statusCell } from "./listing.ts"

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
  id: ({ id }) => id,
  columns: [
    { name: "id", of: ({ id }) => id },
    { name: "name", of: ({ name }) => name ?? "" },
    { name: "node", of: ({ node_name }) => node_name },
    { name: "status", of: ({ status }) => statusCell(status) },
    { name: "cpu", of: of(({ cpu_absolute }) => figure(cpu_absolute, percent)) },
    { name: "cpu limit", wide: true, of: of(({ cpu_absolute_limit }) => limit(cpu_absolute_limit, percent)) },
    { name: "memory", of: of(({ memory_bytes }) => figure(memory_bytes, mib)) },
    { name: "limit", of: of(({ memory_limit_bytes }) => limit(memory_limit_bytes, mib)) },
    { name: "disk", of: of(({ disk_bytes }) => figure(disk_bytes, mib)) },
    { name: "received", wide: true, of: of(({ network }) => figure(network.rx_bytes, mib)) },
    { name: "sent", wide: true, of: of(({ network }) => figure(network.tx_bytes, mib)) },
    { name: "uptime", of: of(({ uptime }) => figure(uptime, (ms) => shortDuration(ms / 1000))) }
  ]
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
