/** Clients that create, delete and read during a fault, and the responses that they get. */
import { assert } from "@effect/vitest"
import { Effect, Fiber, Option, Ref, Schedule } from "effect"
import { isPublic, type JournalEntry } from "../../../src/contract/domain/Journal.ts"
import type { Balancer, Outcome, Subscriber } from "../../support/balancer.ts"
import { eventually } from "../../support/eventually.ts"
import { ServiceFailed } from "../../support/Service.ts"

/** Duration of an outage, in seconds. */
export const OUTAGE = Number(process.env.MUSTER_TEST_OUTAGE ?? 5)

const WRITERS = 4
const READERS = 4
/** Pause between a response and the client's next request. */
const PACE = Schedule.spaced("20 millis")
/** Longer than any timeout of the service: a request that is still open hangs. */
const HANGS = "40 seconds"

export interface Answered extends Outcome {
  readonly what: "create" | "delete" | "read"
  /** The id of the server, if the request has one. */
  readonly id: string | undefined
  /** Milliseconds on the monotonic clock of the process. */
  readonly began: number
  readonly took: number
}

export interface Load {
  readonly answers: () => ReadonlyArray<Answered>
  /** Waits until this many further creations are acknowledged. */
  readonly creations: (count: number) => Effect.Effect<unknown, ServiceFailed>
  /** Lets every client finish its request. */
  readonly end: Effect.Effect<ReadonlyArray<Answered>, ServiceFailed>
}

const reads = ["/api/servers?ids_only=true", "/api/nodes", "/api/blueprints", "/api/servers?include=status"]

export const startLoad = Effect.fnUntraced(function* (balancer: Balancer, blueprint: string) {
  const answers: Array<Answered> = []
  const over = yield* Ref.make(false)

  const noted = Effect.fnUntraced(function* (
    what: Answered["what"],
    sent: Effect.Effect<Outcome>,
    given?: string
  ) {
    const began = performance.now()
    const outcome = yield* Effect.timeoutOption(sent, HANGS)
    const took = performance.now() - began
    const hangs = { url: "", status: undefined, text: "", error: "hangs" }
    const { status, text, ...rest } = Option.getOrElse(outcome, () => hangs)
    const id = what === "create" && status === 202 ? String(JSON.parse(text).id) : given
    answers.push({ ...rest, status, text, what, id, began, took })
    return status === 202 ? id : undefined
  })

  const writer = Effect.gen(function* () {
    const send = yield* balancer.client
    let turn = 0
    yield* Effect.gen(function* () {
      const id = yield* noted("create", send("POST", "/api/servers", { blueprint_id: blueprint }))
      turn += 1
      if (id !== undefined && turn % 3 === 0) {
        yield* noted("delete", send("DELETE", `/api/servers/${id}`), id)
      }
      return yield* Ref.get(over)
    }).pipe(Effect.repeat({ schedule: PACE, until: (ended) => ended }))
  }).pipe(Effect.scoped)

  const reader = Effect.fnUntraced(function* (first: number) {
    const send = yield* balancer.client
    let turn = first
    yield* Effect.gen(function* () {
      turn += 1
      yield* noted("read", send("GET", reads[turn % reads.length] ?? "/api/servers"))
      return yield* Ref.get(over)
    }).pipe(Effect.repeat({ schedule: PACE, until: (ended) => ended }))
  }, Effect.scoped)

  const clients = yield* Effect.forkScoped(
    Effect.all(
      [
        ...Array.from({ length: WRITERS }, () => writer),
        ...Array.from({ length: READERS }, (_, first) => reader(first))
      ],
      { concurrency: "unbounded", discard: true }
    )
  )
  const created = () => answers.filter(({ id, what }) => what === "create" && id !== undefined).length
  return {
    answers: () => answers,
    creations: (count) =>
      Effect.suspend(() => {
        const wanted = created() + count
        return eventually(Effect.sync(created), (now) => now >= wanted, "60 seconds")
      }),
    end: Effect.gen(function* () {
      yield* Ref.set(over, true)
      yield* Fiber.join(clients)
      return answers
    }).pipe(
      Effect.timeoutOrElse({
        duration: "60 seconds",
        orElse: () => Effect.fail(new ServiceFailed({ message: "the load does not end" }))
      })
    )
  } satisfies Load
})

