/** Names, labels, limits and expiries that other callers change: no event has them, so that they are read every so often. */
import { request, segment } from "../api/http.ts"
import type { Server } from "../api/types.ts"
import { withSettings } from "./rows.ts"
import { changed, isCut, isLoaded, isNotLast, PAGE, put, rows } from "./servers.ts"
import { whileVisible } from "./whileVisible.ts"

const EVERY = 30_000

/** The pages of the list as last read, by the id before them: a page without a change of these fields is a 304. */
const known = new Map<string, { readonly etag: string; readonly last: string }>()

/** Reads a page; returns its last id, or nothing after the last page. */
const readPage = async (after: string): Promise<string> => {
  const before = known.get(after)
  const query = `include=name,labels,limits,expires_at&limit=${PAGE}${after === "" ? "" : `&after=${segment(after)}`}`
  const reply = await request<ReadonlyArray<Server>>("GET", `/api/servers?${query}`, {
    headers: before === undefined ? {} : { "if-none-match": before.etag }
  })
  if (!reply.ok) return reply.code === 304 ? (before?.last ?? "") : ""
  for (const server of reply.body) {
    const row = rows.get(server.id)
    if (row !== undefined) put(withSettings(row, server))
  }
  changed()
  const last = isNotLast(reply) ? (reply.body.at(-1)?.id ?? "") : ""
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
export const followSettings = (): (() => void) => whileVisible(EVERY, readSettings)
