/** The allowed addresses of nodes: the control plane calls the address of a registration. */
import type { lookup as systemLookup } from "node:dns"
import { isIP } from "node:net"
import { Effect } from "effect"
import { IpNetwork } from "effect/net"
import { InvalidRequest } from "../../../contract/domain/errors.ts"
import { type AddressPolicy, holdingIpv4, makeAddressPolicy } from "../../../shared/net/addressPolicy.ts"

/** Refused unless the setting lists them, like {@link metadata}: clouds return the host's credentials there. */
const linkLocal = ["169.254.0.0/16", "fe80::/10"].map(IpNetwork.fromStringUnsafe)
const ownHost = IpNetwork.fromStringUnsafe("::1/128")
const metadata = ["fd00:ec2::254/128", "100.100.100.200/32", "192.0.0.192/32"].map(IpNetwork.fromStringUnsafe)

export interface NodeNetworks extends AddressPolicy {
  /** @error InvalidRequest the host of this URL has no allowed address */
  check(url: string): Effect.Effect<void, InvalidRequest>
}

/** @param networks allowed networks; none allows all but link-local addresses and metadata services of clouds */
export const makeNodeNetworks = (
  networks: ReadonlyArray<IpNetwork.IpNetwork>,
  resolve?: typeof systemLookup
): NodeNetworks => {
  const policy = makeAddressPolicy((isIn, host) => {
    if (networks.some(isIn)) return undefined
    if (linkLocal.some(isIn))
      return `${host} is a link-local address, which MUSTER_NODE_NETWORKS does not list`
    if (metadata.some(isIn))
      return `${host} is the address of a cloud's metadata service, which MUSTER_NODE_NETWORKS does not list`
    if (!isIn(ownHost) && holdingIpv4.some(isIn))
      return `${host} holds an IPv4 address, and MUSTER_NODE_NETWORKS does not list it`
    return networks.length === 0 ? undefined : `${host} is in no network of MUSTER_NODE_NETWORKS`
  }, resolve)
  const check = Effect.fnUntraced(function* (url: string) {
    const host = new URL(url).hostname.replace(/^\[(.*)\]$/, "$1")
    // A name that is not known now may be known when the node is called.
    const addresses = isIP(host) === 0 ? yield* policy.addressesOf(host) : [host]
    const refusals = addresses.flatMap((address) => policy.refusal(address) ?? [])
    const [why] = refusals
    if (why === undefined || refusals.length < addresses.length) return
    return yield* new InvalidRequest({
      detail: `body field url: nodes may not be at ${url.slice(0, 100)}: ${why}`,
      hint: "Set MUSTER_NODE_URL of the node to an address in a listed network, or add its network to MUSTER_NODE_NETWORKS of the service."
    })
  })
  return { ...policy, check }
}
