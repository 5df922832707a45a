import { Clock, Effect, Layer, Stream } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { isOptInChange, isPublic, type JournalEntry } from "../../contract/domain/Journal.ts"
import { labelCondition, meets } from "../../contract/domain/Labels.ts"
import type { WebhookDelivery, WebhookId } from "../../contract/domain/Webhook.ts"
import { backoff } from "../../shared/work/backoff.ts"
import { makeWorkQueue, type StepOutcome } from "../../shared/work/WorkQueue.ts"
import type { EncodedEvent } from "../events/EncodedEvent.ts"
import { encode } from "../events/encode.ts"
import { ServerSummaries } from "../events/LiveFeed.ts"
import { Journal } from "../store/journal/Journal.ts"
import { Leadership } from "../store/Leadership.ts"
import { CrashRepo } from "../store/repos/CrashRepo.ts"
import { type WebhookProgress, type WebhookRecord, WebhookRepo } from "../store/repos/WebhookRepo.ts"
import { Store } from "../store/Store.ts"
import { bodyOf, makeSend, openSecrets, type Secrets, WebhookSeal } from "./send.ts"

const PAGE = 500
/** Servers whose events one webhook gets at a time. */
const AT_ONCE = 8
/** Entries without an event for the webhook after which its position is stored. */
const STORE_EVERY = 1_000
/** Entries after a failed one among which the events of other servers are delivered: bounds the memory of a round. */
const MOST_AHEAD = 10_000
/** The time of failures after which a webhook is parked, in ms. */
const PARKED_AFTER = 24 * 60 * 60 * 1000

interface Due {
  readonly event: EncodedEvent
  readonly payload: unknown
}

/** The state of a round, in the memory of the leader. The next leader reads or delivers it again. */
interface Round {
  /** The position of the record to which this belongs. */
  readonly from: number
  /** Cursor up to which no event is due. */
  scanned: number
  /** Cursors after `from` that are delivered already. */
  readonly delivered: Set<number>
  /** Servers whose events wait for the next attempt. */
  readonly blocked: Set<string>
  readonly accepts: boolean
}

const beginRound = (from: number, delivered: Iterable<number> = []): Round => ({
  from,
  scanned: from,
  delivered: new Set([...delivered].filter((cursor) => cursor > from)),
  blocked: new Set(),
  accepts: false
})

/** Returns `webhook-id` of an event: the same for each attempt. */
const messageId = (id: WebhookId, cursor: number): string => `msg_${id}_${cursor}`

/** Finds the events of a webhook among entries of the journal, and sends them. */
const makeDeliveries = Effect.gen(function* () {
  const crashes = yield* CrashRepo
  const store = yield* Store
  const summaries = yield* ServerSummaries
  const send = yield* makeSend

  const isFor = ({ settings: { blueprint_id, label, topics } }: WebhookRecord, event: EncodedEvent) => {
    if (!topics.some((topic) => topic === event.topic)) return false
    if (blueprint_id !== undefined && event.blueprint_id !== blueprint_id) return false
    const condition = label === undefined ? undefined : labelCondition(label)
    if (condition === undefined) return true
    // The labels of a server that is gone are those at the time of the event.
    return meets(summaries.facts(event.server_id)?.labels ?? event.labels ?? {}, condition)
  }

  /** If the server was deleted before this process began, its last crash has the name. */
  const nameOf = Effect.fnUntraced(function* (server_id: ServerId) {
    if (summaries.facts(server_id) !== undefined) return summaries.nameOf(server_id)
    return (yield* store.read(crashes.find({ server_id, limit: 1 })))?.[0]?.server_name
  })

  return {
    dueOf: (record: WebhookRecord, entries: ReadonlyArray<JournalEntry>): ReadonlyArray<Due> =>
      entries.flatMap((entry) => {
        const event = encode(entry)
        if (event === undefined || !isFor(record, event)) return []
        return { event, payload: "payload" in entry.change ? entry.change.payload : null }
      }),
    /** Delivers the events of each server in order; a failure blocks its further ones. Returns the attempts. */
    deliver: Effect.fnUntraced(function* (
      { id, settings }: WebhookRecord,
      secrets: Secrets,
      round: Round,
      due: ReadonlyArray<Due>
    ) {
      const deliveries: Array<WebhookDelivery> = []
      const inOrder = Effect.fnUntraced(function* (events: ReadonlyArray<Due>) {
        for (const { event, payload } of events) {
          const { cursor, server_id, topic } = event
          if (round.delivered.has(cursor)) continue
          const message_id = messageId(id, cursor)
          const name = settings.format === "json" ? undefined : yield* nameOf(server_id)
          const body = bodyOf(settings.format, { event, payload, name })
          const attempt = yield* send({ ...secrets, id: message_id, body })
          deliveries.push({ message_id, cursor, server_id, topic, ...attempt })
          if (attempt.error !== undefined) {
            round.blocked.add(server_id)
            return
          }
          round.delivered.add(cursor)
        }
      })
      const byServer = Map.groupBy(due, ({ event }) => event.server_id)
      yield* Effect.forEach(byServer.values(), inOrder, { concurrency: AT_ONCE, discard: true })
      return deliveries
    })
  }
})

