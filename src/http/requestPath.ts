import { Option } from "effect"

const decode = Option.liftThrowable(decodeURI)

/**
 * Path of a request as the router reads it: without what follows it, decoded, no slash repeated. Authentication must
 * look at the same path as the router does.
 */
export const requestPath = (url: string): string => {
  const end = url.search(/[?;#]/)
  const path = (end === -1 ? url : url.slice(0, end)).replace(/\/{2,}/g, "/")
  return path.includes("%") ? Option.getOrElse(decode(path), () => path) : path
}

/** Query of a request, without the question mark. */
export const requestQuery = (url: string): string => {
  const mark = url.indexOf("?")
  return mark === -1 ? "" : url.slice(mark + 1)
}

/** A registration says everything that a node has: 10,000 servers are 2-3 MB, more than other bodies hold. */
const registerPath = /^\/api\/nodes\/[^/]+\/register\/?$/
const REGISTRATION_LIMIT = 8 * 1024 * 1024

/** Whether a path, as {@link requestPath} gives it, is the one at which a node registers. */
export const isRegistration = (path: string): boolean => registerPath.test(path)

/** Whether a path, as {@link requestPath} gives it, is `/api` or below it. */
export const isApi = (path: string): boolean => /^\/api(?:\/|$)/.test(path)

/** The largest body of a request, in bytes: `standard`, or what its path needs. */
export const bodyLimitOf = (url: string, standard: number): number =>
  isRegistration(requestPath(url)) ? Math.max(standard, REGISTRATION_LIMIT) : standard

/** Streams: a ticket opens them in place of a key (decisions, section 6), and a WebSocket may last. */
const streamPath = /^\/api\/(?:events(?:\/ws)?|servers\/[^/]+\/(?:events|console))\/?$/

/** Whether a path, as {@link requestPath} gives it, is that of an event stream or a console. */
export const isStreamPath = (path: string): boolean => streamPath.test(path)
