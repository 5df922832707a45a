import { Schema } from "effect"

/** Power and process status of a server (spec 3.5). */
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
  | "reset"

interface Transition {
  readonly from: ReadonlyArray<ServerStatus>
  readonly on: Trigger
  readonly to: ServerStatus
}

const every = ServerStatus.literals

/** The transition table (spec 3.5), row by row. */
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
  { from: ["offline"], on: "reinstall", to: "installing" },
  { from: ["offline"], on: "reset", to: "installing" }
]

/** Returns the status after `on`; undefined: the table has no such transition. */
export const next = (from: ServerStatus, on: Trigger): ServerStatus | undefined =>
  transitions.find((row) => row.on === on && row.from.includes(from))?.to

/**
 * Whether a report fits the table. One that does not is logged and still applied, because the node is authoritative.
 */
export const fits = (from: ServerStatus, to: ServerStatus): boolean =>
  from === to || from === "unknown" || transitions.some((row) => row.to === to && row.from.includes(from))

/** Whether a server with this status has a process. */
export const isUp = (status: ServerStatus): boolean =>
  status === "starting" || status === "running" || status === "stopping" || status === "paused"

/** Whether a server is up and not stopping, or about to start: a stop must be made good by a start. */
export const staysUp = ({
  start_pending,
  status
}: {
  readonly start_pending: boolean
  readonly status: ServerStatus
}) => start_pending || (isUp(status) && status !== "stopping")