const short = ({ error, id, status, text, url, what }: Answered) =>
  `${what} ${id ?? ""} at ${url}: ${status ?? error} ${text}`

/**
 * Asserts that every request got a response: reads 200, writes success or an allowed refusal with the error body and a
 * reason.
 *
 * @param reasons by status
 */
export const assertAnswers = (
  answers: ReadonlyArray<Answered>,
  reasons: Readonly<Record<number, string>> = { 503: "the database " }
) => {
  const right = { create: 202, delete: 200, read: 200 }
  const wrong = answers.filter(({ status, text, what }) => {
    if (status === right[what]) return false
    const reason = status === undefined ? undefined : reasons[status]
    if (what === "read" || reason === undefined) return true
    const body = JSON.parse(text)
    const fields = ["code", "detail", "hint", "request_id", "status"]
    return (
      JSON.stringify(Object.keys(body).sort()) !== JSON.stringify(fields) ||
      body.code !== String(status) ||
      !body.detail.startsWith(reason)
    )
  })
  assert.deepStrictEqual(wrong.map(short), [])
}

/** Servers whose deletion was refused. */
export const refusedDeletions = (answers: ReadonlyArray<Answered>): ReadonlyArray<string> =>
  answers.flatMap(({ id, status, what }) =>
    what === "delete" && status !== 200 && id !== undefined ? [id] : []
  )

/**
 * Asserts that every acknowledged change is there, and no other: a refused creation leaves nothing, unless the refusal
 * says that the outcome is unknown.
 *
 * @param listed the servers created under this load, after refused deletions were repeated
 */
export const assertNothingLost = (answers: ReadonlyArray<Answered>, listed: ReadonlyArray<string>) => {
  const idsOf = (what: Answered["what"]) =>
    answers.flatMap((answer) => (answer.what === what && answer.id !== undefined ? [answer.id] : []))
  const deleted = new Set(idsOf("delete"))
  const expected = idsOf("create").filter((id) => !deleted.has(id))
  const there = new Set(listed)
  const lost = expected.filter((id) => !there.has(id))
  assert.deepStrictEqual(lost, [], "acknowledged and not there")
  const undead = [...deleted].filter((id) => there.has(id))
  assert.deepStrictEqual(undead, [], "deleted and still there")
  const known = new Set(expected)
  const extra = listed.filter((id) => !known.has(id))
  const unknown = answers.filter(
    ({ text, what }) => what === "create" && text.includes("It is unknown whether")
  )
  assert.isAtMost(extra.length, unknown.length, `created without an answer to a caller: ${extra}`)
}

/** Asserts that each subscriber received all public journal entries, once and in order. */
export const assertSameEvents = Effect.fnUntraced(function* (
  journal: ReadonlyArray<JournalEntry>,
  subscribers: ReadonlyArray<Subscriber>
) {
  const cursors = journal.filter(({ change }) => isPublic(change)).map(({ cursor }) => cursor)
  for (const { received } of subscribers) {
    yield* eventually(
      Effect.sync(() => received().at(-1)?.cursor ?? 0),
      (cursor) => cursor >= (cursors.at(-1) ?? 0)
    )
    assert.deepStrictEqual(
      received().map(({ cursor }) => cursor),
      cursors
    )
  }
})

/** The number of responses, and their durations. */
export const figures = (answers: ReadonlyArray<Answered>) => {
  const sorted = answers.map(({ took }) => took).toSorted((one, other) => one - other)
  const at = (part: number) => Math.round(sorted[Math.floor((sorted.length - 1) * part)] ?? 0)
  const slow = sorted.filter((took) => took > 1000).length
  return `${sorted.length}, half within ${at(0.5)} ms, all within ${at(1)} ms, ${slow} in more than 1 s`
}
