/** All servers of the list, and the work that keeps them up to date. */
import { signal } from "@preact/signals"
import { get, hasNext, request, segment, whileVisible } from "../api/http.ts"
import type { Server } from "../api/types.ts"
import { LIST_FIELDS, type Row, rowOf, titleOf } from "./rows.ts"

/** Servers that the page holds at most; beyond them, filters are sent to the service. */
export const MOST = 20_000

export const PAGE = 1000

/** Milliseconds in which new servers gather before they are read. */
const GATHER = 150

/** New servers that are read one by one; more are read as a list. */
const ONE_BY_ONE = 8

export const rows = new Map<string, Row>()

/** The name of a server that may be deleted; without a name, its id. */
export const nameOf = (id: string): string => titleOf(rows.get(id) ?? { id })

/** Grows with each change of a row. */
export const changes = signal(0)
/** Grows with each change that may move rows: servers that come or go, and each change of a row. */
export const membership = signal(0)
export const isLoaded = signal(false)
/** Whether there are more servers than {@link MOST}. */
export const isCut = signal(false)

export const changed = (): void => {
  changes.value++
}

export const put = (row: Row): void => {
  if (!rows.has(row.id)) membership.value++
  rows.set(row.id, row)
}

export const drop = (id: string): void => {
  if (rows.delete(id)) membership.value++
}

/** The conditions that the service applies when the list is cut. */
let conditions = ""

const pageOf = (after: string) =>
  get<ReadonlyArray<Server>>(
    `/api/servers?include=${LIST_FIELDS}&limit=${PAGE}${conditions}${after === "" ? "" : `&after=${segment(after)}`}`
  )

export type Loaded =
  | { readonly ok: true; readonly cursor: number }
  | { readonly ok: false; readonly detail: string; readonly isFinal: boolean }

/** Reads all servers; the list then shows at least the state at `cursor`. */
export const load = async (): Promise<Loaded> => {
  let after = ""
  let cursor: number | undefined
  const seen = new Map<string, Row>()
  for (;;) {
    const reply = await pageOf(after)
    if (!reply.ok)
      return { ok: false, detail: reply.detail, isFinal: reply.code === 401 || reply.code === 403 }
    // The stream begins at the first page: what the later ones have already seen is only repeated.
    cursor ??= Number(reply.headers.get("x-muster-cursor") ?? 0)
    for (const server of reply.body) seen.set(server.id, rowOf(server, rows.get(server.id)))
    after = reply.body.at(-1)?.id ?? ""
    const isLast = !hasNext(reply)
    isCut.value = !isLast && seen.size >= MOST
    if (isLast || isCut.value) break
  }
  rows.clear()
  for (const [id, row] of seen) rows.set(id, row)
  isLoaded.value = true
  membership.value++
  changed()
  return { ok: true, cursor }
}

/** Sets the conditions for a list that is cut; `query` begins with `&`. */
export const narrow = (query: string): void => {
  if (query === conditions) return
  conditions = query
  void load()
}

export const refresh = async (id: string): Promise<void> => {
  const reply = await get<Server>(`/api/servers/${segment(id)}?include=${LIST_FIELDS}`)
  if (reply.ok) put(rowOf(reply.body, rows.get(id)))
  else if (reply.code === 404) drop(id)
  changed()
}

const missing = new Set<string>()
let isGathering = false

const readMissing = async (): Promise<void> => {
  isGathering = false
  const ids = [...missing]
  missing.clear()
  if (ids.length <= ONE_BY_ONE) return void (await Promise.all(ids.map(refresh)))
  // Lists are in the order of creation: new servers are at the end.
  let after = [...rows.keys()].at(-1) ?? ""
  for (;;) {
    const reply = await pageOf(after)
    if (!reply.ok) return void (reply.code === 404 || reply.code === 422 ? await load() : undefined)
    for (const server of reply.body) put(rowOf(server, rows.get(server.id)))
    changed()
    after = reply.body.at(-1)?.id ?? ""
    if (after === "" || !hasNext(reply)) return
  }
}

/** Reads a server that an event names and the list does not have. */
export const readLater = (id: string): void => {
  if (isCut.value) return
  missing.add(id)
  if (!isGathering) setTimeout(() => void readMissing(), GATHER)
  isGathering = true
}

/** Milliseconds between two readings of names, labels and limits, whose changes have no event. */
const SETTINGS = 30_000

/** The pages of the list as last read, by the id before them: a page without a change of these fields is a 304. */
const known = new Map<string, { readonly etag: string; readonly last: string }>()

/** Reads a page; returns its last id, or nothing after the last page. */
const readPage = async (after: string): Promise<string> => {
  const before = known.get(after)
  const query = `include=name,labels,limits,save&limit=${PAGE}${after === "" ? "" : `&after=${segment(after)}`}`
  const reply = await request<ReadonlyArray<Server>>("GET", `/api/servers?${query}`, {
    headers: before === undefined ? {} : { "if-none-match": before.etag }
  })
  if (!reply.ok) return reply.code === 304 ? (before?.last ?? "") : ""
  for (const server of reply.body) {
    const row = rows.get(server.id)
    if (row !== undefined) put(rowOf(server, row))
  }
  changed()
  const last = hasNext(reply) ? (reply.body.at(-1)?.id ?? "") : ""
  known.set(after, { etag: reply.headers.get("etag") ?? "", last })
  return last
}

const readSettings = async (): Promise<void> => {
  // A list that is cut has other pages.
  if (!isLoaded.peek() || isCut.peek()) return
  const read = new Set<string>()
  for (let after = ""; !read.has(after); after = await readPage(after)) read.add(after)
  for (const page of known.keys()) if (!read.has(page)) known.delete(page)
}

/** Follows the settings of all servers; returns the end of it. */
export const followSettings = (): (() => void) => whileVisible(SETTINGS, readSettings)