/** Delivers the pages of the journal, in rounds. */
const makePages = Effect.gen(function* () {
  const journal = yield* Journal
  const repo = yield* WebhookRepo
  const store = yield* Store
  const { deliver, dueOf } = yield* makeDeliveries
  const rounds = new Map<WebhookId, Round>()

  const roundOf = ({ id, position }: WebhookRecord): Round => {
    const round = rounds.get(id)
    if (round?.from === position) return round
    const begun = beginRound(position)
    rounds.set(id, begun)
    return begun
  }

  const advance = (record: WebhookRecord, progress: Omit<WebhookProgress, "from">) =>
    store.write(repo.advance(record.id, { ...progress, from: record.position }))

  /** Records a page in which a delivery has failed, or that follows such a page. Returns whether that parks the webhook. */
  const recordFailure = Effect.fnUntraced(function* (
    record: WebhookRecord,
    deliveries: ReadonlyArray<WebhookDelivery>,
    to: number
  ) {
    const now = yield* Clock.currentTimeMillis
    const failing_since = record.failing_since ?? now
    const failure = deliveries.find(({ error }) => error !== undefined)?.error ?? record.failure ?? ""
    const is_parked = now - failing_since >= PARKED_AFTER
    yield* advance(record, { to, is_parked, failing_since, failure, deliveries })
    if (is_parked) yield* Effect.logWarning(`webhook parked: deliveries have failed for 24 h: ${failure}`)
    return is_parked
  })

  /** After a failure, other servers' pages follow, unless the receiver accepts no event of several servers. */
  const deliverPage = Effect.fnUntraced(function* (
    record: WebhookRecord,
    secrets: Secrets
  ): Effect.fn.Return<"more" | "done" | "again", Unavailable> {
    const round = roundOf(record)
    const wasFailing = round.blocked.size > 0
    const { oldest } = yield* journal.bounds
    const entries = yield* Stream.runCollect(Stream.take(journal.after(round.scanned), PAGE))
    if (oldest > round.scanned + 1 && entries.length > 0) {
      yield* Effect.logWarning(
        `events ${round.scanned + 1} to ${oldest - 1} were not delivered: they are no longer retained`
      )
    }
    const endRound = () => {
      rounds.set(record.id, beginRound(round.from, round.delivered))
      return "again" as const
    }
    const last = entries.at(-1)?.cursor
    if (last === undefined) return wasFailing ? endRound() : "done"
    const isLast = entries.length < PAGE
    const due = dueOf(record, entries).filter(({ event }) => !round.blocked.has(event.server_id))
    const isShort = last - record.position < STORE_EVERY
    if (due.length === 0 && (wasFailing || (record.failing_since === null && isShort))) {
      round.scanned = last
      if (wasFailing) return isLast || last - round.from >= MOST_AHEAD ? endRound() : "more"
      return isLast ? "done" : "more"
    }
    const deliveries = yield* deliver(record, secrets, round, due)
    if (round.blocked.size === 0) {
      const succeeded = { is_parked: false, failing_since: null, failure: null }
      yield* advance(record, { ...succeeded, to: last, deliveries })
      rounds.set(record.id, beginRound(last, round.delivered))
      return isLast ? "done" : "more"
    }
    const undelivered = due.find(({ event }) => !round.delivered.has(event.cursor))
    const to = wasFailing
      ? record.position
      : Math.max(record.position, (undelivered?.event.cursor ?? last + 1) - 1)
    if (yield* recordFailure(record, deliveries, to)) return "done"
    const accepts = round.accepts || deliveries.some(({ error }) => error === undefined)
    rounds.set(record.id, { ...round, from: to, scanned: last, accepts })
    const isDown = !accepts && round.blocked.size >= AT_ONCE
    if (!isDown && !isLast && last - to < MOST_AHEAD) return "more"
    rounds.set(record.id, beginRound(to, round.delivered))
    return "again"
  })

  return {
    deliverPage,
    park: (record: WebhookRecord, failure: string) =>
      Effect.andThen(
        advance(record, { ...record, to: record.position, is_parked: true, failure, deliveries: [] }),
        Effect.logWarning(`webhook parked: ${failure}`)
      ),
    rounds
  }
})

