import { Effect } from "effect"
import type { Diagnosis } from "./diagnosis.ts"

/** Says how the connection to the control plane is: one line when that changes, none for each attempt. */
export interface LinkLog {
  /** It has answered as it should. */
  readonly well: Effect.Effect<void>
  readonly failed: (diagnosis: Diagnosis) => Effect.Effect<void>
  /** Where and why the control plane cannot call this node; undefined: it says nothing of that. */
  readonly unreachable: (why: string | undefined) => Effect.Effect<void>
}

/** `nowhere`: away, and never met. */
const lines: Record<Diagnosis["state"] | "nowhere", (url: string, detail: string) => Effect.Effect<void>> = {
  away: (url, detail) =>
    Effect.logWarning(`${url} cannot be reached (${detail}): servers run on, reports wait`),
  nowhere: (url, detail) =>
    Effect.logWarning(
      `${url} cannot be reached (${detail}): servers run on, reports wait. Nobody has answered there since this start: check MUSTER_CONTROL_URL`
    ),
  busy: (url, detail) => Effect.logWarning(`${url} cannot serve now: ${detail}; reports wait`),
  stranger: (url, detail) => Effect.logError(`${url}: ${detail}`),
  refused: (_, detail) => Effect.logError(`the control plane refuses this node: ${detail}`),
  key: (_, detail) =>
    Effect.logError(
      `the control plane refuses this node's key: ${detail}. Make one with: muster keys create --scope Node --name <name>, set MUSTER_NODE_KEY, start again`
    )
}

/** @param url of the control plane */
export const makeLinkLog = (url: string): LinkLog => {
  /** What was said last; undefined: nothing, or that all is well. */
  let said: string | undefined
  let told: string | undefined
  /** Whether anybody has answered there. */
  let met = false
  return {
    well: Effect.suspend(() => {
      met = true
      if (said === undefined) return Effect.void
      said = undefined
      return Effect.logInfo(`${url} can be reached again`)
    }),
    failed: ({ detail, state }) =>
      Effect.suspend(() => {
        // Why nothing answers may differ from attempt to attempt; a person is told once.
        const now = state === "away" || state === "busy" ? state : `${state} ${detail}`
        if (said === now) return Effect.void
        said = now
        met ||= state !== "away"
        return lines[met ? state : "nowhere"](url, detail)
      }),
    unreachable: (why) =>
      Effect.suspend(() => {
        if (told === why) return Effect.void
        told = why
        return why === undefined
          ? Effect.logInfo("the control plane can call this node: it gets servers")
          : Effect.logWarning(
              `the control plane cannot call this node, which gets no servers until it can: ${why}`
            )
      })
  }
}
