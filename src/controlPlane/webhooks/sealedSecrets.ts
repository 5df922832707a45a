import { Context, Option, Schema } from "effect"
import type { WebhookRecord } from "../store/repos/WebhookRepo.ts"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"

const Secrets = Schema.Struct({ url: Schema.String, secret: Schema.String })
export type Secrets = typeof Secrets.Type

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Secrets))

export const makeWebhookSeal = (secret: Uint8Array): Seal => makeSeal(secret, "webhooks")

/** The seal of this process; rows are webhooks. Default: a secret that ends with it. */
export const WebhookSeal: Context.Reference<Seal> = Context.Reference("muster/webhooks/WebhookSeal", {
  defaultValue: () => makeWebhookSeal(passingSecret())
})

export const sealSecrets = (seal: Seal, id: string, secrets: Secrets): string =>
  seal.seal(id, JSON.stringify(secrets))

/** Undefined if the text was sealed with another secret file. */
export const openSecrets = (seal: Seal, { id, sealed }: WebhookRecord): Secrets | undefined =>
  Option.getOrUndefined(decode(seal.open(id, sealed) ?? ""))
