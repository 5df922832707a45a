import { Data } from "effect"
import type { NodeId } from "../../contract/domain/Id.ts"
import { failureText, NEW_DEFINITION, READ_THE_LOG } from "../../contract/domain/InstallState.ts"
import { fromDataFolder, isPermanent, remedyOf } from "../disk/remedy.ts"

/** A failed installation with its next step (`remedy`). If it is `permanent`, a retry cannot help. */
export class InstallFailed extends Data.TaggedError("InstallFailed")<{
  readonly reason: string
  readonly exit_code?: number
  readonly remedy?: string
  readonly permanent?: true
}> {}

export const installFailed = (
  error: { readonly message: string; readonly code?: string; readonly next?: string },
  more: { readonly what?: string; readonly exit_code?: number } = {}
): InstallFailed => {
  const { what, ...rest } = more
  const remedy = remedyOf(error)
  const reason = what === undefined ? error.message : `${what}: ${error.message}`
  const known = remedy === undefined ? {} : { remedy }
  return new InstallFailed({ reason, ...rest, ...(isPermanent(error) ? { permanent: true } : known) })
}

export interface InstallPlace {
  readonly node_id: NodeId
  readonly dataDir: string
  readonly arriving: boolean
}

const nextStep = ({ permanent, remedy }: InstallFailed, arriving: boolean): string => {
  if (permanent === true) return NEW_DEFINITION
  if (arriving) return `${remedy ?? "read the install log, correct the cause"}, then move it again`
  return remedy === undefined ? READ_THE_LOG : `${remedy}, then reinstall`
}

/** Returns the text of a failure for users. Only the next step names host paths. */
export const textOfFailure = (error: InstallFailed, { arriving, dataDir, node_id }: InstallPlace): string =>
  failureText(fromDataFolder(error.reason, dataDir), node_id, nextStep(error, arriving))
