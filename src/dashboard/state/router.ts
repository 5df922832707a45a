/** The page that the address names. */
import { signal } from "@preact/signals"

/** Pages whose address has no parts. */
const plain = ["nodes", "rollouts", "keys", "quotas", "webhooks", "settings", "new"] as const

export type Route =
  | { readonly page: "servers" }
  | { readonly page: "server"; readonly id: string; readonly tab: string }
  | { readonly page: "events"; readonly tab: string }
  | { readonly page: (typeof plain)[number] }

const BASE = "/dashboard"

const routeOf = ({ hash, pathname }: Pick<Location, "hash" | "pathname">): Route => {
  const [, , page = "", id = ""] = pathname.split("/")
  if (page === "servers" && id !== "") {
    return { page: "server", id: decodeURIComponent(id), tab: hash.slice(1) }
  }
  if (page === "events") return { page, tab: hash.slice(1) }
  return { page: plain.find((one) => one === page) ?? "servers" }
}

export const route = signal<Route>(routeOf(location))

export const titles = {
  servers: "Servers",
  nodes: "Nodes",
  rollouts: "Rollouts",
  events: "Events",
  keys: "Keys",
  quotas: "Quotas",
  webhooks: "Webhooks",
  settings: "Settings",
  new: "New server"
} as const

export const showTitle = (text: string): void => {
  document.title = `${text} · Muster`
}

const update = (): void => {
  route.value = routeOf(location)
  const { page } = route.value
  if (page !== "server") showTitle(titles[page])
}

window.addEventListener("popstate", update)

export const addressOf = {
  servers: (query = ""): string => `${BASE}${query === "" ? "" : `?${query}`}`,
  server: (id: string, tab = ""): string =>
    `${BASE}/servers/${encodeURIComponent(id)}${tab === "" ? "" : `#${tab}`}`,
  nodes: `${BASE}/nodes`,
  rollouts: `${BASE}/rollouts`,
  keys: `${BASE}/keys`,
  quotas: `${BASE}/quotas`,
  webhooks: `${BASE}/webhooks`,
  settings: `${BASE}/settings`,
  events: (tab = ""): string => `${BASE}/events${tab === "" ? "" : `#${tab}`}`,
  new: `${BASE}/new`
} as const

/** Shows another page; `replace`: without a step back. */
export const go = (address: string, options: { readonly replace?: boolean } = {}): void => {
  if (options.replace === true) history.replaceState(null, "", address)
  else history.pushState(null, "", address)
  update()
  if (options.replace !== true) scrollTo(0, 0)
}

/** Keeps a click on a link in the page, unless the browser shall open a tab or a window. */
export const follow = (event: MouseEvent, options: { readonly replace?: boolean } = {}): void => {
  const { currentTarget } = event
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey
  if (!(currentTarget instanceof HTMLAnchorElement) || !isPlain) return
  event.preventDefault()
  go(currentTarget.href, options)
}

update()
