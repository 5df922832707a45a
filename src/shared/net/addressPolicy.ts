/** Which addresses a client connects to. The rule applies to the address of the connection, not to a name. */
import { ADDRCONFIG, type LookupAddress, lookup as systemLookup } from "node:dns"
import type { LookupFunction } from "node:net"
import { Effect, Option, Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"

/** How long callers wait for the addresses of a name. */
const WAIT_MILLIS = 3000
/** How long a name that has no address now is not looked up again. */
const FAILED_MILLIS = 5000

type Done = (error: NodeJS.ErrnoException | null, found: ReadonlyArray<LookupAddress>) => void

interface Lookup {
  readonly waiting: Set<Done>
  failed: NodeJS.ErrnoException | undefined
}

/**
 * Looks names up, each once at a time, because lookups occupy the few threads that files need. A caller waits 3 s;
 * after that, and for 5 s after a failure, further callers fail at once.
 */
const makeSharedLookup = (resolve: typeof systemLookup = systemLookup) => {
  const lookups = new Map<string, Lookup>()

  const begin = (name: string, done: Done) => {
    const lookup: Lookup = { waiting: new Set([done]), failed: undefined }
    lookups.set(name, lookup)
    const settle: Done = (error, found) => {
      lookup.failed = error ?? undefined
      const waiting = [...lookup.waiting]
      lookup.waiting.clear()
      for (const done of waiting) done(error, found)
    }
    const timer = setTimeout(() => {
      const message = `${name}: the name server did not answer within ${WAIT_MILLIS / 1000} s`
      settle(Object.assign(new Error(message), { code: "ETIMEDOUT" }), [])
    }, WAIT_MILLIS)
    resolve(name, { all: true, hints: ADDRCONFIG }, (error, found) => {
      clearTimeout(timer)
      if (error === null) lookups.delete(name)
      else setTimeout(() => lookups.delete(name), FAILED_MILLIS).unref()
      settle(error, found)
    })
  }

  return (name: string, done: Done): void => {
    const lookup = lookups.get(name)
    if (lookup === undefined) begin(name, done)
    else if (lookup.failed === undefined) lookup.waiting.add(done)
    else process.nextTick(done, lookup.failed, [])
  }
}

/** NAT64: the last 32 bits are an IPv4 address. */
const nat64 = IpNetwork.fromStringUnsafe("64:ff9b::/96")

/**
 * Networks that hold an IPv4 address, which a translator or tunnel may reach: IPv4-compatible (with `::` and `::1`) and
 * -translated, NAT64 of a site, Teredo, 6to4.
 */
export const holdingIpv4 = ["::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"].map(
  IpNetwork.fromStringUnsafe
)

/** Code of a connection that is refused because of the address. */
export const ADDRESS_REFUSED = "MUSTER_ADDRESS_REFUSED"

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

export interface AddressPolicy {
  /** Returns why the client must not connect to an IP address, if so. Names are never refused here. */
  refusal(host: string): string | undefined
  /** Looks up a name without the addresses that are refused. */
  readonly lookup: LookupFunction
  /** The addresses of a name, also refused ones; none if the look-up takes too long. */
  addressesOf(name: string): Effect.Effect<ReadonlyArray<string>>
}

/** 0 means either. */
const familyOf = (family: number | "IPv4" | "IPv6" | undefined): number =>
  family === "IPv4" ? 4 : family === "IPv6" ? 6 : (family ?? 0)

const refused = (host: string, why: string) =>
  Object.assign(new Error(`${host}: ${why}`), { code: ADDRESS_REFUSED })

const LOOKUP = "2 seconds"

/** @param rule returns why an address is refused; `text` is its spelling */
export const makeAddressPolicy = (
  rule: (isIn: (network: IpNetwork.IpNetwork) => boolean, text: string) => string | undefined,
  resolve?: typeof systemLookup
): AddressPolicy => {
  const addressesAt = makeSharedLookup(resolve)
  const refusal = (host: string): string | undefined => {
    const address = plainAddress(host)
    return address === undefined ? undefined : rule((network) => IpNetwork.contains(network, address), host)
  }
  return {
    refusal,
    lookup: (hostname, options, callback) =>
      addressesAt(hostname, (error, all) => {
        if (error !== null) return callback(error, "")
        const family = familyOf(options.family)
        const found = all.filter((one) => family === 0 || one.family === family)
        const allowed = found.filter(({ address }) => refusal(address) === undefined)
        const [first] = allowed
        if (first === undefined) {
          return callback(
            refused(hostname, refusal(found[0]?.address ?? "") ?? "the name has no address"),
            ""
          )
        }
        if (options.all === true) return callback(null, allowed)
        callback(null, first.address, first.family)
      }),
    addressesOf: (name) =>
      Effect.callback<ReadonlyArray<LookupAddress>>((resume) =>
        addressesAt(name, (error, found) => resume(Effect.succeed(error === null ? found : [])))
      ).pipe(
        Effect.timeoutOption(LOOKUP),
        Effect.map(Option.getOrElse((): ReadonlyArray<LookupAddress> => [])),
        Effect.map((found) => found.map(({ address }) => address))
      )
  }
}

export const refusedConnection = (
  policy: AddressPolicy,
  host: string | null | undefined
): Error | undefined => {
  const why = policy.refusal(host ?? "")
  return why === undefined ? undefined : refused(host ?? "", why)
}

const kinds = Object.entries({
  loopback: ["127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"],
  "link-local": ["169.254.0.0/16", "fe80::/10"],
  private: [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "192.0.0.0/24",
    "198.18.0.0/15",
    "fc00::/7",
    "fec0::/10"
  ],
  reserved: ["224.0.0.0/4", "240.0.0.0/4", "ff00::/8"]
}).map(([kind, networks]) => ({ kind, networks: networks.map(IpNetwork.fromStringUnsafe) }))

/** The public addresses, and all others if a setting allows it; a refusal names the setting. */
export const publicNetworks = (allowPrivate: boolean, setting: string): AddressPolicy =>
  makeAddressPolicy((isIn, host) => {
    if (allowPrivate) return undefined
    const found = [...kinds, { kind: "translated", networks: holdingIpv4 }].find(({ networks }) =>
      networks.some(isIn)
    )
    return found === undefined
      ? undefined
      : `${host} is a ${found.kind} address, which only ${setting}=true allows`
  })
