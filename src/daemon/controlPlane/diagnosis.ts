/** What the control plane's failures mean for a daemon, and how a person is told. */
import type { Schema } from "effect"
import type { HttpClientError } from "effect/http"
import { whyNoAnswer } from "../../api/transport.ts"
import type {
  BodyTooLarge,
  Conflict,
  Forbidden,
  InternalError,
  InvalidRequest,
  NotFound,
  TimedOut,
  TooManyRequests,
  Unauthorized,
  Unavailable
} from "../../domain/errors.ts"

/** What a daemon says to whoever calls it without the token of the last registration. */
export const NOT_THE_TOKEN = "the token is not that of the last registration"

/** Whatever the derived client fails with, and an answer that is not of a control plane. */
export type Failure =
  | BodyTooLarge
  | Conflict
  | Forbidden
  | InternalError
  | InvalidRequest
  | NotFound
  | TimedOut
  | TooManyRequests
  | Unauthorized
  | Unavailable
  | HttpClientError.HttpClientError
  | Schema.SchemaError

/**
 * - `away`     no answer, or one of a proxy that did not get any
 * - `busy`     it answers that it cannot now
 * - `stranger` what answers there is no control plane, or one that is not understood
 * - `refused`  it does not want this node, or what the node says
 * - `key`      it does not accept the node's key
 */
export type LinkState = "away" | "busy" | "stranger" | "refused" | "key"

export interface Diagnosis {
  readonly state: LinkState
  /** The reason alone; a log line names the address before it. */
  readonly detail: string
}

const ofTransport = (failure: HttpClientError.HttpClientError): Diagnosis => {
  const { code, kind, message } = whyNoAnswer(failure)
  switch (kind) {
    case "tls": {
      const hint = "check the scheme of MUSTER_CONTROL_URL, and MUSTER_CONTROL_CA"
      return { state: "stranger", detail: `TLS fails (${code}: ${message}): ${hint}` }
    }
    case "protocol":
      return { state: "stranger", detail: "what answers there is not HTTP: check MUSTER_CONTROL_URL" }
    case "none":
      return { state: "away", detail: code === "" ? "no answer" : code }
  }
}

const notMuster = (what: string): Diagnosis => ({
  state: "stranger",
  detail: `${what}, which is no answer of a control plane of this version: check MUSTER_CONTROL_URL`
})

/** The daemon of a node, which wants a token of whoever calls it. */
const daemon: Diagnosis = {
  state: "stranger",
  detail:
    "there is the daemon of a node, no control plane: set MUSTER_CONTROL_URL to the control plane's address"
}

/** An answer whose status or body is none of the contract's. */
const ofAnswer = (status: number, location: string | undefined): Diagnosis => {
  if (status >= 502 && status <= 504) return { state: "away", detail: `answers ${status}` }
  if (status >= 300 && status < 400) {
    return notMuster(`answers ${status}${location === undefined ? "" : ` to ${location.slice(0, 200)}`}`)
  }
  return notMuster(`answers ${status}`)
}

/**
 * What a failure says of the control plane.
 *
 * @param known whether it has accepted the node's key before; what is wrong with a key it tells nobody
 */
export const diagnose = (failure: Exclude<Failure, NotFound>, known = false): Diagnosis => {
  switch (failure._tag) {
    case "Unauthorized":
      if (failure.detail === NOT_THE_TOKEN) return daemon
      return { state: "key", detail: known ? "revoked or expired" : "unknown, revoked or expired" }
    case "HttpClientError":
      return failure.response === undefined
        ? ofTransport(failure)
        : ofAnswer(failure.response.status, failure.response.headers.location)
    case "SchemaError":
      return notMuster("answers in another form")
    case "TimedOut":
    case "TooManyRequests":
    case "Unavailable":
    case "InternalError":
      return { state: "busy", detail: `${failure.detail} (${failure.code})` }
    case "BodyTooLarge":
    case "Conflict":
    case "Forbidden":
    case "InvalidRequest":
      return { state: "refused", detail: `${failure.detail} (${failure.code}). ${failure.hint}` }
  }
}
