/** The meaning of the control plane's failures for a daemon, and their texts. */
import { Effect, type Schema } from "effect"
import type { HttpClientError } from "effect/http"
import { whyNoAnswer } from "../../contract/api/noAnswer.ts"
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
} from "../../contract/domain/errors.ts"

/** The detail of a daemon's 401 response to a call without the token of the last registration. */
export const NOT_THE_TOKEN = "the token is not that of the last registration"

/** Every failure of the derived client, and a response that is not a control plane's. */
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
 * - `away`     no response, or that of a proxy without an upstream
 * - `busy`     a response that the control plane is not ready
 * - `stranger` another program, or an incompatible version
 * - `refused`  the control plane refuses this node or its message
 * - `key`      the control plane refuses the node's key
 */
export type LinkState = "away" | "busy" | "stranger" | "refused" | "key"

export interface Diagnosis {
  readonly state: LinkState
  readonly detail: string
}

const transportDiagnosis = (failure: HttpClientError.HttpClientError): Diagnosis => {
  const { code, kind, message } = whyNoAnswer(failure)
  switch (kind) {
    case "tls": {
      const hint = "check the scheme of MUSTER_CONTROL_URL, and MUSTER_CONTROL_CA"
      return { state: "stranger", detail: `TLS fails (${code}: ${message}): ${hint}` }
    }
    case "protocol":
      return { state: "stranger", detail: "the response is not HTTP: check MUSTER_CONTROL_URL" }
    case "none":
      return { state: "away", detail: code === "" ? "no response" : code }
  }
}

const incompatible = (what: string): Diagnosis => ({
  state: "stranger",
  detail: `${what}, which is not a response of a control plane of this version: check MUSTER_CONTROL_URL`
})

/** The daemon of a node responds: it requires a token. */
const isDaemon: Diagnosis = {
  state: "stranger",
  detail:
    "the address is that of the daemon of a node, not of a control plane: set MUSTER_CONTROL_URL to the control plane's address"
}

const responseDiagnosis = (status: number, location: string | undefined): Diagnosis => {
  if (status >= 502 && status <= 504) return { state: "away", detail: `status ${status}` }
  if (status >= 300 && status < 400) {
    return incompatible(`status ${status}${location === undefined ? "" : ` to ${location.slice(0, 200)}`}`)
  }
  return incompatible(`status ${status}`)
}

/** Returns the diagnosis of a failure. `known` says whether the control plane has accepted the node's key before. */
export const diagnose = (failure: Exclude<Failure, NotFound>, known = false): Diagnosis => {
  switch (failure._tag) {
    case "Unauthorized":
      if (failure.detail === NOT_THE_TOKEN) return isDaemon
      return { state: "key", detail: known ? "revoked or expired" : "unknown, revoked or expired" }
    case "HttpClientError":
      return failure.response === undefined
        ? transportDiagnosis(failure)
        : responseDiagnosis(failure.response.status, failure.response.headers.location)
    case "SchemaError":
      return incompatible("a response in an unknown format")
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

/** Logs the state of the link to the control plane: one line per change, none per attempt. */
export interface LinkLog {
  readonly connected: Effect.Effect<void>
  readonly failed: (diagnosis: Diagnosis) => Effect.Effect<void>
  /** Logs why the control plane cannot call this node, unless it can. */
  readonly unreachable: (why: string | undefined) => Effect.Effect<void>
}

/** `unseen`: away, and without any response since the start. */
const lines: Record<Diagnosis["state"] | "unseen", (url: string, detail: string) => Effect.Effect<void>> = {
  away: (url, detail) =>
    Effect.logWarning(`${url} cannot be reached (${detail}): servers keep running, reports are queued`),
  unseen: (url, detail) =>
    Effect.logWarning(
      `${url} cannot be reached (${detail}): servers keep running, reports are queued. There was no response since this start: check MUSTER_CONTROL_URL`
    ),
  busy: (url, detail) => Effect.logWarning(`${url} is not ready: ${detail}; reports are queued`),
  stranger: (url, detail) => Effect.logError(`${url}: ${detail}`),
  refused: (_, detail) => Effect.logError(`the control plane refuses this node: ${detail}`),
  key: (_, detail) =>
    Effect.logError(
      `the control plane refuses this node's key: ${detail}. Make one with: muster keys create --scope Node --name <name>, set MUSTER_NODE_KEY, start again`
    )
}

/** @param url base URL of the control plane */
export const makeLinkLog = (url: string): LinkLog => {
  /** The last logged state, unless connected or none. */
  let logged: string | undefined
  let loggedReason: string | undefined
  let seen = false
  return {
    connected: Effect.suspend(() => {
      seen = true
      if (logged === undefined) return Effect.void
      logged = undefined
      return Effect.logInfo(`${url} can be reached again`)
    }),
    failed: ({ detail, state }) =>
      Effect.suspend(() => {
        // The reason of an outage may differ between attempts; it is logged once.
        const now = state === "away" || state === "busy" ? state : `${state} ${detail}`
        if (logged === now) return Effect.void
        logged = now
        seen ||= state !== "away"
        return lines[seen ? state : "unseen"](url, detail)
      }),
    unreachable: (why) =>
      Effect.suspend(() => {
        if (loggedReason === why) return Effect.void
        loggedReason = why
        return why === undefined
          ? Effect.logInfo("the control plane can call this node and places servers on it")
          : Effect.logWarning(`the control plane cannot call this node and places no servers on it: ${why}`)
      })
  }
}
