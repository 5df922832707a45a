import { Option } from "effect"
import type { HttpServerRequest } from "effect/http"
import { NetAddress } from "effect/net"

const UNKNOWN = "an unknown address"

/** Returns the address of a text, if it is one: IPv4 also if it is mapped into IPv6. */
export const canonicalAddress = (text: string): NetAddress.IpAddress | undefined => {
  const parsed = NetAddress.ipFromString(text.replace(/%.*$/, ""))
  return parsed._tag === "Failure" ? undefined : NetAddress.toCanonical(parsed.success)
}

/** Returns an address as people write it, if it is one. */
export const shownAddress = (text: string): string | null => {
  const address = canonicalAddress(text)
  return address === undefined ? null : NetAddress.formatIp(address)
}

/** Returns the client's address, behind trusted proxies too, if it is known. */
export const clientOf = ({ remoteAddress }: HttpServerRequest.HttpServerRequest): string | null =>
  shownAddress(Option.getOrElse(remoteAddress, () => ""))

/** Returns the address as which a client counts: of IPv6 the /64, which one host has. */
export const countedAddress = (text: string): string => {
  const address = canonicalAddress(text)
  if (address === undefined) return UNKNOWN
  if (NetAddress.isIpv4Address(address)) return NetAddress.formatIp(address)
  const network = NetAddress.ipv6ToSegments(address).slice(0, 4)
  return `${network.map((segment) => segment.toString(16)).join(":")}::/64`
}
