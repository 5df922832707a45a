/** What the end of a process means (decisions, "States"). Pure. */

import { type ServerState, withNotice } from "../files/ServerFile.ts"
import { crashOf, type ProcessExit } from "../runtime/exitReason.ts"

const HOUR = 3_600_000

const offline = (state: ServerState, next: Partial<ServerState>, transient: boolean): ServerState =>
  withNotice({ ...state, intent: null, run: null, ...next }, { type: "status", status: "offline", transient })

/** Ended because that was asked: stop, kill, or the first half of a restart or reset. */
const asAsked = (state: ServerState): ServerState => {
  switch (state.intent?.type) {
    case "restart":
      return offline(state, { start_again: true }, true)
    case "reset":
      return offline(state, { work: "reset" }, true)
    default:
      return offline(state, {}, false)
  }
}

const crashed = (state: ServerState, exit: ProcessExit, now: number): ServerState => {
  const { restart, save } = state.spec.definition
  const crash = crashOf(exit, state.run?.timed_out === true, new Date(now))
  const told = withNotice(state, { type: "crash", crash })
  // One that is yet to come was before the clock was set back.
  const recent = state.restarts.filter((at) => at > now - HOUR && at <= now)
  return restart.on_crash && save && recent.length < restart.max_per_hour
    ? offline(told, { start_again: true, restarts: [...recent, now] }, true)
    : offline(told, {}, false)
}

/** The state after the end of the process, with what there is to report about it. `now`: ms since the epoch. */
export const processEnded = (state: ServerState, exit: ProcessExit, now: number): ServerState => {
  if (state.intent !== null || state.status === "stopping") return asAsked(state)
  if (exit.never_began === true) return offline(state, { start_again: false }, false)
  const clean = exit.code === 0 && state.run?.timed_out !== true && state.status === "running"
  return clean && state.spec.definition.process.clean_exit === "stop"
    ? offline(state, {}, false)
    : crashed(state, exit, now)
}
