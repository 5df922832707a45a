/** The parts of the URL of a request: its path, its query, and the pages of lists. */
import { Option } from "effect"
import { HttpServerResponse } from "effect/http"
import { LONGEST_WAIT_SECONDS } from "../../contract/api/OperationsGroup.ts"

const decode = Option.liftThrowable(decodeURI)

/** Returns the path of a request as the router reads it: without the query, decoded, without repeated slashes. */
export const requestPath = (url: string): string => {
  const end = url.search(/[?;#]/)
  const path = (end === -1 ? url : url.slice(0, end)).replace(/\/{2,}/g, "/")
  return path.includes("%") ? Option.getOrElse(decode(path), () => path) : path
}

export const requestQuery = (url: string): string => {
  const mark = url.indexOf("?")
  return mark === -1 ? "" : url.slice(mark + 1)
}

/** Whether a request asks what it would change. */
export const isDryRun = (url: string): boolean =>
  url.includes("dry_run=true") && new URLSearchParams(requestQuery(url)).get("dry_run") === "true"

/** Whether a path, as {@link requestPath} returns it, is `/api` or below it. */
export const isApi = (path: string): boolean => path === "/api" || path.startsWith("/api/")

/** Returns the path of a request for messages: without its query, shortened. */
export const pathOf = (url: string): string => {
  const end = url.search(/[?#]/)
  return (end === -1 ? url : url.slice(0, end)).slice(0, 200)
}

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
  const parameters = new URLSearchParams(requestQuery(url))
  parameters.set("after", after)
  return `<${url.split("?")[0]}?${parameters}>; rel="next"`
}

/** Returns the header of a page; `next`: the last of its ids, if it is not the last page. */
export const linkOf = (url: string, next: string | undefined): Record<string, string> =>
  next === undefined ? {} : { link: nextPage(url, next) }

/** Responds with a page of a list. */
export const pageResponse = (url: string, body: unknown, next: string | undefined) =>
  HttpServerResponse.jsonUnsafe(body, { headers: linkOf(url, next) })

/** Returns the fields of a query that are not empty: an empty one selects nothing. */
export const filled = <K extends string>(fields: { readonly [P in K]?: string | undefined }) =>
  Object.fromEntries(Object.entries(fields).filter(([, text]) => (text ?? "") !== "")) as {
    readonly [P in K]?: string
  }

/** Returns the seconds of `Prefer: wait=N` (RFC 7240), and ignores an unreadable preference. */
export const preferredWait = (prefer: string | undefined): number | undefined => {
  const seconds = Number(/(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:[,;]|$)/i.exec(prefer ?? "")?.[1] ?? 0)
  return seconds < 1 ? undefined : Math.min(seconds, LONGEST_WAIT_SECONDS)
}
