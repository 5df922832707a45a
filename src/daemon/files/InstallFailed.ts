import { Data } from "effect"
import { fromDataFolder, isForGood, remedyOf } from "../disk/remedy.ts"

/**
 * An installation that did not succeed. `remedy`: what to do before it is tried again, as a clause; `for_good`: what
 * the server is made by is wrong, and stays so.
 */
export class InstallFailed extends Data.TaggedError("InstallFailed")<{
  readonly reason: string
  readonly exit_code?: number
  readonly remedy?: string
  readonly for_good?: true
}> {}

/** An installation that failed with something else. `what`: what was being done. */
export const installFailed = (
  error: { readonly message: string; readonly code?: string; readonly next?: string },
  more: { readonly what?: string; readonly exit_code?: number } = {}
): InstallFailed => {
  const { what, ...rest } = more
  const remedy = remedyOf(error)
  const reason = what === undefined ? error.message : `${what}: ${error.message}`
  const known = remedy === undefined ? {} : { remedy }
  return new InstallFailed({ reason, ...rest, ...(isForGood(error) ? { for_good: true } : known) })
}

/** Where an installation failed. */
export interface InstallPlace {
  readonly node_id: string
  readonly data_dir: string
  /** Whether it was that of a server that comes from another node. */
  readonly arriving: boolean
}

/**
 * What people read of it, wherever they read it: what, why, on which node, what to do. Only what is to be done names
 * places of the machine.
 */
export const failureText = (error: InstallFailed, { arriving, data_dir, node_id }: InstallPlace): string => {
  const remedy = error.remedy ?? "read the install log, correct the cause"
  const todo =
    error.for_good === true
      ? "correct the blueprint or software, then create it again"
      : `${remedy}, then ${arriving ? "move it again" : "reinstall"}`
  return `${fromDataFolder(error.reason, data_dir)} (node ${node_id}): ${todo}`
}
