import { Effect } from "effect"
import type { Diagnosis } from "./diagnosis.ts"

/** Logs the state of the link to the control plane: one line per change, none per attempt. */
export interface LinkLog {
  /** The control plane has answered as expected. */
  readonly connected: Effect.Effect<void>
  readonly failed: (diagnosis: Diagnosis) => Effect.Effect<void>
  /** Logs the reason why the control plane cannot call this node; undefined: it can. */
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
  /** The last logged state; undefined: none, or connected. */
  let logged: string | undefined
  let loggedReason: string | undefined
  /** Whether there was any response since the start. */
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
