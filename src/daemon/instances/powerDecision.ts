/** The effect of a power action in each state (spec 3.5, 3.9). Pure. */
import { installFailure } from "../../contract/domain/InstallState.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { InstanceState } from "../state/InstanceState.ts"

export type PowerDecision =
  | { readonly do: "nothing" | "start" | "defer" | "cancel" | "pause" | "unpause" | "kill" }
  | { readonly do: "end"; readonly as: "stop" | "restart" | "shutdown" }
  | { readonly do: "refuse"; readonly detail: string; readonly hint: string }

const refuse = (detail: string, hint: string): PowerDecision => ({ do: "refuse", detail, hint })

const notReadyRefusal = (state: InstanceState): PowerDecision | undefined => {
  if (state.status === "installing") {
    return refuse("the server is being installed", "Start it once its install phase is ready.")
  }
  if (state.install.phase !== "ready") {
    const { hint, reason } = installFailure(state.install)
    return refuse(`the installation failed: ${reason}`, hint)
  }
  return undefined
}

const start = (state: InstanceState): PowerDecision => {
  switch (state.status) {
    case "starting":
    case "running":
      // An accepted kill is not complete.
      return state.intent === null
        ? { do: "nothing" }
        : refuse("the server is being killed", "Start it when it is offline, or use restart.")
    case "stopping":
      return state.intent?.type === "reset"
        ? { do: "defer" }
        : refuse("the server is stopping", "Start it when it is offline.")
    case "paused":
      return { do: "unpause" }
    default:
      // The server is started once its files are there.
      if (state.work !== "none") return { do: "defer" }
      return notReadyRefusal(state) ?? { do: "start" }
  }
}

/** Whether the server stays offline after a stop that is in progress. */
const isFinal = (intent: InstanceState["intent"]) => intent?.type === "stop" || intent?.type === "kill"

const heldRefusal = refuse("the server is migrating", "Wait until it is on its new node.")

export type InstanceAction = PowerAction | "shutdown"

export const powerDecision = (state: InstanceState, action: InstanceAction): PowerDecision => {
  const up = isUp(state.status)
  if (state.held === true && (action === "restart" || (action === "start" && !up))) return heldRefusal
  /** A stop cancels the start that a server waits for, after a crash or while it gets a definition. */
  const down = !up && (state.start_again || state.waiting === true) ? "cancel" : "nothing"
  switch (action) {
    case "start":
      return start(state)
    case "stop":
      return up ? { do: "end", as: "stop" } : { do: down }
    case "shutdown":
      // A stop by a caller holds; what an offline server waits for continues when the daemon is back.
      if (!up || (state.status === "stopping" && isFinal(state.intent))) return { do: "nothing" }
      return { do: "end", as: "shutdown" }
    case "kill":
      return up ? { do: "kill" } : { do: down }
    case "restart":
      if (state.status === "stopping" && isFinal(state.intent)) {
        return refuse("the server is stopping", "Start it when it is offline.")
      }
      return up && state.intent?.type !== "reset" ? { do: "end", as: "restart" } : start(state)
    case "pause":
      if (state.status === "running") return { do: "pause" }
      return state.status === "paused"
        ? { do: "nothing" }
        : refuse(`the server is ${state.status}`, "Only a running server can be paused.")
    case "unpause":
      if (state.status === "paused") return { do: "unpause" }
      return state.status === "running"
        ? { do: "nothing" }
        : refuse(`the server is ${state.status}`, "Only a paused server can be unpaused.")
  }
}

/** Whether a server that waits for its turn can be started now. */
export const canStartInTurn = ({ held, status, waiting, work }: InstanceState): boolean =>
  waiting === true && status === "offline" && work === "none" && held !== true
