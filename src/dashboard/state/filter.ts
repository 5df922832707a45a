/** Which servers the list shows, and in which order. The address of the page has it, so that it can be shared. */
import { signal } from "@preact/signals"
import type { ServerStatus } from "../api/types.ts"
import { addressOf } from "./router.ts"
import { hasFailed, type Row, searchText } from "./rows.ts"

/** The columns by which the list is sorted, with their titles. */
export const columns = {
  name: "Server",
  status: "Status",
  blueprint: "Blueprint",
  node: "Node",
  address: "Address",
  memory: "Memory",
  cpu: "CPU",
  uptime: "Uptime",
  created: "Created"
} as const
export type Column = keyof typeof columns

export interface Filter {
  /** Words, `label:k=v` and `label:k`. */
  readonly q: string
  readonly status: ServerStatus | "failed" | ""
  readonly blueprint: string
  readonly node: string
  readonly sort: Column
  readonly descending: boolean
}

const none: Filter = { q: "", status: "", blueprint: "", node: "", sort: "created", descending: true }

export const isColumn = (text: string): text is Column => Object.hasOwn(columns, text)

const filterOf = (search: string): Filter => {
  const query = new URLSearchParams(search)
  const sort = (query.get("sort") ?? "").replace(/^-/, "")
  return {
    q: query.get("q") ?? "",
    // An unknown status shows no server, as it would at the service.
    status: (query.get("status") ?? "") as Filter["status"],
    blueprint: query.get("blueprint") ?? "",
    node: query.get("node") ?? "",
    ...(isColumn(sort)
      ? { sort, descending: query.get("sort")?.startsWith("-") === true }
      : { sort: none.sort, descending: none.descending })
  }
}

export const filter = signal<Filter>(location.pathname === "/dashboard" ? filterOf(location.search) : none)

export const queryOf = ({ descending, sort, ...words }: Filter): string => {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(words)) if (value !== "") query.set(name, value)
  if (sort !== none.sort || descending !== none.descending)
    query.set("sort", `${descending ? "-" : ""}${sort}`)
  return query.toString()
}

export const isFiltered = ({ blueprint, node, q, status }: Filter): boolean =>
  q !== "" || status !== "" || blueprint !== "" || node !== ""

export const listAddress = (): string => addressOf.servers(queryOf(filter.value))

export const setFilter = (change: Partial<Filter>): void => {
  filter.value = { ...filter.value, ...change }
  history.replaceState(history.state, "", listAddress())
}

export const clearFilter = (): void => setFilter({ q: "", status: "", blueprint: "", node: "" })

// A step back in the browser.
window.addEventListener("popstate", () => {
  if (location.pathname === "/dashboard") filter.value = filterOf(location.search)
})

const termsOf = (q: string) => {
  const terms = q.trim().toLowerCase().split(/\s+/).filter(Boolean)
  const labels = terms.filter((term) => term.startsWith("label:")).map((term) => term.slice("label:".length))
  return { labels, words: terms.filter((term) => !term.startsWith("label:")) }
}

const hasLabel = (row: Row, condition: string): boolean => {
  const [name = "", value] = condition.split("=")
  const found = row.labels[name]
  return found !== undefined && (value === undefined || found.toLowerCase() === value)
}

export const matcherOf = ({ blueprint, node, q, status }: Filter): ((row: Row) => boolean) => {
  const { labels, words } = termsOf(q)
  return (row) =>
    (status === "" || (status === "failed" ? hasFailed(row) : row.status === status)) &&
    (blueprint === "" || row.blueprint_id === blueprint) &&
    (node === "" || row.node_id === node) &&
    words.every((word) => searchText(row).includes(word)) &&
    labels.every((label) => hasLabel(row, label))
}

/** The filter as parameters of the API, for a list that the page does not have as a whole; begins with `&`. */
export const conditionsOf = ({ blueprint, node, q, status }: Filter): string => {
  const { labels, words } = termsOf(q)
  const pairs: ReadonlyArray<readonly [string, string]> = [
    ["status", status === "failed" ? "" : status],
    ["blueprint_id", blueprint],
    ["node_id", node],
    ["q", words[0] ?? ""],
    ...labels.map((label) => ["label", label] as const)
  ]
  return pairs
    .filter(([, value]) => value !== "")
    .map(([name, value]) => `&${name}=${encodeURIComponent(value)}`)
    .join("")
}
