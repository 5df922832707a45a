/** Pages of console lines and of the output of installations. */
import { Effect } from "effect"
import type { LinesRequest } from "../api/Daemon.ts"
import { type Page, pageNumber, pageSize } from "../domain/Pagination.ts"

/** Returns a page of lines of which page 1 is the oldest as if page 1 were the newest; the newest line is the last. */
export const newestLines = Effect.fnUntraced(function* <E>(
  read: (at: LinesRequest) => Effect.Effect<Page<string>, E>,
  { page, per_page }: LinesRequest
) {
  const oldest = yield* read({ page: 1, per_page })
  const { total } = oldest
  const to = total - (page - 1) * per_page
  const from = Math.max(0, to - per_page)
  if (to <= 0) return { items: [], total }
  const first = Math.floor(from / per_page) + 1
  const last = Math.floor((to - 1) / per_page) + 1
  const pages = yield* Effect.forEach(first === last ? [first] : [first, last], (page) =>
    page === 1 ? Effect.succeed(oldest) : read({ page, per_page })
  )
  const begin = (first - 1) * per_page
  return { items: pages.flatMap(({ items }) => items).slice(from - begin, to - begin), total }
})

const linePages = { standard: 100, fallback: 100, maximum: 1000 }

interface LinesQuery {
  readonly page?: string
  readonly per_page?: string
}

/** Reads a page of lines from a query. */
export const linePage = (query: LinesQuery) => ({
  page: pageNumber(query.page),
  per_page: pageSize(query.per_page, linePages)
})

/** Page of console lines: `page` and `per_page` where one is given, else the newest `size`, clamped. */
export const logPage = ({ size = "", ...query }: LinesQuery & { readonly size?: string }) => {
  if (`${query.page ?? ""}${query.per_page ?? ""}` !== "") return linePage(query)
  return { page: 1, per_page: size === "" ? 100 : Math.min(Math.max(Number(size), 1), 100) }
}
