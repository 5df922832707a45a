/** The choices of a rollout: as typed, as the body of the request, and in words. */
import type { Rollout } from "../../api/types.ts"
import { counted } from "../../dom/format.ts"
import { numberIn } from "../../parts/fieldInput.tsx"

export const restarts = [
  ["now", "Restart them now"],
  ["when_stopped", "Wait for their next start"]
] as const

export const failures = [
  ["pause", "Pause the rollout"],
  ["continue", "Continue with the others"],
  ["rollback", "Roll all servers back"]
] as const

export interface Form {
  readonly parallel: string
  readonly canary: string
  readonly restart: string
  readonly failure: string
  readonly timeout: string
  readonly notify: string
  readonly seconds: string
}

export const emptyForm: Form = {
  parallel: "2",
  canary: "",
  restart: "now",
  failure: "pause",
  timeout: "",
  notify: "",
  seconds: ""
}

const number = (name: string, text: string) => (text === "" ? {} : { [name]: numberIn(text) })

export const bodyOf = (form: Form): Record<string, unknown> => {
  const { canary, failure, parallel, restart, timeout } = form
  // No server restarts otherwise.
  const { notify, seconds } = restart === "now" ? form : emptyForm
  return {
    restart,
    on_failure: failure,
    ...number("max_parallel", parallel),
    ...number("canary", canary),
    ...number("start_timeout", timeout),
    ...(notify === "" ? {} : { notify }),
    ...number("notify_seconds", seconds)
  }
}

const restartWords = {
  now: "Restarts servers that are up",
  when_stopped: "Waits for the next start of servers that are up"
} as const
const failureWords = {
  pause: "Pauses after a failure",
  continue: "Continues after a failure",
  rollback: "Rolls all servers back after a failure"
} as const

export const wordsOf = ({
  canary,
  max_parallel,
  notify,
  on_failure,
  restart
}: Rollout): ReadonlyArray<string> => [
  `${counted(max_parallel, "server")} at a time`,
  ...(canary === undefined ? [] : [`Paused after ${counted(canary, "server")}`]),
  restartWords[restart],
  ...(notify === undefined ? [] : [`Line before a restart: ${notify}`]),
  failureWords[on_failure]
]
