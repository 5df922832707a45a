import { Effect } from "effect"
import { HttpServer } from "effect/http"

/** An address for people and for other programs: IPv6 hosts in brackets; no port where none is given. */
export const urlOf = (scheme: "http" | "https", host: string, port?: number): string =>
  `${scheme}://${host.includes(":") ? `[${host}]` : host}${port === undefined ? "" : `:${port}`}`

/** Where the server of this process listens, with the port that it got. */
export const listenUrl = Effect.fnUntraced(function* (
  scheme: "http" | "https",
  settings: { readonly host: string; readonly port: number }
) {
  const { address } = yield* HttpServer.HttpServer
  return urlOf(scheme, settings.host, "port" in address ? address.port : settings.port)
})
