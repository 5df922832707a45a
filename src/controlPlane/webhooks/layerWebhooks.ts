import type { lookup as systemLookup } from "node:dns"
import { Context, Effect, Layer } from "effect"
import { IpNetwork } from "effect/net"
import type { InvalidRequest, Unavailable } from "../../contract/domain/errors.ts"
import { type AddressPolicy, holdingIpv4, makeAddressPolicy } from "../../shared/net/addressPolicy.ts"
import { connectTimeoutClient } from "../../shared/net/connectTimeoutClient.ts"
import { Leadership } from "../store/Leadership.ts"
import { WebhookDeliverer } from "./WebhookDeliverer.ts"
import { Webhooks } from "./Webhooks.ts"
import { type FileWebhook, readWebhooksFile } from "./webhooksFile.ts"

const CONNECTIONS = 16

export class WebhooksFile extends Context.Service<
  WebhooksFile,
  {
    /** Reads the file again; the leader applies it. Returns whether there is a file. */
    readonly reload: Effect.Effect<boolean, InvalidRequest | Unavailable>
  }
>()("muster/webhooks/WebhooksFile") {
  static readonly layer = (options: WebhooksOptions) =>
    Layer.effect(
      WebhooksFile,
      Effect.gen(function* () {
        const { file, variable } = options
        const leadership = yield* Leadership
        const webhooks = yield* Webhooks
        if (file === undefined) {
          yield* leadership.whileLeader(Effect.orDie(webhooks.setFromFile([])))
          return WebhooksFile.of({ reload: Effect.succeed(false) })
        }
        let wanted: ReadonlyArray<FileWebhook> = yield* readWebhooksFile(file, variable)
        yield* leadership.whileLeader(Effect.suspend(() => webhooks.setFromFile(wanted)))
        const reload = Effect.gen(function* () {
          wanted = yield* readWebhooksFile(file, variable)
          if (yield* leadership.isLeader) yield* webhooks.setFromFile(wanted)
          return true
        })
        return WebhooksFile.of({ reload })
      })
    )
}

export interface WebhooksOptions {
  /** The file of `MUSTER_WEBHOOKS`, if any. */
  readonly file?: string
  readonly variable: (name: string) => string | undefined
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
