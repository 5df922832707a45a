/** One call to a daemon over HTTP, and its failures. */

import { Cause, Duration, Effect, Exit, Result, Schedule, type Schema } from "effect"
import type { HttpClientError } from "effect/http"
import type { HttpApiMiddleware } from "effect/http-api"
import { CircuitBreaker } from "effect/persistence"
import type { Failures } from "../../../contract/api/middleware.ts"
import { whyNoAnswer } from "../../../contract/api/noAnswer.ts"
import type { UpgradeRequired } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { CreationsAnswer, DaemonServer } from "../../../contract/domain/NodeMessages.ts"
import { cleanText } from "../../../contract/domain/NodeText.ts"
import { type DaemonError, DaemonRefused, NodeUnreachable } from "../../../contract/nodeApi/Daemon.ts"
import type { DaemonAuthorization } from "../../../contract/nodeApi/NodeFilesApi.ts"
import { ADDRESS_REFUSED } from "../../../shared/net/addressPolicy.ts"

export type CallFailure =
  | HttpApiMiddleware.Error<DaemonAuthorization | Failures>
  | UpgradeRequired
  | HttpClientError.HttpClientError
  | Schema.SchemaError

/** The daemon does not know the token yet. It did nothing, and may know the token soon. */
export interface TokenUnknown {
  readonly _tag: "TokenUnknown"
}

/** Makes a daemon's refusal. Its text is shown and logged, so it is cleaned. */
export const refusal = (
  status: DaemonRefused["status"],
  { detail, hint }: { readonly detail: string; readonly hint: string }
) => new DaemonRefused({ status, detail: cleanText(detail), hint: cleanText(hint) })

const tooLarge = new DaemonRefused({
  status: 500,
  detail: "the response of the node is too large",
  hint: "Read the log of the node. For logs, request fewer lines at a time."
})

/** Whether the body was too long, for which the library has no class. */
const isTooLarge = ({ reason }: HttpClientError.HttpClientError): boolean =>
  reason._tag === "DecodeError" &&
  reason.cause instanceof Error &&
  "maxBytes" in reason.cause &&
  typeof reason.cause.maxBytes === "number"

const notUnderstood = (detail: string) =>
  new DaemonRefused({
    status: 500,
    detail: `its response is invalid: ${detail}`,
    hint: "Run the same version of Muster on the node as here, and check the proxies between them."
  })

const CHECK_ADDRESS = "Check that the daemon runs, MUSTER_NODE_URL of the node, and the firewall"

/** The remedy if a daemon may require another certificate of this service. */
const CHECK_CERTIFICATE =
  "If the node has MUSTER_NODE_CLIENT_CA, check MUSTER_NODE_CLIENT_CERT of the service against it"

export const TOKEN_REFUSED =
  "another daemon responds there: it refuses the token of the node's last registration. Set MUSTER_NODE_URL of the node to its own address"

const ofTransport = (failure: HttpClientError.HttpClientError): string => {
  const { code, kind, message } = whyNoAnswer(failure)
  if (code === ADDRESS_REFUSED) {
    return `${message}. Set MUSTER_NODE_URL of the node to another address, or list its network in MUSTER_NODE_NETWORKS of the service`
  }
  switch (kind) {
    case "tls":
      return `TLS fails (${code}: ${message}). ${code.includes("ALERT") ? CHECK_CERTIFICATE : "Check the scheme of MUSTER_NODE_URL of the node, and MUSTER_NODE_CA of the service"}`
    case "protocol":
      return "the response is not HTTP. Check MUSTER_NODE_URL of the node: its port, and http or https"
    case "none": {
      // A daemon that does not accept a certificate ends the connection without a response.
      const isCut = code === "ECONNRESET" && failure.request.url.startsWith("https:")
      return `${code === "" ? "no response" : code}. ${CHECK_ADDRESS}${isCut ? `. ${CHECK_CERTIFICATE}` : ""}`
    }
  }
}

