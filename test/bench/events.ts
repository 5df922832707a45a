/**
 * Fan-out of events to 500 SSE subscribers, against a bare server that writes each event to each response in a loop.
 * The same deletions cause both, and the time is from the first deletion to the last byte at the last subscriber.
 */

import { type ClientRequest, request } from "node:http"
import { join } from "node:path"
import { Deferred, Effect, type Scope } from "effect"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, cpuMicros, interleaved, median, print, startBare } from "./harness.ts"
import { load } from "./load.ts"
import { seedServers } from "./seed.ts"

const SUBSCRIBERS = 500
const EVENTS = 200
const ROUNDS = 5
const CONNECTIONS = 32

const PING = ": ping\n\n"
const connected = ": connected\n\n"
const eventOf = (server_id: string) =>
  `event: deleted\ndata: ${JSON.stringify({ Topic: "deleted", Data: { server_id, payload: null } })}\n\n`

/**
 * Opens the subscriptions; `subscribed` resolves once each has its first comment, `done` once each has `bytes` more.
 */
const subscribe = (url: string, key: string, bytes: number) =>
  Effect.gen(function* () {
    const subscribed = yield* Deferred.make<void, BenchFailed>()
    const done = yield* Deferred.make<void, BenchFailed>()
    let waiting = SUBSCRIBERS
    let unfinished = SUBSCRIBERS
    const fail = (message: string) => {
      const failure = Effect.fail(new BenchFailed({ message }))
      Deferred.doneUnsafe(subscribed, failure)
      Deferred.doneUnsafe(done, failure)
    }
    const open = (): ClientRequest => {
      let received = 0
      const client = request(`${url}/api/events`, {
        agent: false,
        headers: { authorization: `Bearer ${key}` }
      })
      client.once("error", (error) => fail(`a subscription failed: ${error.message}`))
      client.once("response", (response) => {
        if (response.statusCode !== 200) return fail(`a subscription was answered ${response.statusCode}`)
        response.once("end", () => fail("a subscription was ended by the server"))
        response.on("data", (chunk: Buffer) => {
          const before = received
          // A comment may come at any time.
          received += chunk.length - (chunk.includes(PING) ? PING.length : 0)
          if (before < connected.length && received >= connected.length && --waiting === 0) {
            Deferred.doneUnsafe(subscribed, Effect.void)
          }
          const all = connected.length + bytes
          if (received > all) fail(`a subscriber received ${received - all} bytes too many`)
          if (before < all && received === all && --unfinished === 0) Deferred.doneUnsafe(done, Effect.void)
        })
      })
      client.end()
      return client
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => Array.from({ length: SUBSCRIBERS }, open)),
      (clients) =>
        Effect.sync(() => {
          for (const client of clients) client.destroy()
        })
    )
    yield* Deferred.await(subscribed)
    return Deferred.await(done)
  })

export const events: Effect.Effect<void, { readonly message: string }> = Effect.gen(function* () {
  const dataDir = join(yield* temporaryFolder, "data")
  const ids = yield* seedServers(dataDir, EVENTS * (ROUNDS + 1), { known: false })
  const service = yield* startService({
    dataDir,
    env: { MUSTER_EMBEDDED_NODE: "false", MUSTER_STREAMS_PER_KEY: String(SUBSCRIBERS) }
  })
  const bare = yield* startBare("events")

  interface Delivered {
    readonly perSecond: number
    /** For each second of CPU time of the server. */
    readonly perCpuSecond: number
  }

  /** Deletes the next servers; returns the delivered events. */
  const round = ({ pid, url }: { readonly pid: number; readonly url: string }) => {
    let next = 0
    return Effect.suspend(() => {
      const batch = ids.slice(next, next + EVENTS)
      next += EVENTS
      return deliver(url, pid, batch)
    }).pipe(Effect.scoped)
  }

  const deliver = Effect.fnUntraced(function* (
    url: string,
    pid: number,
    batch: ReadonlyArray<string>
  ): Effect.fn.Return<Delivered, BenchFailed, Scope.Scope> {
    const bytes = batch.reduce((sum, id) => sum + eventOf(id).length, 0)
    const done = yield* subscribe(url, service.key, bytes)
    const began = performance.now()
    const before = yield* cpuMicros(pid)
    yield* load({
      url,
      key: service.key,
      connections: CONNECTIONS,
      requests: EVENTS,
      status: 200,
      request: (n) => ({ method: "DELETE", path: `/api/servers/${batch[n]}?force=true` })
    })
    yield* Effect.timeoutOrElse(done, {
      duration: "30 seconds",
      orElse: () => Effect.fail(new BenchFailed({ message: "not all events arrived within 30 s" }))
    })
    const delivered = EVENTS * SUBSCRIBERS
    return {
      perSecond: (delivered * 1e3) / (performance.now() - began),
      perCpuSecond: (delivered * 1e6) / ((yield* cpuMicros(pid)) - before)
    }
  })

  const subject = round({ url: service.url, pid: service.process.pid ?? 0 })
  const baseline = round(bare)
  yield* interleaved(1, subject, baseline)
  const { subjects, baselines } = yield* interleaved(ROUNDS, subject, baseline)
  const figure = (unit: string, pick: (delivered: Delivered) => number) =>
    print({
      bench: "events",
      figure: `deletions delivered to ${SUBSCRIBERS} subscribers`,
      value: median(subjects.map(pick)),
      unit,
      baseline: "bare node:http, one write for each event and response",
      baseline_value: median(baselines.map(pick))
    })
  yield* figure("events/s", ({ perSecond }) => perSecond)
  yield* figure("events for each second of CPU time", ({ perCpuSecond }) => perCpuSecond)
}).pipe(Effect.scoped)
