import { Data, Duration, Effect } from "effect"
import { ServerId } from "../contract/domain/Id.ts"
import { hasEnded, type Operation } from "../contract/domain/Operation.ts"
import type { Server } from "../contract/domain/Server.ts"
import { backoff, makePause } from "../shared/work/backoff.ts"
import { elapsedMillis } from "../shared/work/elapsed.ts"
import type { Calls } from "./calls.ts"
import { isTransient } from "./responses.ts"

/** The pauses after requests that end without a response. */
const pauses = backoff({ first: "250 millis", longest: "5 seconds" })

/** A state to wait for (spec 3.6). */
export type WaitState = "running" | "offline" | "installed"

export interface WaitOptions {
  /** The longest time to wait, in whole seconds; default 5 minutes. It may exceed the 60 s of one request. */
  readonly timeout?: Duration.Input
  /** Further fields of the server that is returned; `status` and `install` are always there. */
  readonly include?: ReadonlyArray<string>
}

/** The server did not reach the state in time, and still can. `last`: the server as last seen. */
export class WaitTimedOut extends Data.TaggedError("WaitTimedOut")<{
  readonly server_id: ServerId
  readonly state: WaitState
  readonly last: Server | undefined
}> {
  override get message(): string {
    const status = this.last?.status
    const now = status === undefined ? "the service does not respond" : `it is ${status}`
    return `server is not ${this.state} in time: ${this.server_id}; ${now}`
  }
}

/** Seconds of one request (spec 3.6). */
const LONGEST = 60

const GRACE = Duration.seconds(5)

/**
 * Waits until a server is in a state, and returns the server. Requests that end without a response are repeated.
 * @error Conflict     the server cannot reach the state; `detail` has the reason
 * @error NotFound     the server does not exist, or was deleted
 * @error WaitTimedOut the time is over
 */
export const waitUntil = (calls: Calls) =>
  Effect.fn("MusterClient.waitUntil")(function* (
    server: ServerId | string,
    state: WaitState,
    options: WaitOptions = {}
  ) {
    const server_id = ServerId.make(server)
    const timeout = Duration.toMillis(options.timeout ?? "5 minutes")
    const include = [...new Set(["status", "install", ...(options.include ?? [])])].join(",")
    const end = (yield* elapsedMillis) + timeout
    let last: Server | undefined
    let isBroken = true
    const pause = yield* makePause(pauses)

    const timedOut = Effect.suspend(() => Effect.fail(new WaitTimedOut({ server_id, state, last })))
    const once = Effect.gen(function* () {
      const seconds = Math.ceil((end - (yield* elapsedMillis)) / 1000)
      // After a break, the state is read once more.
      if (seconds <= 0 && !isBroken) return yield* timedOut
      const [found, response] = yield* calls.servers.get({
        params: { server: server_id },
        query: { include, wait: state, timeout: String(Math.min(LONGEST, Math.max(1, seconds))) },
        responseMode: "decoded-and-response"
      })
      if (response.headers["x-muster-timed-out"] !== "true") return found
      last = found
      isBroken = false
      return undefined
    })
    const repeated = Effect.gen(function* () {
      while (true) {
        const found = yield* Effect.catchIf(once, isTransient, () => {
          isBroken = true
          return Effect.as(pause, undefined)
        })
        if (found !== undefined) return found
      }
    })
    return yield* Effect.timeoutOrElse(repeated, {
      duration: Duration.sum(Duration.millis(timeout), GRACE),
      orElse: () => timedOut
    })
  })

export interface OperationOptions {
  /** Called about once a second with the operation as it is, and with its end. */
  readonly onProgress?: (operation: Operation) => void
}

/**
 * Waits until an operation has ended, and returns it: `done`, `failed` or `cancelled`. Requests that end without a
 * response are repeated. The end of the caller does not end the operation.
 * @error NotFound there is no such operation: 24 h after its end it is removed
 */
export const operationEnd = (calls: Calls) =>
  Effect.fn("MusterClient.operationEnd")(function* (
    begun: Operation | Operation["id"],
    { onProgress = () => {} }: OperationOptions = {}
  ) {
    const operation = typeof begun === "string" ? begun : begun.id
    const pause = yield* makePause(pauses)
    const next = calls.operations
      .get({ params: { operation }, headers: { prefer: "wait=1" } })
      .pipe(Effect.catchIf(isTransient, () => Effect.as(pause, undefined)))
    let now = typeof begun === "string" ? undefined : begun
    while (true) {
      if (now !== undefined) onProgress(now)
      if (now !== undefined && hasEnded(now.state)) return now
      now = yield* next
    }
  })
