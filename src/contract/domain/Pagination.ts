import { Schema } from "effect"
import { TimeText } from "./nowText.ts"

/** Pagination envelope (spec 4.1). */
export const Pagination = Schema.Struct({
  total: Schema.Int,
  per_page: Schema.Int,
  current_page: Schema.Int,
  total_pages: Schema.Int
}).annotate({ identifier: "Pagination" })
export type Pagination = typeof Pagination.Type

const PageMeta = Schema.Struct({ pagination: Pagination }).annotate({ identifier: "PageMeta" })

/** @param identifier of the schema */
export const Paginated = <S extends Schema.Top>(identifier: string, item: S) =>
  Schema.Struct({ meta: PageMeta, data: Schema.Array(item) }).annotate({ identifier })

export const LinePage = Paginated("LinePage", Schema.String)

/** A page of console lines. `times`, on request: the time of each line; null: unknown. */
export const LogPage = Schema.Struct({
  ...LinePage.fields,
  times: Schema.optionalKey(Schema.Array(Schema.NullOr(TimeText)))
}).annotate({ identifier: "LogPage" })

export interface Page<A> {
  readonly items: ReadonlyArray<A>
  readonly total: number
}

/** Returns the envelope of one page; `total_pages` of an empty list is 0. */
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

/** A page of console lines, newest last. `times`: the time of each line, RFC 3339; null: unknown. */
export interface ConsolePage extends Page<string> {
  readonly times?: ReadonlyArray<string | null>
}

/** Returns the envelope of a page of console lines; on request with times, which some daemons do not know. */
export const paginatedLog = (
  page: ConsolePage,
  at: { readonly page: number; readonly per_page: number; readonly times?: boolean }
): typeof LogPage.Type => ({
  ...paginated(page, at),
  ...(at.times === true && { times: page.items.map((_, line) => page.times?.[line] ?? null) })
})

const wholeNumber = (text: string): number =>
  /^[+-]?\d+$/.test(text) ? Math.min(Number(text), Number.MAX_SAFE_INTEGER) : 0

/** Returns a page number from a query: 1 if the text is below 1 or not a number (spec 4). */
export const pageNumber = (text: string | undefined): number => Math.max(wholeNumber(text ?? ""), 1)

/** Returns a page size from a query: `standard` if absent, `fallback` if below 1 or not a number, at most `maximum`. */
export const pageSize = (
  text: string | undefined,
  bounds: { readonly standard: number; readonly fallback: number; readonly maximum: number }
): number => {
  if (text === undefined) return bounds.standard
  const value = wholeNumber(text)
  return value >= 1 ? Math.min(value, bounds.maximum) : bounds.fallback
}
