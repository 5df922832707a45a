/** How calls to an address travel: on one host, with TLS, or readable on the network. */
export type Transport = "local" | "encrypted" | "plain"

const loopback = /^(?:(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i

/** Whether a host name is this host on every network. */
export const isLoopback = (host: string): boolean => loopback.test(host)

/** Whether a URL leads to this host on every network. */
export const isLoopbackUrl = (url: string): boolean => URL.canParse(url) && isLoopback(new URL(url).hostname)

/** @param url of HTTP */
export const transportOf = (url: string): Transport => {
  if (!URL.canParse(url)) return "plain"
  const { hostname, protocol } = new URL(url)
  return protocol === "https:" ? "encrypted" : isLoopback(hostname) ? "local" : "plain"
}
