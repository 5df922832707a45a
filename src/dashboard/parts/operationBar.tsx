import type { Operation } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { figuresOf, titleOf } from "../state/operations.ts"

/** The progress of an operation as a bar, which moves to and fro while its total is unknown. */
export const operationBar = (operation: Operation): View => {
  const { done = 0, total = 0 } = operation.progress ?? {}
  const label = `${titleOf(operation)}: ${figuresOf(operation)}`
  return total === 0 ? (
    <progress aria-label={label} />
  ) : (
    <progress aria-label={label} value={done} max={total} />
  )
}
