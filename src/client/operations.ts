import { Effect } from "effect"
import { hasEnded, type Operation } from "../contract/domain/Operation.ts"
import { backoff, makePause } from "../shared/work/backoff.ts"
import type { Calls } from "./calls.ts"
import { isTransient } from "./responses.ts"

export interface OperationOptions {
  /** Called about once a second with the operation as it is, and with its end. */
  readonly onProgress?: (operation: Operation) => void
}

/**
 * Waits until an operation has ended, and returns it: `done`, `failed` or `cancelled`. Requests that end without a
 * response are repeated. The end of the caller does not end the operation.
 * @error NotFound there is no such operation: 24 h after its end it is removed
 */
export const operationEnd = (calls: Calls) =>
  Effect.fn("MusterClient.operationEnd")(function* (
    begun: Operation | Operation["id"],
    { onProgress = () => {} }: OperationOptions = {}
  ) {
    const operation = typeof begun === "string" ? begun : begun.id
    const pause = yield* makePause(backoff({ first: "250 millis", longest: "5 seconds" }))
    const next = calls.operations
      .get({ params: { operation }, headers: { prefer: "wait=1" } })
      .pipe(Effect.catchIf(isTransient, () => Effect.as(pause, undefined)))
    let now = typeof begun === "string" ? undefined : begun
    while (true) {
      if (now !== undefined) onProgress(now)
      if (now !== undefined && hasEnded(now.state)) return now
      now = yield* next
    }
  })
