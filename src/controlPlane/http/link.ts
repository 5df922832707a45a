/** Pages by `limit` and `after`, and their `Link` header. */

/** Reads a page from a query. @param standard the limit of a query without one */
export const pageAfter = (
  { after = "", limit = "" }: { readonly after?: string; readonly limit?: string },
  standard: number
) => ({
  limit: limit === "" ? standard : Number(limit),
  ...(after === "" ? {} : { after })
})

/** Returns the address of the next page, in the form of the header. */
const nextPage = (url: string, after: string): string => {
  const mark = url.indexOf("?")
  const parameters = new URLSearchParams(mark === -1 ? "" : url.slice(mark + 1))
  parameters.set("after", after)
  return `<${mark === -1 ? url : url.slice(0, mark)}?${parameters}>; rel="next"`
}

/** Returns the header of a page; `next`: the last of its ids, if it is not the last page. */
export const linkOf = (url: string, next: string | undefined): Record<string, string> =>
  next === undefined ? {} : { link: nextPage(url, next) }
