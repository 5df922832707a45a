import { Schema } from "effect"

/** Pagination envelope (contract 2.5). */
export const Pagination = Schema.Struct({
  total: Schema.Int,
  per_page: Schema.Int,
  current_page: Schema.Int,
  total_pages: Schema.Int
}).annotate({ identifier: "Pagination" })
export type Pagination = typeof Pagination.Type

export const Paginated = <S extends Schema.Top>(item: S) =>
  Schema.Struct({ meta: Schema.Struct({ pagination: Pagination }), data: Schema.Array(item) })

/** A page and the number of all items. */
export interface Page<A> {
  readonly items: ReadonlyArray<A>
  readonly total: number
}

/** Envelope of one page; `total_pages` is 0 when there is nothing. */
export const paginated = <A>(page: Page<A>, at: { readonly page: number; readonly per_page: number }) => ({
  meta: {
    pagination: {
      total: page.total,
      per_page: at.per_page,
      current_page: at.page,
      total_pages: Math.ceil(page.total / at.per_page)
    }
  },
  data: page.items
})

/** A whole number as it came in the query, at most the largest that can be counted; 0 for anything else. */
const wholeNumber = (text: string): number =>
  /^[+-]?\d+$/.test(text) ? Math.min(Number(text), Number.MAX_SAFE_INTEGER) : 0

/**
 * A page number as it came in the query: below 1 or not a number is 1 (decisions, section 4).
 */
export const pageNumber = (text: string | undefined): number => Math.max(wholeNumber(text ?? ""), 1)

/**
 * A page size as it came in the query: absent is `standard`, below 1 or not a number is `fallback`, more than
 * `maximum` is `maximum`.
 */
export const pageSize = (
  text: string | undefined,
  bounds: { readonly standard: number; readonly fallback: number; readonly maximum: number }
): number => {
  if (text === undefined) return bounds.standard
  const value = wholeNumber(text)
  return value >= 1 ? Math.min(value, bounds.maximum) : bounds.fallback
}
