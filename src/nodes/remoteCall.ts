/** How one call to a daemon over HTTP is made, and what its failures are. */
import { Cause, Duration, Effect, Exit, Schedule, type Schema } from "effect"
import type { HttpClientError } from "effect/http"
import { CircuitBreaker } from "effect/persistence"
import { type DaemonError, DaemonRefused, NodeUnreachable } from "../api/Daemon.ts"
import type {
  BodyTooLarge,
  Conflict,
  InternalError,
  InvalidRequest,
  NotFound,
  TimedOut,
  Unauthorized,
  Unavailable,
  UpgradeRequired
} from "../domain/errors.ts"

/** Whatever the derived client fails with. */
export type CallFailure =
  | BodyTooLarge
  | Conflict
  | InternalError
  | InvalidRequest
  | NotFound
  | TimedOut
  | Unauthorized
  | Unavailable
  | UpgradeRequired
  | HttpClientError.HttpClientError
  | Schema.SchemaError

/** The daemon does not know the token (yet): nothing was done, and it may know it in a moment. */
export interface TokenUnknown {
  readonly _tag: "TokenUnknown"
}

const notUnderstood = (detail: string) =>
  new DaemonRefused({
    status: 500,
    detail: `its answer is not understood: ${detail}`,
    hint: "Run the same version of Muster on the node as here, and look at what stands between."
  })

/** A daemon's failure: what it refused with status, detail and hint as it said it. */
export const toDaemonError = (node_id: string, failure: CallFailure): DaemonError | TokenUnknown => {
  switch (failure._tag) {
    case "NotFound":
      return new DaemonRefused({ status: 404, detail: failure.detail, hint: failure.hint })
    case "Conflict":
      return new DaemonRefused({ status: 409, detail: failure.detail, hint: failure.hint })
    case "InvalidRequest":
    case "BodyTooLarge":
      return new DaemonRefused({ status: 422, detail: failure.detail, hint: failure.hint })
    case "InternalError":
    case "UpgradeRequired":
      return new DaemonRefused({ status: 500, detail: failure.detail, hint: failure.hint })
    case "Unauthorized":
      return { _tag: "TokenUnknown" }
    case "TimedOut":
    case "Unavailable":
      return new NodeUnreachable({ node_id })
    case "SchemaError":
      return notUnderstood("it does not have the form that was agreed on")
    case "HttpClientError": {
      const status = failure.response?.status
      // No answer, one that broke off, or one of a proxy that did not get any.
      const brokeOff = status !== undefined && status < 300 && failure.reason._tag === "DecodeError"
      return status === undefined || status >= 502 || brokeOff
        ? new NodeUnreachable({ node_id })
        : notUnderstood(`status ${status}`)
    }
  }
}

export interface CallOptions {
  readonly node_id: string
  /** Breaks with this key's calls. */
  readonly key: string
  /** Whether it may be repeated when no answer came. */
  readonly repeatable: boolean
  readonly deadline: Duration.Duration
  readonly breaker: CircuitBreaker.CircuitBreaker
  /** The daemon does not know the token, and has not learned it in time either. */
  readonly tokenRefused: Effect.Effect<void>
}

/** Between repetitions of a call that the daemon did not carry out because it does not know the token yet. */
const TOKEN_PAUSE = Duration.millis(100)
const TOKEN_TRIES = 20
const REPETITIONS = 2

/** An unreachable node counts against it; a refusal is a sign of life. */
const classify = <A>(exit: Exit.Exit<A, DaemonError | TokenUnknown>) => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success
  const error = Cause.findErrorOption(exit.cause)
  if (error._tag === "None") return CircuitBreaker.ignored
  return error.value._tag === "NodeUnreachable" ? CircuitBreaker.failure() : CircuitBreaker.success
}

/**
 * One call with everything around it: repetitions where they are safe, the deadline over all of them, and the
 * circuit breaker.
 */
export const remoteCall = <A>(
  attempt: Effect.Effect<A, DaemonError | TokenUnknown>,
  options: CallOptions
): Effect.Effect<A, DaemonError> => {
  const { breaker, deadline, key, node_id, repeatable, tokenRefused } = options
  const unreachable = Effect.fail(new NodeUnreachable({ node_id }))
  return attempt.pipe(
    Effect.retry({
      schedule: Schedule.exponential("100 millis"),
      times: repeatable ? REPETITIONS : 0,
      while: (error) => error._tag === "NodeUnreachable"
    }),
    Effect.retry({
      schedule: Schedule.spaced(TOKEN_PAUSE),
      times: TOKEN_TRIES,
      while: (error) => error._tag === "TokenUnknown"
    }),
    Effect.tapErrorTag("TokenUnknown", () => tokenRefused),
    Effect.timeoutOrElse({ duration: deadline, orElse: () => unreachable }),
    breaker.execute({ key, classify }),
    Effect.catchTags({ TokenUnknown: () => unreachable, CircuitBreakerError: () => unreachable })
  )
}
