/** The file of `MUSTER_WEBHOOKS` (spec 7). */
import { readFileSync } from "node:fs"
import { Context, Effect, Layer, Schema } from "effect"
import { parseDocument } from "yaml"
import { InvalidRequest, type Unavailable } from "../../contract/domain/errors.ts"
import { DEFAULT_TOPICS, WebhookId, webhookFields } from "../../contract/domain/Webhook.ts"
import { Leadership } from "../store/Leadership.ts"
import { secretPattern } from "./send.ts"
import { type FileWebhook, Webhooks } from "./Webhooks.ts"

const LARGEST = 1024 * 1024

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

const decode = Schema.decodeUnknownEffect(Schema.Struct({ webhooks: Schema.Array(Entry) }), {
  onExcessProperty: "error",
  errors: "all"
})

const invalid = (path: string, why: string) =>
  new InvalidRequest({ detail: `MUSTER_WEBHOOKS: ${path}: ${why}`, hint: "Correct the file." })

const read = (path: string, file: string) =>
  Effect.try({
    try: () => readFileSync(file, "utf8"),
    catch: () => invalid(path, `${file} cannot be read`)
  })

/** @error InvalidRequest the file cannot be read, or is not valid */
const readWebhooksFile = Effect.fnUntraced(function* (
  path: string,
  variable: (name: string) => string | undefined
): Effect.fn.Return<ReadonlyArray<FileWebhook>, InvalidRequest> {
  const text = yield* read(path, path)
  if (text.length > LARGEST) return yield* invalid(path, "it is larger than 1 MiB")
  const document = parseDocument(text)
  const [problem] = document.errors
  if (problem !== undefined) return yield* invalid(path, problem.message.split("\n")[0] ?? "")
  const plain = yield* Effect.try({
    try: (): unknown => document.toJS({ maxAliasCount: 100 }),
    catch: (cause) => invalid(path, cause instanceof Error ? cause.message : String(cause))
  })
  const { webhooks } = yield* Effect.mapError(decode(plain), ({ message }) =>
    invalid(path, message.replaceAll(/\s+/g, " "))
  )
  const secretOf = Effect.fnUntraced(function* (entry: typeof Entry.Type) {
    const { id, secret, secret_env, secret_file } = entry
    if ([secret, secret_env, secret_file].filter((place) => place !== undefined).length !== 1) {
      return yield* invalid(path, `${id}: expected one of secret, secret_env and secret_file`)
    }
    const found =
      secret ??
      (secret_env === undefined ? undefined : variable(secret_env)) ??
      (secret_file === undefined ? "" : yield* read(path, secret_file))
    const trimmed = found.trim()
    return secretPattern.test(trimmed)
      ? trimmed
      : yield* invalid(path, `${id}: expected a secret such as \`whsec_\` and 24 to 64 bytes in base64`)
  })
  const ids = webhooks.map(({ id }) => id)
  const twice = ids.find((id, index) => ids.indexOf(id) !== index)
  if (twice !== undefined) return yield* invalid(path, `${twice} is defined twice`)
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
