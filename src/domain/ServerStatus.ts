import { Schema } from "effect"

/** Power and process status of a server (contract, section 3; decisions, "States"). */
export const ServerStatus = Schema.Literals([
  "installing",
  "offline",
  "starting",
  "running",
  "stopping",
  "paused",
  "unknown"
]).annotate({ identifier: "ServerStatus" })
export type ServerStatus = typeof ServerStatus.Type

/** What can move a server from one status to another. */
export type Trigger =
  | "installed"
  | "install-failed"
  | "start"
  | "online"
  | "stop"
  | "ended-as-asked"
  | "ended-on-its-own"
  | "pause"
  | "unpause"
  | "node-lost"
  | "reinstall"

interface Transition {
  readonly from: ReadonlyArray<ServerStatus>
  readonly on: Trigger
  readonly to: ServerStatus
}

const every = ServerStatus.literals

/** The transition table of the decisions, row by row. */
export const transitions: ReadonlyArray<Transition> = [
  { from: ["installing"], on: "installed", to: "offline" },
  { from: ["installing"], on: "install-failed", to: "offline" },
  { from: ["offline"], on: "start", to: "starting" },
  { from: ["starting"], on: "online", to: "running" },
  { from: ["starting", "running"], on: "stop", to: "stopping" },
  { from: ["starting", "running", "stopping"], on: "ended-as-asked", to: "offline" },
  { from: ["starting", "running"], on: "ended-on-its-own", to: "offline" },
  { from: ["running"], on: "pause", to: "paused" },
  { from: ["paused"], on: "unpause", to: "running" },
  { from: every, on: "node-lost", to: "unknown" },
  { from: ["offline"], on: "reinstall", to: "installing" }
]

/** The status that `on` leads to from `from`; undefined when the table has no such move. */
export const next = (from: ServerStatus, on: Trigger): ServerStatus | undefined =>
  transitions.find((row) => row.on === on && row.from.includes(from))?.to

/**
 * Whether a node's report `to` fits the table when the record says `from`. A report that does not fit is
 * logged and the node's view wins, so this decides about a log line, never about the outcome. `unknown` fits
 * anything: it goes back to what the node says.
 */
export const fits = (from: ServerStatus, to: ServerStatus): boolean =>
  from === to || from === "unknown" || transitions.some((row) => row.to === to && row.from.includes(from))

/** Whether a process of the server exists in this status. */
export const isUp = (status: ServerStatus): boolean =>
  status === "starting" || status === "running" || status === "stopping" || status === "paused"
