/** The plan of an instance's files, checked for this node (domain/filePlan.ts). */
import { Result } from "effect"
import { type FileDefinition, type FilePlan, planFiles } from "../../contract/domain/filePlan.ts"
import { IoError } from "../disk/fsio.ts"

export {
  type CopyEntry,
  type FilePlan,
  isAbove,
  type Shared,
  type Target
} from "../../contract/domain/filePlan.ts"

export const refuse = (message: string) => new IoError({ code: "REFUSED", message })

export const filePlan = (definition: FileDefinition): Result.Result<FilePlan, IoError> => {
  const { conflicts, plan } = planFiles(definition)
  const conflict = conflicts.find(({ impossible }) => impossible)
  return conflict === undefined ? Result.succeed(plan) : Result.fail(refuse(conflict.reason))
}
