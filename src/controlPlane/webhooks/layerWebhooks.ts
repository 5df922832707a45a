import { Layer } from "effect"
import { publicNetworks } from "../../shared/net/addressPolicy.ts"
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
  // Webhooks are sent to public addresses, and to all others if the setting allows (spec 7.3).
  const networks = publicNetworks(options.allowPrivate, "MUSTER_WEBHOOK_ALLOW_PRIVATE")
  return Layer.merge(WebhookDeliverer, WebhooksFile.layer(options)).pipe(
    Layer.provideMerge(Webhooks.layer({ networks })),
    Layer.provide(connectTimeoutClient({ connections: CONNECTIONS, networks }))
  )
}
