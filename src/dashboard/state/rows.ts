/** The servers as the page has them: rows that are replaced, never changed. */

import type { InstallPhase, Server, ServerStatus } from "../api/types.ts"
import { withActions } from "../dom/routeActions.ts"

export interface Row {
  readonly id: string
  readonly name: string
  readonly blueprint: string
  readonly nodeId: string
  readonly nodeName: string
  readonly address: string
  /** Ports that the server holds on its node. */
  readonly ports: number
  readonly status: ServerStatus
  readonly phase: InstallPhase
  readonly failure: string
  /** Why the server cannot be started, or why its node has stopped it; empty: no reason is known. */
  readonly problem: string
  /** MiB; 0: no limit. */
  readonly memoryLimit: number
  readonly labels: Readonly<Record<string, string>>
  /** False: the server is deleted when it stops. */
  readonly isSaved: boolean
  readonly createdAt: string
  /** The time of the last crash if it was in the last day and is not known to be over; empty: none. */
  readonly crashedAt: string
  readonly restartAt: string
  /** All that a search looks at, in lower case. */
  readonly text: string
}

/** Returns why a server cannot be started, or why its node has stopped it, with the next step; empty: there is no reason. */
export const problemText = (problem: Server["problem"]): string => {
  if (problem === null || problem === undefined) return ""
  const { code, detail, hint } = problem
  const text = `${code === "507" ? "was stopped" : "cannot be started"}: ${detail}`
  return withActions(hint === "" ? text : `${text}. ${hint}`)
}

export const LIST_FIELDS = "status,limits,labels,name,install,restart,last_crash,problem,save"

/** Milliseconds for which the list shows a crash. */
const CRASH_SHOWN = 24 * 3600_000

/** Returns the last crash, unless the server has run since or the restart after it was cancelled. */
export const crashOf = ({ last_crash, restart, status }: Server) =>
  status === "running" || last_crash === null || (last_crash?.restart && restart === null)
    ? undefined
    : last_crash

const recentCrash = (server: Server): string => {
  const at = crashOf(server)?.crashed_at ?? ""
  return Date.now() - Date.parse(at) > CRASH_SHOWN ? "" : at
}

const addressOf = ({ alias, default: main }: Server["allocations"]): string => {
  const host = alias === "" ? main.ip : alias
  return `${host.includes(":") ? `[${host}]` : host}:${main.port}`
}

const textOf = (server: Server, address: string): string =>
  [
    server.id,
    server.name ?? "",
    server.blueprint_id,
    server.node_name,
    address,
    ...Object.entries(server.labels ?? {}).map(([key, value]) => `${key}=${value}`)
  ]
    .join("\n")
    .toLowerCase()

export const rowOf = (server: Server, before?: Row): Row => {
  const address = addressOf(server.allocations)
  const { install, limits, restart } = server
  return {
    id: server.id,
    name: server.name ?? "",
    blueprint: server.blueprint_id,
    nodeId: server.node_id,
    nodeName: server.node_name,
    address,
    ports: Object.values(server.allocations.mappings).reduce((sum, ports) => sum + ports.length, 0),
    status: server.status ?? "unknown",
    phase: install?.phase ?? "ready",
    failure: withActions(install?.failure_reason ?? ""),
    problem: problemText(server.problem),
    memoryLimit: limits?.memory_limit ?? 0,
    labels: server.labels ?? {},
    isSaved: server.save !== false,
    createdAt: server.created_at ?? before?.createdAt ?? "",
    crashedAt: recentCrash(server),
    restartAt: restart !== null && restart !== undefined && "next_at" in restart ? restart.next_at : "",
    text: textOf(server, address)
  }
}

/** A row with the summary of an event, which has the place of the server but not its further fields. */
export const withSummary = (row: Row, server: Server): Row => {
  const address = addressOf(server.allocations)
  return row.nodeId === server.node_id && row.address === address && row.blueprint === server.blueprint_id
    ? row
    : {
        ...row,
        address,
        blueprint: server.blueprint_id,
        nodeId: server.node_id,
        nodeName: server.node_name,
        text: textOf({ ...server, name: row.name, labels: row.labels }, address)
      }
}

/** A row with the settings of a server, which have no events. */
export const withSettings = (row: Row, server: Server): Row => ({
  ...row,
  name: server.name ?? "",
  labels: server.labels ?? {},
  isSaved: server.save !== false,
  memoryLimit: server.limits?.memory_limit ?? 0,
  text: textOf(server, row.address)
})

export const labelText = (name: string, value: string): string => (value === "" ? name : `${name}=${value}`)

export const titleOf = ({ id, name }: Pick<Row, "id" | "name">): string => (name === "" ? id : name)
