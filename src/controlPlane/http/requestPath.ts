import { Option } from "effect"

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

/** Whether a path, as {@link requestPath} returns it, is `/api` or below it. */
export const isApi = (path: string): boolean => path === "/api" || path.startsWith("/api/")
