import type { lookup as systemLookup } from "node:dns"
import { IpNetwork } from "effect/net"
import { type AddressPolicy, holdingIpv4, makeAddressPolicy } from "../net/addressPolicy.ts"

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

/**
 * The addresses that webhooks may be sent to (spec 7): the public ones, and all others only where the
 * setting allows.
 */
export const makeWebhookNetworks = (
  options: { readonly allowPrivate: boolean },
  resolve?: typeof systemLookup
): AddressPolicy =>
  makeAddressPolicy((isIn, host) => {
    if (options.allowPrivate) return undefined
    const found = [...kinds, { kind: "translated", networks: holdingIpv4 }].find(({ networks }) =>
      networks.some(isIn)
    )
    return found === undefined
      ? undefined
      : `${host} is a ${found.kind} address, which only MUSTER_WEBHOOK_ALLOW_PRIVATE=true allows`
  }, resolve)
