/** The file of `MUSTER_WEBHOOKS` (spec 7). */
import { Context, Effect, Layer, Schema } from "effect"
import type { InvalidRequest, Unavailable } from "../../contract/domain/errors.ts"
import { DEFAULT_TOPICS, WebhookId, webhookFields } from "../../contract/domain/Webhook.ts"
import { publicNetworks } from "../../shared/net/addressPolicy.ts"
import { connectTimeoutClient } from "../../shared/net/connectTimeoutClient.ts"
import { settingFile } from "../http/settingFile.ts"
import { Leadership } from "../store/Leadership.ts"
import { secretPattern } from "./send.ts"
import { WebhookDeliverer } from "./WebhookDeliverer.ts"
import { type FileWebhook, Webhooks } from "./Webhooks.ts"

const Entry = Schema.Struct({
  id: WebhookId,
  url: webhookFields.url,
  topics: Schema.optionalKey(webhookFields.topics),
  format: Schema.optionalKey(webhookFields.format),
  blueprint_id: Schema.optionalKey(webhookFields.blueprint_id),
  label: Schema.optionalKey(webhookFields.label),
  description: Schema.optionalKey(webhookFields.description),
  secret: Schema.optionalKey(Schema.String),
  /** A variable of the service, or a file, with the secret. */
  secret_env: Schema.optionalKey(Schema.String),
  secret_file: Schema.optionalKey(Schema.String)
})

const WebhooksInFile = Schema.Struct({ webhooks: Schema.Array(Entry) })

/** @error InvalidRequest the file cannot be read, or is not valid */
const readWebhooksFile = Effect.fnUntraced(function* (
  path: string,
  variable: (name: string) => string | undefined
): Effect.fn.Return<ReadonlyArray<FileWebhook>, InvalidRequest> {
  const file = settingFile("MUSTER_WEBHOOKS", path)
  const { webhooks } = yield* file.decode(WebhooksInFile)
  const secretOf = Effect.fnUntraced(function* (entry: typeof Entry.Type) {
    const { id, secret: inline, secret_env, secret_file } = entry
    const found = yield* file.secret({ inline, variable: secret_env, file: secret_file }, variable)
    if (found === undefined)
      return yield* file.invalid(`${id}: expected one of secret, secret_env and secret_file`)
    return secretPattern.test(found)
      ? found
      : yield* file.invalid(`${id}: expected a secret such as \`whsec_\` and 24 to 64 bytes in base64`)
  })
  yield* file.refuseTwice(webhooks.map(({ id }) => id))
  return yield* Effect.forEach(webhooks, (entry) =>
    Effect.map(secretOf(entry), (secret) => {
      const { id, secret: _, secret_env: __, secret_file: ___, ...settings } = entry
      return {
        id,
        secret,
        settings: {
          ...settings,
          topics: settings.topics ?? DEFAULT_TOPICS,
          format: settings.format ?? "json"
        }
      }
    })
  )
})

export interface WebhooksFileOptions {
  /** The file of `MUSTER_WEBHOOKS`, if any. */
  readonly file?: string
  readonly variable: (name: string) => string | undefined
}

/** Keeps the webhooks of the file as the file has them. */
export class WebhooksFile extends Context.Service<
  WebhooksFile,
  {
    /** Reads the file again; the leader applies it. Returns whether there is a file. */
    readonly reload: Effect.Effect<boolean, InvalidRequest | Unavailable>
  }
>()("muster/webhooks/WebhooksFile") {
  static readonly layer = (options: WebhooksFileOptions) =>
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
