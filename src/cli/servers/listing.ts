import { Effect } from "effect"
import type { Server } from "../../contract/domain/Server.ts"
import type { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import { shortDuration } from "../shared/durations.ts"
import { ask } from "../shared/musterClient.ts"
import { type Listing, type OutputOptions, printList } from "../shared/output.ts"
import { withCommands } from "../shared/routeCommands.ts"
import type { Color } from "../shared/terminal.ts"

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
