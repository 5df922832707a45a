import { NetAddress } from "effect/net"

const UNKNOWN = "an unknown address"

/** The address that a text stands for, IPv4 also where it is mapped into IPv6; undefined: it is no address. */
export const canonicalAddress = (text: string): NetAddress.IpAddress | undefined => {
  const parsed = NetAddress.ipFromString(text.replace(/%.*$/, ""))
  return parsed._tag === "Failure" ? undefined : NetAddress.toCanonical(parsed.success)
}

/** The address that a client counts as: of IPv6 the /64, which one host has to itself. */
export const countedAddress = (text: string): string => {
  const address = canonicalAddress(text)
  if (address === undefined) return UNKNOWN
  if (NetAddress.isIpv4Address(address)) return NetAddress.formatIp(address)
  const network = NetAddress.ipv6ToSegments(address).slice(0, 4)
  return `${network.map((segment) => segment.toString(16)).join(":")}::/64`
}
