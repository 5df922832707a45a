/** The servers of the list. They are replaced, never changed. */
import type { CrashRecord, Server } from "../api/types.ts"
import { withActions } from "../dom/routeActions.ts"

/** A server with the fields of {@link LIST_FIELDS}. */
export interface Row extends Omit<Server, "last_crash"> {
  readonly last_crash?: Pick<CrashRecord, "crashed_at" | "reason" | "restart"> | null
  readonly status: NonNullable<Server["status"]>
  readonly labels: NonNullable<Server["labels"]>
}

export const LIST_FIELDS = "status,limits,labels,name,install,restart,last_crash,problem,save"

/** Returns the row of a server; fields that were not read stay as they were. */
export const rowOf = (server: Partial<Row> & Server, before?: Row): Row => ({
  status: "unknown",
  labels: {},
  ...before,
  ...server
})

/** Returns why a server cannot be started, or why its node has stopped it, with the next step; empty: there is no reason. */
export const problemText = (problem: Server["problem"]): string => {
  if (problem === null || problem === undefined) return ""
  const { code, detail, hint } = problem
  const text = `${code === "507" ? "was stopped" : "cannot be started"}: ${detail}`
  return withActions(hint === "" ? text : `${text}. ${hint}`)
}

export const failureText = ({ install }: Pick<Server, "install">): string =>
  withActions(install?.failure_reason ?? "no reason is known")

/** Returns the last crash, unless the server has run since or the restart after it was cancelled. */
export const crashOf = ({
  last_crash,
  restart,
  status
}: Pick<Row, "last_crash" | "restart"> & Pick<Server, "status">) =>
  status === "running" || last_crash === null || (last_crash?.restart && restart === null)
    ? undefined
    : last_crash

/** Milliseconds for which the list shows a crash. */
const CRASH_SHOWN = 24 * 3600_000

/** The time of the last crash, if the list shows it. */
export const recentCrash = (row: Row): string | undefined => {
  const at = row.status === "offline" ? crashOf(row)?.crashed_at : undefined
  return at !== undefined && Date.now() - Date.parse(at) <= CRASH_SHOWN ? at : undefined
}

/** Whether a server needs a look. */
export const hasFailed = (row: Row): boolean =>
  row.install?.phase === "failed" ||
  row.status === "unknown" ||
  (row.status === "offline" && (Boolean(row.problem) || recentCrash(row) !== undefined))

export const addressText = ({
  allocations: { alias, default: main }
}: Pick<Server, "allocations">): string => {
  const host = alias === "" ? main.ip : alias
  return `${host.includes(":") ? `[${host}]` : host}:${main.port}`
}

const searched = new WeakMap<Row, string>()

/** Returns all that a search looks at, in lower case. */
export const searchText = (row: Row): string => {
  const known = searched.get(row)
  if (known !== undefined) return known
  const labels = Object.entries(row.labels).map(([key, value]) => `${key}=${value}`)
  const text = [row.id, row.name ?? "", row.blueprint_id, row.node_name, addressText(row), ...labels]
    .join("\n")
    .toLowerCase()
  searched.set(row, text)
  return text
}

export const titleOf = ({ id, name }: { readonly id: string; readonly name?: string | null }): string =>
  name || id
