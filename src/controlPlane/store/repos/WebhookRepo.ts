import { Context, Effect, Layer, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { WebhookDelivery, WebhookId, WebhookSettings } from "../../../contract/domain/Webhook.ts"
import { BooleanColumn, IntColumn, insertRows, JsonColumn, readRows, tableOf, writeRow } from "../sql/rows.ts"
import { append, type Writing } from "../sql/Transaction.ts"

/** Attempts of each webhook that are kept. */
const KEPT = 100

/** The record of a webhook. Times in ms since the epoch. */
export const WebhookRecord = Schema.Struct({
  id: WebhookId,
  created_at: IntColumn,
  source: Schema.Literals(["api", "file"]),
  settings: JsonColumn(WebhookSettings.mapFields(Struct.omit(["url"]))),
  /** The URL, which may hold a secret, and the secret of the signature, encrypted. */
  sealed: Schema.String,
  /** Cursor up to which events are delivered. */
  position: IntColumn,
  is_parked: BooleanColumn,
  failing_since: Schema.NullOr(IntColumn),
  failure: Schema.NullOr(Schema.String)
})
export type WebhookRecord = typeof WebhookRecord.Type

export interface WebhookProgress {
  /** The position at the begin of the round. If another one was set since, it stays. */
  readonly from: number
  readonly to: number
  readonly is_parked: boolean
  /** When the failures began, if the last attempt failed. */
  readonly failing_since: number | null
  readonly failure: string | null
  readonly deliveries: ReadonlyArray<WebhookDelivery>
}

const webhooks = tableOf("webhooks", WebhookRecord)
const encodeDelivery = writeRow(JsonColumn(WebhookDelivery))
const readDeliveries = readRows(Schema.Struct({ delivery: JsonColumn(WebhookDelivery) }))

/** Webhooks, with the place up to which each has delivered. Every change that is not progress has a journal entry. */
export class WebhookRepo extends Context.Service<WebhookRepo>()("muster/store/WebhookRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    let attempts = 0

    const announce = (webhook_id: WebhookId) => append({ topic: "webhook:changed", webhook_id })

    const { find, put, remove } = webhooks.on(sql)

    const addDeliveries = Effect.fnUntraced(function* (
      webhook_id: WebhookId,
      deliveries: ReadonlyArray<WebhookDelivery>
    ): Writing {
      if (deliveries.length === 0) return
      const rows = yield* Effect.forEach(deliveries.slice(-KEPT), (delivery) =>
        Effect.map(encodeDelivery(delivery), (text) => {
          const at = Date.parse(delivery.at)
          attempts += 1
          return { id: `${at}-${String(attempts % 1e9).padStart(9, "0")}`, webhook_id, at, delivery: text }
        })
      )
      yield* insertRows(sql, "webhook_deliveries", rows)
      yield* sql`DELETE FROM webhook_deliveries WHERE webhook_id = ${webhook_id} AND id NOT IN (
        SELECT id FROM webhook_deliveries WHERE webhook_id = ${webhook_id}
        ORDER BY at DESC, id DESC LIMIT ${KEPT})`
    })

    return {
      all: webhooks.read(sql`SELECT * FROM webhooks ORDER BY created_at, id`),
      find,
      /** Adds or replaces a webhook. */
      put: (record: WebhookRecord) => Effect.andThen(put(record), announce(record.id)),
      remove: (id: WebhookId) => Effect.andThen(remove(id), announce(id)),
      /** Records an attempt beside the rounds, unless the webhook was deleted. */
      record: Effect.fn("WebhookRepo.record")(function* (id: WebhookId, delivery: WebhookDelivery): Writing {
        if ((yield* find(id)) !== undefined) yield* addDeliveries(id, [delivery])
      }),
      advance: Effect.fn("WebhookRepo.advance")(function* (
        id: WebhookId,
        progress: WebhookProgress
      ): Writing {
        const { deliveries, failing_since, failure, from, is_parked, to } = progress
        const rows = yield* sql`UPDATE webhooks SET position = ${to}, is_parked = ${is_parked ? 1 : 0},
            failing_since = ${failing_since}, failure = ${failure}
          WHERE id = ${id} AND position = ${from} RETURNING id`
        if (rows.length > 0) yield* addDeliveries(id, deliveries)
      }),
      deliveries: (id: WebhookId) =>
        Effect.map(
          readDeliveries(
            sql`SELECT delivery FROM webhook_deliveries WHERE webhook_id = ${id} ORDER BY at DESC, id DESC`
          ),
          (rows) => rows.map(({ delivery }) => delivery)
        )
    }
  })
}) {
  static readonly layer = Layer.effect(WebhookRepo, WebhookRepo.make)
}
