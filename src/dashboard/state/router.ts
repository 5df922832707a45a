/** The page that the address names. */
import { signal } from "@preact/signals"

/** Pages whose address has no parts. */
const plain = [
  "nodes",
  "deleted",
  "rollouts",
  "schedules",
  "backups",
  "keys",
  "quotas",
  "webhooks",
  "targets",
  "settings",
  "new"
] as const

/** The part of the page of a server: its tab and, of the tab Files, a path. The paths of folders end with a slash. */
export interface Place {
  readonly tab: string
  readonly path: string
  /** The line of a file, from 1. */
  readonly line: number | undefined
}

export type Route =
  | { readonly page: "servers" }
  | ({ readonly page: "server"; readonly id: string } & Place)
  | { readonly page: "events"; readonly tab: string }
  | { readonly page: (typeof plain)[number] }

const BASE = "/dashboard"

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const placeOf = (hash: string): Place => {
  const [place = "", line] = hash.slice(1).split("?line=")
  const [tab = ""] = place.split("/", 1)
  const at = Number(line)
  return { tab, path: decoded(place.slice(tab.length)), line: at > 0 ? at : undefined }
}

const routeOf = ({ hash, pathname }: Pick<Location, "hash" | "pathname">): Route => {
  const [, , page = "", id = ""] = pathname.split("/")
  if (page === "servers" && id !== "") {
    return { page: "server", id: decodeURIComponent(id), ...placeOf(hash) }
  }
  if (page === "events") return { page, tab: hash.slice(1) }
  return { page: plain.find((one) => one === page) ?? "servers" }
}

export const route = signal<Route>(routeOf(location))

export const titles = {
  servers: "Servers",
  nodes: "Nodes",
  deleted: "Deleted servers",
  rollouts: "Rollouts",
  schedules: "Schedules",
  backups: "Backups",
  events: "Events",
  keys: "Keys",
  quotas: "Quotas",
  webhooks: "Webhooks",
  targets: "Backup targets",
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

/** The number of the present page in the history of the tab. */
const positionIn = (state: unknown, otherwise: number): number =>
  typeof state === "object" && state !== null && "at" in state ? Number(state.at) : otherwise

let position = positionIn(history.state, 0)
history.replaceState({ at: position }, "")

/** Asks whether the page may be left, and calls `leave` if so. */
type Guard = (leave: () => void) => void

let guard: Guard | undefined
let isLeaving = false

/** Asks before the page is left, until the returned function is called. The browser asks before a reload. */
export const guardPage = (ask: Guard): (() => void) => {
  const onUnload = (event: Event) => event.preventDefault()
  guard = ask
  window.addEventListener("beforeunload", onUnload)
  return () => {
    guard = undefined
    window.removeEventListener("beforeunload", onUnload)
  }
}

window.addEventListener("popstate", () => {
  // An address that the reader has changed is a new page.
  const to = positionIn(history.state, position + 1)
  const steps = to - position
  // Back on the page that the guard has kept.
  if (steps === 0) return
  if (guard !== undefined && !isLeaving) {
    history.go(-steps)
    return guard(() => {
      isLeaving = true
      history.go(steps)
    })
  }
  isLeaving = false
  position = to
  history.replaceState({ at: to }, "")
  update()
})

export const addressOf = {
  servers: (query = ""): string => `${BASE}${query === "" ? "" : `?${query}`}`,
  server: (id: string, tab = ""): string =>
    `${BASE}/servers/${encodeURIComponent(id)}${tab === "" ? "" : `#${tab}`}`,
  /** A file, or a folder if its path ends with a slash. */
  files: (id: string, path: string, line?: number): string =>
    `${BASE}/servers/${encodeURIComponent(id)}#files${path.split("/").map(encodeURIComponent).join("/")}${line === undefined ? "" : `?line=${line}`}`,
  nodes: `${BASE}/nodes`,
  deleted: `${BASE}/deleted`,
  rollouts: `${BASE}/rollouts`,
  schedules: (id = ""): string => `${BASE}/schedules${id === "" ? "" : `#${id}`}`,
  backups: `${BASE}/backups`,
  keys: `${BASE}/keys`,
  quotas: `${BASE}/quotas`,
  webhooks: `${BASE}/webhooks`,
  targets: `${BASE}/targets`,
  settings: `${BASE}/settings`,
  events: (tab = ""): string => `${BASE}/events${tab === "" ? "" : `#${tab}`}`,
  new: `${BASE}/new`
} as const

/** Shows another page; `replace`: without a step back. */
export const go = (address: string, options: { readonly replace?: boolean } = {}): void => {
  const leave = () => {
    if (options.replace === true) history.replaceState({ at: position }, "", address)
    else history.pushState({ at: ++position }, "", address)
    update()
    if (options.replace !== true) scrollTo(0, 0)
  }
  if (guard === undefined) leave()
  else guard(leave)
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