/**
 * Delivers events to webhooks, on the leader (spec 7): from the journal, at least once, in order for each server. The
 * next leader continues at the cursor of the record.
 */
export const WebhookDeliverer = Layer.effectDiscard(
  Effect.gen(function* () {
    const journal = yield* Journal
    const leadership = yield* Leadership
    const repo = yield* WebhookRepo
    const seal = yield* WebhookSeal
    const store = yield* Store
    const { deliverPage, park, rounds } = yield* makePages
    /** Webhooks that wait for events, and those that wait for their next attempt. */
    const known = new Map<WebhookId, "waiting" | "retrying">()

    const step = Effect.fnUntraced(function* (id: WebhookId): Effect.fn.Return<StepOutcome, Unavailable> {
      while (true) {
        const record = yield* store.read(repo.find(id))
        if (record === undefined || record.is_parked) {
          known.delete(id)
          rounds.delete(id)
          return "done"
        }
        known.set(id, "waiting")
        const secrets = openSecrets(seal, record)
        if (secrets === undefined) {
          yield* park(
            record,
            "its secret was sealed with another secret.key: delete the webhook and create it again"
          )
          return "done"
        }
        const outcome = yield* deliverPage(record, secrets)
        if (outcome === "done") return "done"
        if (outcome === "again") {
          known.set(id, "retrying")
          return "again"
        }
      }
    })

    const queue = yield* makeWorkQueue({
      name: "webhook",
      fields: (webhook_id: WebhookId) => ({ webhook_id }),
      step,
      backoff: backoff({ first: "5 seconds", longest: "1 hour" }),
      resume: Effect.gen(function* () {
        rounds.clear()
        known.clear()
        return (yield* store.read(repo.all)).flatMap(({ id, is_parked }) => (is_parked ? [] : [id]))
      }),
      leadership
    })

    yield* journal.follow("publish", (entries) =>
      Effect.sync(() => {
        let isDue = false
        for (const { change } of entries) {
          if (change.topic === "webhook:changed") queue.add(change.webhook_id)
          else if (isPublic(change) || isOptInChange(change)) isDue = true
        }
        if (!isDue) return
        for (const [id, state] of known) if (state === "waiting") queue.add(id)
      })
    )
  })
)
