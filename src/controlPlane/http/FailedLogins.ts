import { Context, Effect, Layer, Option, Schedule } from "effect"
import type { HttpServerRequest } from "effect/http"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { countedAddress } from "./node/clients.ts"
import { pathOf } from "./requestUrl.ts"

/** Failures per address and minute. */
export const FAILURES_PER_MINUTE = 20
const MINUTE = 60_000
/** Lines per report; further addresses share one more line. */
const LINES = 10
/** The addresses beyond the bound of the table count as one. */
const OTHERS = "other addresses"

interface Failures {
  endsAt: number
  count: number
  /** Failures that are not logged yet, and the first of them. */
  unreported: number
  first: string
  reportAt: number
}

/** A login over SFTP. `what` names it in the log. */
export interface Login {
  readonly address: string
  readonly what: string
}

type Attempt = HttpServerRequest.HttpServerRequest | Login

const addressOf = (attempt: Attempt) =>
  countedAddress("what" in attempt ? attempt.address : Option.getOrElse(attempt.remoteAddress, () => ""))

/** A copy: a slice would keep the whole URL in memory. */
const firstOf = (attempt: Attempt) =>
  "what" in attempt ? attempt.what : Buffer.from(`${attempt.method} ${pathOf(attempt.url)}`).toString()

const times = (count: number) => (count === 1 ? "1 failed authentication" : `${count} failed authentications`)

const make = Effect.fnUntraced(function* (most: number, tolerated: number) {
  const table = new Map<string, Failures>()
  const keyOf = (address: string) => (table.has(address) || table.size < most ? address : OTHERS)

  const count = (attempt: Attempt, now: number) => {
    const key = keyOf(addressOf(attempt))
    const failures = table.get(key) ?? { endsAt: 0, count: 0, unreported: 0, first: "", reportAt: 0 }
    table.set(key, failures)
    if (now >= failures.endsAt) {
      failures.endsAt = now + MINUTE
      failures.count = 0
    }
    if (failures.unreported === 0) failures.first = firstOf(attempt)
    failures.count += 1
    failures.unreported += 1
    return failures.count > FAILURES_PER_MINUTE ? failures.endsAt - now : undefined
  }

  const report = Effect.fnUntraced(function* (due: ReadonlyArray<readonly [string, Failures]>, now: number) {
    const sorted = due.toSorted(([, one], [, other]) => other.unreported - one.unreported)
    const rest = sorted.slice(LINES)
    for (const [address, { first, unreported }] of sorted.slice(0, LINES)) {
      yield* Effect.logWarning(`${times(unreported)} from ${address}, the first: ${first}`).pipe(
        Effect.annotateLogs({ address, failures: unreported })
      )
    }
    if (rest.length > 0) {
      const failures = rest.reduce((sum, [, { unreported }]) => sum + unreported, 0)
      yield* Effect.logWarning(`${times(failures)} from ${rest.length} more addresses`)
    }
    for (const [, failures] of sorted) {
      failures.unreported = 0
      failures.reportAt = now + MINUTE
    }
  })

  const isLoud = ([, { unreported }]: readonly [string, Failures]) => unreported > tolerated

  const look = Effect.gen(function* () {
    const now = yield* elapsedMillis
    yield* report(
      [...table].filter((entry) => isLoud(entry) && now >= entry[1].reportAt),
      now
    )
    for (const [key, { endsAt, reportAt, unreported }] of table) {
      if (now >= endsAt && now >= reportAt && unreported <= tolerated) table.delete(key)
    }
  })

  yield* Effect.addFinalizer(() =>
    Effect.flatMap(elapsedMillis, (now) => report([...table].filter(isLoud), now))
  )
  yield* look.pipe(Effect.delay("5 seconds"), Effect.repeat(Schedule.forever), Effect.forkScoped)

  return {
    /** Whether the next failure of the address is over the limit. */
    isOver: (attempt: Attempt) =>
      Effect.map(elapsedMillis, (now) => {
        const failures = table.get(keyOf(addressOf(attempt)))
        return failures !== undefined && now < failures.endsAt && failures.count >= FAILURES_PER_MINUTE
      }),
    /** Counts a failure. Returns the milliseconds until the limit is reset if this failure is over the limit. */
    count: (attempt: Attempt) => Effect.map(elapsedMillis, (now) => count(attempt, now)),
    size: Effect.sync(() => table.size)
  }
})

/**
 * Counts failed authentications by client address and logs one warning per minute and address (spec 1.6). The table
 * evicts nothing: addresses beyond its bound count as one.
 */
export class FailedLogins extends Context.Service<FailedLogins, Effect.Success<ReturnType<typeof make>>>()(
  "muster/http/FailedLogins"
) {
  /** `addresses` bounds the table (10,000); `tolerated` failures per minute and address are not logged (0). */
  static readonly layer = (options: { readonly addresses?: number; readonly tolerated?: number } = {}) =>
    Layer.effect(FailedLogins, make(options.addresses ?? 10_000, options.tolerated ?? 0))
}