/** Maps a failure of a daemon. A refusal keeps its status, detail and hint. */
export const toDaemonError = (node_id: NodeId, failure: CallFailure): DaemonError | TokenUnknown => {
  switch (failure._tag) {
    case "NotFound":
      return refusal(404, failure)
    case "Conflict":
      return refusal(409, failure)
    case "InvalidRequest":
    case "BodyTooLarge":
      return refusal(422, failure)
    case "InternalError":
    case "UpgradeRequired":
      return refusal(500, failure)
    case "Unauthorized":
      return { _tag: "TokenUnknown" }
    case "TimedOut":
    case "Unavailable":
      return new NodeUnreachable({ node_id, reason: cleanText(`${failure.detail} (${failure.code})`) })
    case "SchemaError":
      return notUnderstood("it does not have the form of the contract")
    case "HttpClientError": {
      const status = failure.response?.status
      // No response, an interrupted one, or one of a proxy that got none.
      const brokeOff = status !== undefined && status < 300 && failure.reason._tag === "DecodeError"
      if (status === undefined) {
        // A certificate has names that the node chooses.
        return new NodeUnreachable({ node_id, reason: cleanText(ofTransport(failure)) })
      }
      if (isTooLarge(failure)) return tooLarge
      if (status < 502 && !brokeOff) return notUnderstood(`status ${status}`)
      const what = brokeOff ? "its response is interrupted" : `a proxy responds with ${status}`
      return new NodeUnreachable({ node_id, reason: `${what}. ${CHECK_ADDRESS}` })
    }
  }
}

/** Returns the outcome of one of several creations as if called alone. */
export const creationOutcome = (
  node_id: NodeId,
  id: ServerId,
  outcome: CreationsAnswer["outcomes"][number] | undefined
): Result.Result<DaemonServer, DaemonError> => {
  if (outcome === undefined) return Result.fail(notUnderstood("it lacks a server"))
  if ("server" in outcome) {
    return outcome.server.id === id
      ? Result.succeed(outcome.server)
      : Result.fail(notUnderstood("it has another server"))
  }
  const { detail, hint, status } = outcome
  return Result.fail(
    status === 503
      ? new NodeUnreachable({ node_id, reason: cleanText(`${detail} (${status})`) })
      : refusal(status, { detail, hint })
  )
}

export interface CallOptions {
  readonly node_id: NodeId
  readonly key: string
  /** Whether a call without a response may be repeated. */
  readonly repeatable: boolean
  readonly deadline: Duration.Duration
  readonly breaker: CircuitBreaker.CircuitBreaker
  readonly onAnswered: Effect.Effect<void>
  /** Runs if the daemon cannot be reached, or does not get the token in time. */
  readonly onUnreachable: Effect.Effect<void>
}

/**
 * Pauses between calls while the daemon does not know the token yet, 2 s in all. They start short, as a registering
 * daemon is called at once.
 */
const TOKEN_PAUSE = Schedule.min([Schedule.exponential("10 millis"), Schedule.spaced("100 millis")])
const TOKEN_TRIES = 22
const REPETITIONS = 2

/** An unreachable node is a failure; a refusal is a success, because the node has responded. */
const classify = <A>(exit: Exit.Exit<A, DaemonError | TokenUnknown>) => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success
  const error = Cause.findErrorOption(exit.cause)
  if (error._tag === "None") return CircuitBreaker.ignored
  return error.value._tag === "NodeUnreachable" ? CircuitBreaker.failure() : CircuitBreaker.success
}

/** Makes one call with the circuit breaker, a deadline in all, and repetitions if they are safe. */
export const remoteCall = <A>(
  attempt: Effect.Effect<A, DaemonError | TokenUnknown>,
  options: CallOptions
): Effect.Effect<A, DaemonError> => {
  const { breaker, deadline, key, node_id, onAnswered, onUnreachable, repeatable } = options
  const unreachable = (reason: string) => Effect.fail(new NodeUnreachable({ node_id, reason }))
  const late = `no response within ${Duration.toSeconds(deadline)} s. ${CHECK_ADDRESS}`
  return attempt.pipe(
    Effect.retry({
      schedule: Schedule.exponential("100 millis"),
      times: repeatable ? REPETITIONS : 0,
      while: (error) => error._tag === "NodeUnreachable"
    }),
    Effect.retry({
      schedule: TOKEN_PAUSE,
      times: TOKEN_TRIES,
      while: (error) => error._tag === "TokenUnknown"
    }),
    Effect.timeoutOrElse({ duration: deadline, orElse: () => unreachable(late) }),
    breaker.execute({ key, classify }),
    Effect.tap(onAnswered),
    Effect.catchTag("TokenUnknown", () => unreachable(TOKEN_REFUSED)),
    Effect.tapErrorTag("NodeUnreachable", () => onUnreachable),
    Effect.catchTag("CircuitBreakerError", () => Effect.fail(new NodeUnreachable({ node_id })))
  )
}
