import { isDeepStrictEqual } from "node:util"
import { Clock, Context, Effect, Layer, Option } from "effect"
import type { CreateWebhook, PatchWebhook } from "../../contract/api/WebhooksGroup.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, CursorExpired, InvalidRequest, NotFound } from "../../contract/domain/errors.ts"
import { serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import {
  DEFAULT_TOPICS,
  type Webhook,
  WebhookId,
  type WebhookSettings
} from "../../contract/domain/Webhook.ts"
import type { AddressPolicy } from "../../shared/net/addressPolicy.ts"
import { Journal } from "../store/journal/Journal.ts"
import { type WebhookRecord, WebhookRepo } from "../store/repos/WebhookRepo.ts"
import type { Seal } from "../store/Seal.ts"
import { Store, Transaction } from "../store/Store.ts"
import { chatBody } from "./format.ts"
import { makeSecret, makeSend, openSecrets, sealSecrets, WebhookSeal } from "./send.ts"

/** A webhook that the file of `MUSTER_WEBHOOKS` defines. */
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

/** Null removes a field. */
const changed = <A>(kept: A | undefined, given: A | null | undefined): A | undefined =>
  given === undefined ? kept : (given ?? undefined)

type OwnSettings = WebhookRecord["settings"]

const mergeSettings = (kept: OwnSettings, given: Omit<PatchWebhook, "url">): OwnSettings => {
  const blueprint_id = changed(kept.blueprint_id, given.blueprint_id)
  const label = changed(kept.label, given.label)
  const description = changed(kept.description, given.description)
  return {
    topics: given.topics ?? kept.topics,
    format: given.format ?? kept.format,
    ...(blueprint_id === undefined ? {} : { blueprint_id }),
    ...(label === undefined ? {} : { label }),
    ...(description === undefined ? {} : { description })
  }
}

const isSame = (seal: Seal, one: WebhookRecord, other: WebhookRecord): boolean =>
  one.source === other.source &&
  isDeepStrictEqual(one.settings, other.settings) &&
  isDeepStrictEqual(openSecrets(seal, one), openSecrets(seal, other))

const iso = (millis: number) => new Date(millis).toISOString()

/** Webhooks and their changes (spec 7). */
export class Webhooks extends Context.Service<Webhooks>()("muster/webhooks/Webhooks", {
  make: Effect.fnUntraced(function* (options: { readonly networks: AddressPolicy }) {
    const journal = yield* Journal
    const repo = yield* WebhookRepo
    const seal = yield* WebhookSeal
    const store = yield* Store
    const send = yield* makeSend

    const viewOf = (record: WebhookRecord): Webhook => {
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

    const recordOf = Effect.fnUntraced(function* (id: WebhookId) {
      const record = Option.getOrUndefined(yield* store.read(repo.find(id)))
      return record ?? (yield* notFound(id))
    })

    /** Refuses an address that is not allowed; a name is checked at each connection. */
    const checkUrl = (url: string) => {
      const refusal = options.networks.refusal(new URL(url).hostname)
      return refusal === undefined
        ? Effect.void
        : new InvalidRequest({ detail: `body field url: ${refusal}` })
    }

    const put = Effect.fnUntraced(function* (record: WebhookRecord) {
      const transaction = yield* Transaction
      yield* repo.put(record)
      yield* transaction.append({ topic: "webhook:changed", webhook_id: record.id })
    })

    const newRecord = Effect.fnUntraced(function* (
      id: WebhookId,
      {
        secret,
        settings: { url, ...settings },
        source
      }: {
        readonly settings: WebhookSettings
        readonly secret: string
        readonly source: WebhookRecord["source"]
      }
    ) {
      const { newest } = yield* journal.bounds
      return {
        id,
        created_at: yield* Clock.currentTimeMillis,
        source,
        settings,
        sealed: sealSecrets(seal, id, { url, secret }),
        position: newest,
        is_parked: false,
        failing_since: null,
        failure: null
      } satisfies WebhookRecord
    })

    const change = Effect.fnUntraced(function* <E>(
      id: WebhookId,
      f: (record: WebhookRecord) => Effect.Effect<WebhookRecord, E>
    ) {
      const changed = Effect.gen(function* () {
        const record = Option.getOrUndefined(yield* repo.find(id))
        if (record === undefined) return yield* notFound(id)
        const after = yield* f(record)
        yield* put(after)
        return after
      })
      return viewOf(yield* store.write(changed))
    })

    const resumed = { is_parked: false, failing_since: null, failure: null }

    return {
      list: Effect.map(store.read(repo.all), (records) => records.map(viewOf)),
      get: (id: WebhookId) => Effect.map(recordOf(id), viewOf),
      /** @error InvalidRequest its address is not allowed @error Conflict there are too many */
      create: Effect.fn("Webhooks.create")(function* (input: CreateWebhook) {
        const { format = "json", topics = DEFAULT_TOPICS, ...others } = input
        yield* checkUrl(input.url)
        const id = WebhookId.make(serverId(idBytes(16)))
        yield* describeAudit({ id })
        const secret = makeSecret()
        const record = yield* newRecord(id, {
          settings: { ...others, topics: [...new Set(topics)], format },
          secret,
          source: "api"
        })
        const added = Effect.gen(function* () {
          if ((yield* repo.all).length >= MAX_WEBHOOKS) {
            return yield* new Conflict({
              detail: `there are ${MAX_WEBHOOKS} webhooks, and there may not be more`,
              hint: "Delete a webhook that is not needed, or give one webhook more topics."
            })
          }
          yield* put(record)
        })
        yield* store.write(added)
        return { ...viewOf(record), secret }
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
          const transaction = yield* Transaction
          const record = Option.getOrUndefined(yield* repo.find(id))
          if (record === undefined) return yield* notFound(id)
          if (record.source === "file") return yield* ofFile(id)
          yield* repo.remove(id)
          yield* transaction.append({ topic: "webhook:changed", webhook_id: id })
        })
        yield* store.write(removed)
      }),
      /** Sends a test message now, and records the attempt. */
      test: Effect.fn("Webhooks.test")(function* (id: WebhookId) {
        const record = yield* recordOf(id)
        const at = iso(yield* Clock.currentTimeMillis)
        const message_id = `msg_${id}_test_${Date.parse(at)}`
        const { format } = record.settings
        const body =
          format === "json"
            ? JSON.stringify({ Topic: "test", Data: { webhook_id: id } })
            : chatBody(format, "This is a test of a Muster webhook.")
        const secrets = openSecrets(seal, record)
        const attempt =
          secrets === undefined
            ? { at, duration_ms: 0, error: "its secret was sealed with another secret.key" }
            : yield* send({ ...secrets, id: message_id, body })
        const delivery = { message_id, cursor: null, server_id: null, topic: "test", ...attempt }
        // The message has been sent, whether or not the attempt is recorded.
        yield* Effect.catch(store.write(repo.record(id, delivery)), ({ detail }) =>
          Effect.logWarning(`the test of a webhook was not recorded: ${detail}`)
        )
        return delivery
      }),
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
        const fresh = yield* Effect.forEach(wanted, ({ id, ...rest }) =>
          newRecord(id, { ...rest, source: "file" })
        )
        const set = Effect.gen(function* () {
          const transaction = yield* Transaction
          const before = new Map((yield* repo.all).map((record) => [record.id, record]))
          for (const record of fresh) {
            const existing = before.get(record.id)
            before.delete(record.id)
            if (existing === undefined) yield* put(record)
            else if (!isSame(seal, existing, record)) {
              yield* put({
                ...existing,
                ...resumed,
                source: "file",
                settings: record.settings,
                sealed: record.sealed
              })
            }
          }
          for (const { id, source } of before.values()) {
            if (source !== "file") continue
            yield* repo.remove(id)
            yield* transaction.append({ topic: "webhook:changed", webhook_id: id })
          }
        })
        yield* store.write(set)
      })
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof Webhooks.make>) =>
    Layer.effect(Webhooks, Webhooks.make(...options))
}
