/** How calls to an address travel: on one host, with TLS, or readable on the network. */
export type Transport = "local" | "encrypted" | "plain"

const loopback = /^(?:(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i

export const isLoopback = (host: string): boolean => loopback.test(host)

/** @param url of HTTP, or of a unix socket */
export const transportOf = (url: string): Transport => {
  if (url.startsWith("unix:")) return "local"
  if (!URL.canParse(url)) return "plain"
  const { hostname, protocol } = new URL(url)
  return protocol === "https:" ? "encrypted" : isLoopback(hostname) ? "local" : "plain"
}

/** Name of the socket in the data folder at which the service serves its own host. */
export const LOCAL_SOCKET = "muster.sock"

/** The longest path of a unix socket on Linux, in bytes. */
const LONGEST_SOCKET_PATH = 107

/** Returns why a unix socket cannot have this path; undefined: it can. */
export const whyNoSocket = (path: string): string | undefined => {
  const { length } = new TextEncoder().encode(path)
  return length <= LONGEST_SOCKET_PATH
    ? undefined
    : `the path ${path} has ${length} bytes, and that of a unix socket has at most ${LONGEST_SOCKET_PATH}`
}

/** Returns the path of an address such as `unix:/var/lib/muster/data/muster.sock`; undefined: it is one of HTTP. */
export const socketPathOf = (url: string): string | undefined =>
  url.startsWith("unix:") ? url.slice("unix:".length) : undefined

/** Returns the base of URLs for requests to an address: over a unix socket, only the path of a URL counts. */
export const baseUrlOf = (url: string): string => (socketPathOf(url) === undefined ? url : "http://localhost")
