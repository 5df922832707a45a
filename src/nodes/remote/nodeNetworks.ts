/** The allowed addresses of nodes: the control plane calls the address of a registration. */
import type { LookupAddress, lookup as systemLookup } from "node:dns"
import { isIP, type LookupFunction } from "node:net"
import { Effect, Option, Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"
import { InvalidRequest } from "../../domain/errors.ts"
import { makeSharedLookup } from "./sharedLookup.ts"

/**
 * Link-local addresses, and those at which clouds return the host's credentials. They are refused unless the setting
 * lists a network with the address.
 */
const linkLocal = ["169.254.0.0/16", "fe80::/10"].map(IpNetwork.fromStringUnsafe)
const metadata = ["fd00:ec2::254/128", "100.100.100.200/32", "192.0.0.192/32"].map(IpNetwork.fromStringUnsafe)
/** NAT64: the last 32 bits are an IPv4 address. */
const nat64 = IpNetwork.fromStringUnsafe("64:ff9b::/96")

/** Code of a connection that is refused because of the address. */
export const ADDRESS_REFUSED = "MUSTER_ADDRESS_REFUSED"

/** The time that a registration waits for the name in its address. */
const LOOKUP = "2 seconds"

/** Returns the address to which packets go, whatever its spelling. */
const plainAddress = (text: string): NetAddress.IpAddress | undefined => {
  const read = NetAddress.ipFromString(text.replace(/^\[(.*)\]$/, "$1").replace(/%.*$/, ""))
  if (Result.isFailure(read)) return undefined
  const address = read.success
  if (!NetAddress.isIpv6Address(address)) return address
  if (!IpNetwork.contains(nat64, address)) {
    return Option.getOrElse(NetAddress.fromIpv4Mapped(address), () => address)
  }
  const [a = 0, b = 0, c = 0, d = 0] = NetAddress.ipv6ToOctets(address).slice(-4)
  return NetAddress.ipv4FromBytesUnsafe(Uint8Array.of(a, b, c, d))
}

/** The allowed addresses of nodes. */
export interface NodeNetworks {
  /** Returns why a node must not have an IP address; undefined: it may, or the text is a name. */
  refusal(host: string): string | undefined
  /** Looks up a name without the addresses that are refused. */
  readonly lookup: LookupFunction
  /** @error InvalidRequest the host of this URL has no allowed address */
  check(url: string): Effect.Effect<void, InvalidRequest>
}

/** 0: either. */
const familyOf = (family: number | "IPv4" | "IPv6" | undefined): number =>
  family === "IPv4" ? 4 : family === "IPv6" ? 6 : (family ?? 0)

const refused = (host: string, why: string) =>
  Object.assign(new Error(`${host}: ${why}`), { code: ADDRESS_REFUSED })

/**
 * @param networks allowed networks; none: all but link-local addresses and metadata services of clouds
 * @param resolve  looks names up
 */
export const makeNodeNetworks = (
  networks: ReadonlyArray<IpNetwork.IpNetwork>,
  resolve?: typeof systemLookup
): NodeNetworks => {
  const addressesAt = makeSharedLookup(resolve)
  const refusal = (host: string): string | undefined => {
    const address = plainAddress(host)
    if (address === undefined) return undefined
    const isIn = (network: IpNetwork.IpNetwork) => IpNetwork.contains(network, address)
    if (networks.some(isIn)) return undefined
    if (linkLocal.some(isIn))
      return `${host} is a link-local address, which MUSTER_NODE_NETWORKS does not list`
    if (metadata.some(isIn))
      return `${host} is the address of a cloud's metadata service, which MUSTER_NODE_NETWORKS does not list`
    return networks.length === 0 ? undefined : `${host} is in no network of MUSTER_NODE_NETWORKS`
  }
  const lookup: LookupFunction = (hostname, options, callback) =>
    addressesAt(hostname, (error, all) => {
      if (error !== null) return callback(error, "")
      const family = familyOf(options.family)
      const found = all.filter((one) => family === 0 || one.family === family)
      const allowed = found.filter(({ address }) => refusal(address) === undefined)
      const [first] = allowed
      if (first === undefined) {
        return callback(refused(hostname, refusal(found[0]?.address ?? "") ?? "the name has no address"), "")
      }
      if (options.all === true) return callback(null, allowed)
      callback(null, first.address, first.family)
    })
  const addressesOf = (hostname: string) =>
    Effect.callback<ReadonlyArray<LookupAddress>>((resume) =>
      // A name that is not known now may be known when the node is called.
      addressesAt(hostname, (error, found) => resume(Effect.succeed(error === null ? found : [])))
    ).pipe(Effect.timeoutOption(LOOKUP), Effect.map(Option.getOrElse((): ReadonlyArray<LookupAddress> => [])))
  const check = Effect.fnUntraced(function* (url: string) {
    const host = new URL(url).hostname.replace(/^\[(.*)\]$/, "$1")
    const addresses = isIP(host) === 0 ? (yield* addressesOf(host)).map(({ address }) => address) : [host]
    const refusals = addresses.flatMap((address) => refusal(address) ?? [])
    const [why] = refusals
    if (why === undefined || refusals.length < addresses.length) return
    return yield* new InvalidRequest({
      detail: `body field url: nodes may not be at ${url.slice(0, 100)}: ${why}`,
      hint: "Set MUSTER_NODE_URL of the node to an address in a listed network, or add its network to MUSTER_NODE_NETWORKS of the service."
    })
  })
  return { refusal, lookup, check }
}

/** Fails a connection to an address that a node may not be at. */
export const refusedConnection = (
  networks: NodeNetworks,
  host: string | null | undefined
): Error | undefined => {
  const why = networks.refusal(host ?? "")
  return why === undefined ? undefined : refused(host ?? "", why)
}
