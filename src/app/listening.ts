import { Effect } from "effect"
import { HttpServer } from "effect/http"
import { StartError } from "../shared/config/StartError.ts"

/**
 * Warns of plain HTTP beyond this host: `what` is the fact, `remedy` an imperative.
 * @error StartError TLS is required
 */
export const plainHttp = (requireTls: boolean, what: string, remedy: string) =>
  requireTls
    ? Effect.fail(new StartError({ message: `${what}, and MUSTER_REQUIRE_TLS is true: ${remedy}` }))
    : Effect.logWarning(`${what}, so that keys and data cross the network unencrypted: ${remedy}`)

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
