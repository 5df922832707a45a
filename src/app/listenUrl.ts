import { Effect } from "effect"
import { HttpServer } from "effect/http"

export const isWildcard = (host: string): boolean => host === "0.0.0.0" || host === "::"

/** Returns an address as text: IPv6 hosts in brackets, no port if none is given. */
export const urlOf = (scheme: "http" | "https", host: string, port?: number): string =>
  `${scheme}://${host.includes(":") ? `[${host}]` : host}${port === undefined ? "" : `:${port}`}`

/** Returns the address at which the server of this process listens, with its actual port. */
export const listenUrl = Effect.fnUntraced(function* (
  scheme: "http" | "https",
  settings: { readonly host: string; readonly port: number }
) {
  const { address } = yield* HttpServer.HttpServer
  return urlOf(scheme, settings.host, "port" in address ? address.port : settings.port)
})
