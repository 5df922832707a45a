import { isDeepStrictEqual } from "node:util"
import { Clock, Context, Effect, Layer, type Schema } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import type { CreateWebhook, PatchWebhook } from "../../contract/api/WebhooksGroup.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, CursorExpired, InvalidRequest, NotFound } from "../../contract/domain/errors.ts"
import { type ServerId, serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import {
  DEFAULT_TOPICS,
  type Webhook,
  WebhookId,
  type WebhookSettings
} from "../../contract/domain/Webhook.ts"
import type { AddressPolicy } from "../../shared/net/addressPolicy.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { Journal } from "../store/journal/Journal.ts"
import { type WebhookRecord, WebhookRepo } from "../store/repos/WebhookRepo.ts"
import type { Seal } from "../store/Seal.ts"
import { Store } from "../store/Store.ts"
import { chatBody, makeSecret, makeSend, openSecrets, sealSecrets, WebhookSeal } from "./send.ts"

/** A webhook as the file of `MUSTER_WEBHOOKS` defines it. */
export interface FileWebhook {
  readonly id: WebhookId
  readonly settings: WebhookSettings
  readonly secret: string
}

const MAX_WEBHOOKS = 100

const notFound = (id: string) =>
  new NotFound({ detail: `webhook not found: ${id}`, hint: "GET /api/webhooks lists what exists." })

const ofFile = (id: string) =>
  new Conflict({
    detail: `the file of MUSTER_WEBHOOKS defines the webhook ${id}`,
    hint: "Change the file, then restart the service or send it SIGHUP."
  })

type OwnSettings = WebhookRecord["settings"]

/** Returns settings after a change; null removes a field. */
const mergeSettings = (
  { format, topics, ...kept }: OwnSettings,
  change: Omit<PatchWebhook, "url">
): OwnSettings => {
  const { format: newFormat = format, topics: newTopics = topics, ...given } = change
  const others: Omit<OwnSettings, "format" | "topics"> = Object.fromEntries(
    Object.entries({ ...kept, ...given }).filter(([, value]) => value !== null)
  )
  return { topics: newTopics, format: newFormat, ...others }
}

const isSame = (seal: Seal, one: WebhookRecord, other: WebhookRecord): boolean =>
  one.source === other.source &&
  isDeepStrictEqual(one.settings, other.settings) &&
  isDeepStrictEqual(openSecrets(seal, one), openSecrets(seal, other))

const iso = (millis: number) => new Date(millis).toISOString()

const viewOf = (seal: Seal, record: WebhookRecord): Webhook => {
  const { created_at, failing_since, failure, id, is_parked, position, settings, source } = record
  return {
    id,
    url: openSecrets(seal, record)?.url ?? "",
    ...settings,
    source,
    state: is_parked ? "parked" : failing_since === null ? "active" : "retrying",
    cursor: position,
    created_at: iso(created_at),
    ...(failing_since === null ? {} : { failing_since: iso(failing_since) }),
    ...(failure === null ? {} : { failure })
  }
}

/** The progress of a webhook that delivers from its position on. */
const resumed = { is_parked: false, failing_since: null, failure: null }

/** The records of webhooks: how they are made, and changed. */
const makeRecords = Effect.gen(function* () {
  const journal = yield* Journal
  const repo = yield* WebhookRepo
  const seal = yield* WebhookSeal
  const store = yield* Store

  const find = Effect.fnUntraced(function* (id: WebhookId) {
    return (yield* repo.find(id)) ?? (yield* notFound(id))
  })

  return {
    find,
    fresh: Effect.fnUntraced(function* (
      source: WebhookRecord["source"],
      { id, secret, settings: { url, ...settings } }: FileWebhook
    ) {
      const { newest } = yield* journal.bounds
      return {
        ...{ id, source, settings, ...resumed },
        created_at: yield* Clock.currentTimeMillis,
        sealed: sealSecrets(seal, id, { url, secret }),
        position: newest
      } satisfies WebhookRecord
    }),
    change: Effect.fnUntraced(function* <E>(
      id: WebhookId,
      f: (record: WebhookRecord) => Effect.Effect<WebhookRecord, E>
    ) {
      const changed = Effect.gen(function* () {
        const after = yield* f(yield* find(id))
        yield* repo.put(after)
        return after
      })
      return viewOf(seal, yield* store.write(changed))
    }),
    /** Makes the webhooks of the file equal to `fresh`; the positions of those that stay are kept. */
    setFromFile: Effect.fnUntraced(function* (fresh: ReadonlyArray<WebhookRecord>) {
      const before = new Map((yield* repo.all).map((record) => [record.id, record]))
      for (const record of fresh) {
        const { sealed, settings } = record
        const existing = before.get(record.id)
        before.delete(record.id)
        if (existing === undefined) yield* repo.put(record)
        else if (!isSame(seal, existing, record)) {
          yield* repo.put({ ...existing, ...resumed, source: "file", settings, sealed })
        }
      }
      for (const { id, source } of before.values()) if (source === "file") yield* repo.remove(id)
    })
  }
})

/** Webhooks and their changes (spec 7). */
export class Webhooks extends Context.Service<Webhooks>()("muster/webhooks/Webhooks", {
  make: Effect.fnUntraced(function* (options: { readonly networks: AddressPolicy }) {
    const journal = yield* Journal
    const repo = yield* WebhookRepo
    const seal = yield* WebhookSeal
    const store = yield* Store
    const send = yield* makeSend
    const { change, find, fresh, setFromFile } = yield* makeRecords
    const recordOf = (id: WebhookId) => store.read(find(id))

    /** Refuses an address that is not allowed; a name is checked at each connection. */
    const checkUrl = (url: string) => {
      const refusal = options.networks.refusal(new URL(url).hostname)
      return refusal === undefined
        ? Effect.void
        : new InvalidRequest({ detail: `body field url: ${refusal}` })
    }

    /** Sends a message now, and records the attempt. */
    const sendNow = Effect.fnUntraced(function* (
      id: WebhookId,
      message: (at: number) => {
        readonly message_id: string
        readonly server_id: ServerId | null
        readonly topic: string
        readonly data: Schema.Json
        readonly text: string
      }
    ) {
      const record = yield* recordOf(id)
      const now = yield* Clock.currentTimeMillis
      const { data, message_id, server_id, text, topic } = message(now)
      const { format } = record.settings
      const body = format === "json" ? JSON.stringify({ Topic: topic, Data: data }) : chatBody(format, text)
      const secrets = openSecrets(seal, record)
      const attempt =
        secrets === undefined
          ? { at: iso(now), duration_ms: 0, error: "its secret was sealed with another secret.key" }
          : yield* send({ ...secrets, id: message_id, body })
      const delivery = { message_id, cursor: null, server_id, topic, ...attempt }
      // The message has been sent, whether or not the attempt is recorded.
      yield* Effect.catch(store.write(repo.record(id, delivery)), ({ detail }) =>
        Effect.logWarning(`a message to a webhook was not recorded: ${detail}`)
      )
      return delivery
    })

    return {
      list: Effect.map(store.read(repo.all), (records) => records.map((record) => viewOf(seal, record))),
      get: (id: WebhookId) => Effect.map(recordOf(id), (record) => viewOf(seal, record)),
      /** @error InvalidRequest its address is not allowed @error Conflict there are too many */
      create: Effect.fn("Webhooks.create")(function* (input: CreateWebhook) {
        const { format = "json", topics = DEFAULT_TOPICS, ...others } = input
        yield* checkUrl(input.url)
        const id = WebhookId.make(serverId(idBytes(16)))
        yield* describeAudit({ id })
        const secret = makeSecret()
        const settings = { ...others, topics: [...new Set(topics)], format }
        const record = yield* fresh("api", { id, secret, settings })
        const added = Effect.gen(function* () {
          if ((yield* repo.all).length >= MAX_WEBHOOKS) {
            return yield* new Conflict({
              detail: `there are ${MAX_WEBHOOKS} webhooks, and there may not be more`,
              hint: "Delete a webhook that is not needed, or give one webhook more topics."
            })
          }
          yield* repo.put(record)
        })
        yield* store.write(added)
        return { ...viewOf(seal, record), secret }
      }),
      /** Changes fields; a parked webhook continues. @error Conflict the file defines it */
      patch: Effect.fn("Webhooks.patch")(function* (id: WebhookId, { url, ...fields }: PatchWebhook) {
        if (url !== undefined) yield* checkUrl(url)
        return yield* change(id, (record) => {
          if (record.source === "file") return Effect.fail(ofFile(id))
          const secrets = openSecrets(seal, record)
          if (secrets === undefined) {
            return new Conflict({
              detail: "the secret of the webhook was sealed with another secret.key",
              hint: "Delete the webhook and create it again."
            })
          }
          const settings = mergeSettings(record.settings, fields)
          const sealed = sealSecrets(seal, id, { ...secrets, ...(url === undefined ? {} : { url }) })
          return Effect.succeed({ ...record, ...resumed, settings, sealed })
        })
      }),
      remove: Effect.fn("Webhooks.remove")(function* (id: WebhookId) {
        const removed = Effect.gen(function* () {
          if ((yield* find(id)).source === "file") return yield* ofFile(id)
          yield* repo.remove(id)
        })
        yield* store.write(removed)
      }),
      /** Sends a test message now, and records the attempt. */
      test: Effect.fn("Webhooks.test")((id: WebhookId) =>
        sendNow(id, (at) => ({
          message_id: `msg_${id}_test_${at}`,
          server_id: null,
          topic: "test",
          data: { webhook_id: id },
          text: "This is a test of a Muster webhook."
        }))
      ),
      /** Sends one message now, and records the attempt. @error NotFound there is no such webhook */
      sendNow,
      /** Delivers the events after `cursor` again. @error CursorExpired they are no longer retained */
      replay: Effect.fn("Webhooks.replay")(function* (id: WebhookId, cursor: number) {
        const { newest, oldest } = yield* journal.bounds
        if (cursor > newest || cursor + 1 < oldest) {
          return yield* new CursorExpired({
            detail: `cursor ${cursor}: the retained events are ${oldest} to ${newest}`,
            hint: `Send a cursor from ${oldest - 1} to ${newest}.`
          })
        }
        return yield* change(id, (record) => Effect.succeed({ ...record, ...resumed, position: cursor }))
      }),
      deliveries: (id: WebhookId) => Effect.andThen(recordOf(id), store.read(repo.deliveries(id))),
      /** Makes the webhooks of the file equal to `wanted`; the positions of those that stay are kept. */
      setFromFile: Effect.fn("Webhooks.setFromFile")(function* (wanted: ReadonlyArray<FileWebhook>) {
        for (const { settings } of wanted) yield* checkUrl(settings.url)
        yield* store.write(setFromFile(yield* Effect.forEach(wanted, (webhook) => fresh("file", webhook))))
      })
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof Webhooks.make>) =>
    Layer.effect(Webhooks, Webhooks.make(...options))
}

/** Handlers of the webhook routes (spec 7). */
export const WebhooksHandlers = handlersOf(
  ApplicationApi,
  "webhooks",
  Effect.fn(function* (handlers) {
    const webhooks = yield* Webhooks
    return handlers.handleAll({
      list: () => webhooks.list,
      create: ({ payload }) => webhooks.create(payload),
      get: ({ params }) => webhooks.get(params.webhook),
      patch: ({ params, payload }) =>
        Effect.andThen(
          describeAudit({ changes: Object.keys(payload) }),
          webhooks.patch(params.webhook, payload)
        ),
      remove: ({ params }) => webhooks.remove(params.webhook),
      test: ({ params }) => webhooks.test(params.webhook),
      replay: ({ params, payload }) => webhooks.replay(params.webhook, payload.cursor),
      deliveries: ({ params }) => webhooks.deliveries(params.webhook)
    })
  })
)
