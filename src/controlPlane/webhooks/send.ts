import { createHmac, randomBytes } from "node:crypto"
import { ByteSize, Clock, Context, Duration, Effect, Option, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpIncomingMessage } from "effect/http"
import { whyNoAnswer } from "../../contract/api/noAnswer.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { WebhookFormat } from "../../contract/domain/Webhook.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import type { EncodedEvent } from "../events/EncodedEvent.ts"
import type { WebhookRecord } from "../store/repos/WebhookRepo.ts"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"

const PREFIX = "whsec_"
const SECRET_BYTES = 24

export const makeSecret = (): string => PREFIX + randomBytes(SECRET_BYTES).toString("base64")

/** Form of a secret: `whsec_` and 24 to 64 bytes in base64. */
export const secretPattern = /^whsec_[A-Za-z0-9+/]{32,86}={0,2}$/

const Secrets = Schema.Struct({ url: Schema.String, secret: Schema.String })
export type Secrets = typeof Secrets.Type

const decodeSecrets = Schema.decodeUnknownOption(Schema.fromJsonString(Secrets))

export const makeWebhookSeal = (secret: Uint8Array): Seal => makeSeal(secret, "webhooks")

/** The seal of this process; rows are webhooks. Default: a secret that ends with it. */
export const WebhookSeal: Context.Reference<Seal> = Context.Reference("muster/webhooks/WebhookSeal", {
  defaultValue: () => makeWebhookSeal(passingSecret())
})

export const sealSecrets = (seal: Seal, id: string, secrets: Secrets): string =>
  seal.seal(id, JSON.stringify(secrets))

/** Undefined if the text was sealed with another secret file. */
export const openSecrets = (seal: Seal, { id, sealed }: WebhookRecord): Secrets | undefined =>
  Option.getOrUndefined(decodeSecrets(seal.open(id, sealed) ?? ""))

/** Returns the headers of a message. `seconds`: Unix time of the attempt. */
const signatureHeaders = (secret: string, message: { id: string; seconds: number; body: string }) => {
  const { body, id, seconds } = message
  const key = Buffer.from(secret.slice(PREFIX.length), "base64")
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64")
  return {
    "webhook-id": id,
    "webhook-timestamp": String(seconds),
    "webhook-signature": `v1,${signature}`
  }
}

const TIMEOUT = Duration.seconds(10)
/** The time for the rest of a response whose status is known; its content does not count. */
const BODY_TIMEOUT = Duration.seconds(1)
const LARGEST_BODY = ByteSize.kibibytes(64)

export interface Message {
  readonly url: string
  readonly secret: string
  readonly id: string
  readonly body: string
}

/** How an attempt went; absent `error`: it succeeded. */
export interface Attempt {
  readonly at: string
  readonly duration_ms: number
  readonly status?: number
  readonly error?: string
}

/**
 * Sends one message: any 2xx within 10 s is success, redirects are not followed (spec 7). It never fails: the result
 * has the outcome.
 */
export const makeSend = Effect.map(HttpClient.HttpClient, (http) =>
  Effect.fn("webhook.send")(function* ({ body, id, secret, url }: Message): Effect.fn.Return<Attempt> {
    const now = yield* Clock.currentTimeMillis
    const began = yield* elapsedMillis
    const request = HttpClientRequest.post(url).pipe(
      HttpClientRequest.setHeaders({
        "user-agent": "Muster-Webhooks",
        ...signatureHeaders(secret, { id, seconds: Math.floor(now / 1000), body })
      }),
      HttpClientRequest.bodyText(body, "application/json")
    )
    const statusOf = Effect.fnUntraced(function* () {
      // The address may have a secret, and the receiver is not part of a trace.
      const response = yield* Effect.provideService(
        http.execute(request),
        HttpClient.TracerDisabledWhen,
        () => true
      )
      yield* response.text.pipe(
        Effect.provideService(HttpIncomingMessage.MaxBodySize, LARGEST_BODY),
        Effect.timeout(BODY_TIMEOUT),
        Effect.ignore
      )
      return response.status
    })
    const outcome = yield* Effect.scoped(statusOf()).pipe(
      Effect.map((status) => ({
        status,
        ...(status >= 200 && status < 300
          ? {}
          : { error: status >= 300 && status < 400 ? "redirects are not followed" : `status ${status}` })
      })),
      Effect.timeoutOrElse({
        duration: TIMEOUT,
        orElse: () => Effect.succeed({ error: `no response within ${Duration.toSeconds(TIMEOUT)} s` })
      }),
      Effect.catch((failure) => {
        const { code, message } = whyNoAnswer(failure)
        return Effect.succeed({ error: cleanText(message === "" ? code : message) })
      })
    )
    const duration_ms = Math.round((yield* elapsedMillis) - began)
    return { at: new Date(now).toISOString(), duration_ms, ...outcome }
  })
)

export interface Subject {
  readonly event: Pick<EncodedEvent, "blueprint_id" | "server_id" | "textWithCursor" | "topic">
  readonly payload: unknown
  /** Unset if there is no server, or its name is not known. */
  readonly name: string | undefined
}

const has = <K extends string>(value: unknown, key: K): value is Record<K, unknown> =>
  typeof value === "object" && value !== null && key in value

const sentence = ({ event: { blueprint_id, server_id, topic }, name, payload }: Subject): string => {
  const server =
    name === undefined ? `${blueprint_id} (${server_id})` : `${name} (${blueprint_id}, ${server_id})`
  if (topic === "crash")
    return `${server} crashed: ${has(payload, "reason") ? payload.reason : "unknown reason"}`
  if (topic === "deleted") return `${server} was deleted`
  if (topic === "install") {
    const reason = has(payload, "reason") ? `: ${payload.reason}` : ""
    return `${server}: installation ${has(payload, "phase") ? payload.phase : "changed"}${reason}`
  }
  if (topic === "expiring") return `${server} is deleted at ${payload}`
  if (topic === "problem")
    return has(payload, "detail")
      ? `${server} has a problem: ${payload.detail}`
      : `${server} has no problem now`
  return `${server} is ${payload}`
}

const discordText = (text: string): string => text.replace(/[\\*_~`|>#@[\]()<:-]/g, "\\$&").slice(0, 1900)

const slackText = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

/** Returns the JSON body of a message in a chat, without mentions. */
export const chatBody = (format: Exclude<WebhookFormat, "json">, text: string): string =>
  format === "discord"
    ? JSON.stringify({ content: discordText(text), allowed_mentions: { parse: [] } })
    : JSON.stringify({ text: slackText(text) })

/** Returns the JSON body of a delivery (spec 7). */
export const bodyOf = (format: WebhookFormat, subject: Subject): string =>
  format === "json" ? subject.event.textWithCursor : chatBody(format, sentence(subject))
