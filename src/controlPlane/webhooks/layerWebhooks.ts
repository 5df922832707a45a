import type { lookup as systemLookup } from "node:dns"
import { Layer } from "effect"
import { IpNetwork } from "effect/net"
import { type AddressPolicy, holdingIpv4, makeAddressPolicy } from "../../shared/net/addressPolicy.ts"
import { connectTimeoutClient } from "../../shared/net/connectTimeoutClient.ts"
import { WebhookDeliverer } from "./WebhookDeliverer.ts"
import { Webhooks } from "./Webhooks.ts"
import { WebhooksFile, type WebhooksFileOptions } from "./WebhooksFile.ts"

const CONNECTIONS = 16

export interface WebhooksOptions extends WebhooksFileOptions {
  /** Whether webhooks may be sent to loopback, link-local and private addresses. */
  readonly allowPrivate: boolean
}

/** Webhooks: their routes' service, their deliveries, their file. */
export const layerWebhooks = (options: WebhooksOptions) => {
  const networks = makeWebhookNetworks(options)
  return Layer.merge(WebhookDeliverer, WebhooksFile.layer(options)).pipe(
    Layer.provideMerge(Webhooks.layer({ networks })),
    Layer.provide(connectTimeoutClient({ connections: CONNECTIONS, networks }))
  )
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

/** The addresses that webhooks may be sent to (spec 7): public ones, and all others if the setting allows. */
const makeWebhookNetworks = (
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
