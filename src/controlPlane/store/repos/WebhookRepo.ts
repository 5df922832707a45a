import { Context, Effect, Layer, Option, Schema, Struct } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { WebhookDelivery, WebhookId, WebhookSettings } from "../../../contract/domain/Webhook.ts"
import { BooleanColumn, firstRow, IntColumn, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import type { Transaction } from "../write/Transaction.ts"

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

/** How a round of deliveries went. */
export interface WebhookProgress {
  /** The position at the begin of the round. If another one was set since, it stays. */
  readonly from: number
  readonly to: number
  readonly is_parked: boolean
  /** When the failures began, if the last attempt failed. */
  readonly failing_since: number | null
  readonly failure: string | null
  /** In order. */
  readonly deliveries: ReadonlyArray<WebhookDelivery>
}

const encode = writeRow(WebhookRecord)
const readAll = readRows(WebhookRecord)
const readOne = firstRow(WebhookRecord)
const encodeDelivery = writeRow(JsonColumn(WebhookDelivery))
const readDeliveries = readRows(Schema.Struct({ delivery: JsonColumn(WebhookDelivery) }))

type Write<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

/** Webhooks, with the place up to which each has delivered. Every change that is not progress has a journal entry. */
export class WebhookRepo extends Context.Service<
  WebhookRepo,
  {
    readonly all: Effect.Effect<ReadonlyArray<WebhookRecord>, SqlError.SqlError>
    find(id: WebhookId): Effect.Effect<Option.Option<WebhookRecord>, SqlError.SqlError>
    /** Adds or replaces a webhook. */
    put(record: WebhookRecord): Write<void>
    remove(id: WebhookId): Write<void>
    /** Records an attempt beside the rounds, unless the webhook was deleted. */
    record(id: WebhookId, delivery: WebhookDelivery): Write<void>
    /** Records a round of deliveries. */
    advance(id: WebhookId, progress: WebhookProgress): Write<void>
    /** The last attempts, newest first. */
    deliveries(id: WebhookId): Effect.Effect<ReadonlyArray<WebhookDelivery>, SqlError.SqlError>
  }
>()("muster/store/WebhookRepo") {
  static readonly layer = Layer.effect(
    WebhookRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      let attempts = 0

      const find = (id: WebhookId) => readOne(sql`SELECT * FROM webhooks WHERE id = ${id}`)

      const addDeliveries = Effect.fnUntraced(function* (
        webhook_id: WebhookId,
        deliveries: ReadonlyArray<WebhookDelivery>
      ) {
        if (deliveries.length === 0) return
        for (const delivery of deliveries.slice(-KEPT)) {
          const at = Date.parse(delivery.at)
          attempts += 1
          const id = `${at}-${String(attempts % 1e9).padStart(9, "0")}`
          yield* sql`INSERT INTO webhook_deliveries ${sql.insert({ id, webhook_id, at, delivery: yield* encodeDelivery(delivery) })}`
        }
        yield* sql`DELETE FROM webhook_deliveries WHERE webhook_id = ${webhook_id} AND id NOT IN (
          SELECT id FROM webhook_deliveries WHERE webhook_id = ${webhook_id}
          ORDER BY at DESC, id DESC LIMIT ${KEPT})`
      })

      return WebhookRepo.of({
        all: readAll(sql`SELECT * FROM webhooks ORDER BY created_at, id`),
        find,
        put: Effect.fn("WebhookRepo.put")(function* (record) {
          const row = yield* encode(record)
          yield* sql`INSERT INTO webhooks ${sql.insert(row)} ON CONFLICT (id) DO UPDATE SET
            source = excluded.source, settings = excluded.settings, sealed = excluded.sealed,
            position = excluded.position, is_parked = excluded.is_parked,
            failing_since = excluded.failing_since, failure = excluded.failure`
        }),
        remove: (id) => Effect.asVoid(sql`DELETE FROM webhooks WHERE id = ${id}`),
        record: Effect.fn("WebhookRepo.record")(function* (id, delivery) {
          if (Option.isSome(yield* find(id))) yield* addDeliveries(id, [delivery])
        }),
        advance: Effect.fn("WebhookRepo.advance")(function* (id, progress) {
          const { deliveries, failing_since, failure, from, is_parked, to } = progress
          const rows = yield* sql`UPDATE webhooks SET position = ${to}, is_parked = ${is_parked ? 1 : 0},
              failing_since = ${failing_since}, failure = ${failure}
            WHERE id = ${id} AND position = ${from} RETURNING id`
          if (rows.length > 0) yield* addDeliveries(id, deliveries)
        }),
        deliveries: (id) =>
          Effect.map(
            readDeliveries(
              sql`SELECT delivery FROM webhook_deliveries WHERE webhook_id = ${id} ORDER BY at DESC, id DESC`
            ),
            (rows) => rows.map(({ delivery }) => delivery)
          )
      })
    })
  )
}
