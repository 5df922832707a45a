import { Context, Effect, Layer } from "effect"
import type { InvalidRequest, Unavailable } from "../domain/errors.ts"
import { connectTimeoutClient } from "../net/connectTimeoutClient.ts"
import { Leadership } from "../store/Leadership.ts"
import { WebhookDeliverer } from "./WebhookDeliverer.ts"
import { Webhooks } from "./Webhooks.ts"
import { makeWebhookNetworks } from "./webhookNetworks.ts"
import { type FileWebhook, readWebhooksFile } from "./webhooksFile.ts"

/** Connections to one address. */
const CONNECTIONS = 16

/** The file of webhooks. */
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
  /** The file of `MUSTER_WEBHOOKS`; absent: none. */
  readonly file?: string
  /** Returns a variable of the service. */
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
