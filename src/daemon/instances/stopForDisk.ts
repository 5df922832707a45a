import { Effect } from "effect"
import { nowText } from "../../domain/nowText.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import { withProblem } from "../state/ServerFile.ts"
import type { Instance } from "./Instance.ts"

/** The time for a server to stop, in seconds. */
const STOP_TIMEOUT = 30

/**
 * Stops a server for its use of the disk, or kills it if it is being stopped. The reason is its problem, a line of its
 * console and a warning.
 */
export const stopForDisk = Effect.fnUntraced(function* (
  instance: Instance,
  why: { readonly status: 409 | 507; readonly detail: string; readonly hint: string }
) {
  const { file, folder } = instance
  const since = yield* nowText
  const { status } = yield* file.update((state) => withProblem(state, why, since))
  const action = status === "stopping" ? "kill" : "stop"
  const text = `the node ${action === "kill" ? "kills" : "stops"} the server: ${why.detail}`
  yield* Effect.logWarning(text)
  yield* Effect.catch(appendConsoleLine(folder, text), (error) => Effect.logWarning(error.message))
  yield* Effect.catch(instance.power(action, STOP_TIMEOUT), (error) =>
    Effect.logWarning(`the server cannot be stopped: ${error.detail}`)
  )
})
